package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// Event is a fault of an episode, or a disturbance that no fault caused.
type Event struct {
	Class  string        `json:"class"`
	From   time.Duration `json:"from_ns"`
	To     time.Duration `json:"to_ns"`
	Seen   string        `json:"seen,omitempty"`    // proof that the fault took effect
	NotRun string        `json:"not_run,omitempty"` // why the fault does not count
	Points []string      `json:"points,omitempty"`  // killAtPoint only: failpoints at which processes ended
}

// episode is one cluster, its load, and the faults that are injected into it.
type episode struct {
	cfg  Config
	plan Plan
	dir  string
	c    *cluster
	load *load.Load
	// trailing reports that a snapshot leaves only a small part of the log, so
	// that a node that was down for a short time needs a snapshot.
	trailing bool
	mon      *monitor
	// companion is the set of clients of Config.Beside, or nil.
	companion Companion
	recovered int // number of clusters that were made from the data of one node

	mu         sync.Mutex
	violations []checker.Violation
	events     []Event
	recoveries []checker.Recovery
	families   Check // result of load.Families, in an episode with two builds
	beside     Check // result of the clients of Config.Beside
	besideBad  []checker.Violation
	cutShort   bool     // true if a fault of the current step may have left a node that must join again
	points     []string // failpoints of the plan that no fault has used yet
	health     checker.Health
	steady     checker.Health // contains the intervals in which the order of waiters is not checked
}

// Limits of an episode.
const (
	recoverWithin = 10 * time.Second // limit from the end of the faults to a write through every node
	healthyWithin = 45 * time.Second
	startWithin   = 30 * time.Second
)

func (e *episode) violation(check, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Duration(0)
	if e.load != nil {
		now = e.load.Now()
	}
	e.violations = append(e.violations, checker.Violation{Check: check, Text: fmt.Sprintf(format, args...),
		From: now, To: now})
}

func (e *episode) ill(from, to time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.health.Add(from, to)
}

// run plays the plan. When the load has ended and there was no error, it calls
// the function rest. When all nodes are dead, it calls the function
// checkHistory, unless the load could not be started. An error other than
// errLost means that the test harness failed. Such an error says nothing about
// the cluster.
func (e *episode) run(ctx context.Context, rest func() error, checkHistory func(*load.History)) (err error) {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return err
	}
	args := []string{"--log-store", e.plan.LogStore, "--snapshot-bytes", fmt.Sprint(e.plan.Snapshot)}
	if !e.plan.mixes(e.cfg) || hasFlag(e.cfg.Old, trailingFlag) {
		args = append(args, trailingFlag, fmt.Sprint(e.plan.Trailing))
		e.trailing = e.plan.Trailing < 1<<20
	}
	if e.plan.Segment > 0 && !e.plan.mixes(e.cfg) {
		args = append(args, "--test-segment-bytes", fmt.Sprint(e.plan.Segment))
	}
	if !e.plan.mixes(e.cfg) || hasFlag(e.cfg.Old, secretFlag) {
		secret := filepath.Join(e.dir, "cluster-secret")
		if err := os.WriteFile(secret, fmt.Appendf(nil, "the secret of the cluster of seed %016x", e.plan.Seed),
			0o600); err != nil {
			return err
		}
		args = append(args, secretFlag, secret)
	}
	e.points = e.plan.Points
	e.c, err = newCluster(clusterConfig{program: e.plan.begins(e.cfg), dir: e.dir, nodes: e.plan.Nodes, args: args,
		disks: e.needsDisks()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.c.close()) }()
	starting, stop := withLimit(ctx, startWithin, "form a cluster")
	defer stop()
	if err := e.form(starting); err != nil {
		return err
	}
	_, err = e.c.healthy(starting)
	if err != nil {
		return err
	}
	lc := e.cfg.Load
	lc.Addrs, lc.Login, lc.Seed = e.c.addrs(), Login, e.plan.Seed
	if e.plan.Control != "" {
		controls[e.plan.Control].load(&lc)
	}
	if e.plan.mixes(e.cfg) { // the older build may lose elements and messages
		lc = lc.Simple()
	}
	if e.load, err = load.Start(ctx, lc); err != nil {
		return err
	}
	if e.cfg.Beside != nil && e.plan.Control == "" {
		e.companion = e.cfg.Beside(ctx, e.c.addrs(), e.plan.Seed)
	}
	var families *load.Families
	if e.plan.mixes(e.cfg) {
		if families, err = load.StartFamilies(ctx, e.c.addrs(), Login, "families:", e.plan.Seed); err != nil {
			e.load.Stop()
			return err
		}
	}
	e.mon = watch(ctx, e)
	rng := rand.New(rand.NewPCG(e.plan.Seed, 1))
	err = e.injectAll(ctx, rng)
	e.load.Stop()
	if families != nil {
		e.families = Check{Name: "two builds: commands of all families", Checked: families.Stop()}
	}
	if e.companion != nil {
		ending, stop := withLimit(ctx, 30*time.Second, "end")
		e.beside.Name, e.beside.Checked, e.besideBad = e.companion.Stop(ending)
		stop()
	}
	if err == nil {
		err = e.readFinal(ctx)
	}
	e.mon.stop()
	if err == nil {
		err = rest()
	}
	for _, n := range e.c.all() {
		err = errors.Join(err, n.kill())
	}
	// Check the history even after an error: everything that the clients
	// observed up to this point must have been correct.
	checkHistory(e.load.History())
	return err
}

// gentle lists the faults during which the order of clients that wait for locks
// is checked. During these faults, the nodes that run can reach each other, and
// their disks and clocks work. Changes of the leader and lost connections exclude
// further intervals from the check.
var gentle = []string{"kill -9 leader", "kill -9 follower", "kill -9 majority", "kill -9 all", "rolling restart",
	"transfer storm", "snapshot race"}

// The order of waiters is not checked for queueSettles after a fault, and for
// leaderSettles after a change of leader. calm is how long an episode continues
// after its last fault, so that there is a time in which the order is checked.
const (
	queueSettles  = 800 * time.Millisecond
	leaderSettles = 500 * time.Millisecond
	calm          = 2500 * time.Millisecond
)

func (e *episode) unsteady(from, to time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steady.Add(from, to)
}

func (e *episode) needsDisks() bool {
	for _, f := range allFaults() {
		for _, step := range e.plan.Steps {
			for _, class := range step {
				if f.class == class && f.disk && f.needs(e.cfg) == "" {
					return true
				}
			}
		}
	}
	return false
}

// injectAll runs the steps of the plan. Each step waits for traffic first,
// because a fault without load proves nothing. Then the step injects its
// faults. At the end of the step injectAll removes all faults, and the cluster
// must recover.
func (e *episode) injectAll(ctx context.Context, rng *rand.Rand) error {
	if c := e.plan.Control; c != "" {
		return controls[c].inject(ctx, e)
	}
	steps := e.plan.Steps
	if len(steps) == 0 { // a control of the test harness: no fault is injected
		load.Sleep(ctx, e.cfg.Quiet)
		return e.heal(ctx)
	}
	for _, step := range steps {
		if err := e.traffic(ctx, e.cfg.Traffic); err != nil {
			return err
		}
		from := e.load.Now()
		var wg sync.WaitGroup
		for _, class := range step {
			f := find(class)
			s := &injection{episode: e, rng: rand.New(rand.NewPCG(rng.Uint64(), 2))}
			wg.Add(1)
			go func() {
				defer wg.Done()
				e.inject(ctx, f, s)
			}()
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
		err := e.heal(ctx)
		if slices.ContainsFunc(step, func(class string) bool { return !slices.Contains(gentle, class) }) {
			e.unsteady(from, e.load.Now()+queueSettles)
		}
		if err != nil {
			return err
		}
		e.ill(from-lostTime, e.load.Now()+settle)
	}
	if !e.plan.mixes(e.cfg) {
		load.Sleep(ctx, calm)
	}
	return e.traffic(ctx, e.cfg.Traffic)
}

func find(class string) fault {
	for _, f := range allFaults() {
		if f.class == class {
			return f
		}
	}
	panic("attack: no fault is called " + class)
}

// inject runs one fault and records the result.
func (e *episode) inject(ctx context.Context, f fault, s *injection) {
	ev := Event{Class: f.class, From: e.load.Now()}
	if f.needs != nil {
		ev.NotRun = f.needs(e.cfg)
	}
	if ev.NotRun == "" {
		seen, err := f.run(ctx, s)
		switch {
		case err != nil:
			ev.NotRun = err.Error()
		case seen == "":
			ev.NotRun = "nothing shows that it took effect"
		default:
			ev.Seen = seen
		}
	}
	ev.To = e.load.Now()
	ev.Points = s.points
	e.mu.Lock()
	e.cutShort = e.cutShort || ev.Seen == "" && (f.group == members || f.group == operators)
	e.events = append(e.events, ev)
	e.mu.Unlock()
}

// traffic waits until the load has completed n more commands.
func (e *episode) traffic(ctx context.Context, n int) error {
	from := e.load.Count()
	wait, stop := withLimit(ctx, 30*time.Second, "traffic")
	defer stop()
	for e.load.Count() < from+n {
		if !load.Sleep(wait, 5*time.Millisecond) {
			return fmt.Errorf("only %d of %d commands completed: %w", e.load.Count()-from, n, context.Cause(wait))
		}
	}
	return nil
}

// heal removes the faults that are still active, starts the nodes that are
// down, and checks that every node serves again in time.
func (e *episode) heal(ctx context.Context) error {
	e.c.net.clear()
	var errs []error
	for _, n := range e.c.nodes {
		errs = append(errs, n.setClocks(0, 1))
	}
	errs = append(errs, e.c.resumeAll())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	trying, stop := withLimit(ctx, healthyWithin, "recover")
	defer stop()
	e.mu.Lock()
	cutShort := e.cutShort
	e.cutShort = false
	e.mu.Unlock()
	if cutShort {
		// The fault may have left a node without data, or a node that is no
		// longer a member. Let such a node join as a new member, as an operator
		// would.
		wait, stopWaiting := withLimit(trying, healthyWithin/3, "recover")
		_, err := e.c.healthy(wait)
		stopWaiting()
		if err != nil {
			if err := e.readmit(ctx); err != nil {
				return err
			}
		}
	}
	recoveries := e.load.Recover(trying, e.load.Now())
	e.mu.Lock()
	e.recoveries = append(e.recoveries, recoveries...)
	e.mu.Unlock()
	if _, err := e.c.healthy(trying); err != nil {
		e.violation("recovery", "the cluster did not recover after the faults had ended: %v", err)
		return errLost
	}
	return nil
}

// readmit lets the nodes that do not run or are no longer members join as new
// members.
func (e *episode) readmit(ctx context.Context) error {
	all, err := e.c.members(ctx)
	if err != nil {
		return nil // no node answers yet: the caller continues to wait
	}
	voters := make(map[string]bool)
	for _, m := range all {
		voters[m.ID] = true
	}
	s := &injection{episode: e, rng: rand.New(rand.NewPCG(e.plan.Seed, 3))}
	for _, n := range e.c.nodes {
		if n.Running() && voters[n.ID] {
			continue
		}
		if err := s.rejoin(ctx, n); err != nil {
			return fmt.Errorf("readmit %s: %w", n.ID, err)
		}
	}
	return nil
}

// errLost ends an episode whose cluster did not recover. The failure to recover
// is a violation that is already recorded. It is not a failure of the test
// harness.
var errLost = errors.New("the cluster did not recover")

// readFinal reads the final content of the lists and queues, and the nodes'
// histories of locks.
func (e *episode) readFinal(ctx context.Context) error {
	reading, stop := withLimit(ctx, 60*time.Second, "read the lists")
	defer stop()
	return e.load.Collect(reading)
}
