package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/replay"
)

// history is one run of a schedule: the simulated cluster, the observations of
// the clients, and the periods in which the cluster was healthy.
type history struct {
	w    *world
	plan *Schedule
	done chan struct{} // closed when the clients must stop

	registers, counters, watched, scripted, typed *family // guarded by mu

	served served

	mu       sync.Mutex
	ops      []checker.Op
	written  []checker.Op // operations and attempts to take locks, in the form that they have in the log
	holds    []checker.Hold
	refusals []checker.Refusal
	appends  []checker.Append
	batches  []checker.Batch
	health   checker.Health
	outcomes map[string]int
	injected map[string]int
	seen     map[string]int
}

func (h *history) ended() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

// pause waits for d. It reports false when the history is over.
func (h *history) pause(d time.Duration) bool {
	select {
	case <-h.done:
		return false
	case <-time.After(d):
		return true
	}
}

func (h *history) count(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.outcomes[err.Error()]++
	} else {
		h.outcomes["done"]++
	}
}

func (h *history) op(f *family, o checker.Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
	if o.Outcome == checker.Unknown && !o.Kind.Reads() {
		f.open[o.Key]++
	}
}

// write records an operation for the replay, in the form that it has in the
// log.
func (h *history) write(o checker.Op, cmd command, transaction bool) {
	switch {
	case len(cmd) > 0 && cmd[0] == "delex":
		return // the replay's model does not know this command
	case transaction:
		o.Kind = checker.Set
		if o.Outcome == checker.Done {
			o.Reply = checker.Reply{Text: "OK"}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.written = append(h.written, o)
}

func (h *history) hold(x checker.Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = append(h.holds, x)
}

func (h *history) refusal(x checker.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusals = append(h.refusals, x)
}

func (h *history) append(x checker.Append) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.appends = append(h.appends, x)
}

func (h *history) batch(x checker.Batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.batches = append(h.batches, x)
}

// lookEvery is the interval between two observations of the cluster.
const lookEvery = 50 * time.Millisecond

// forgets returns how long before a fault or a change of leader the cluster
// already counts as unhealthy. This duration covers the time of the lease clock
// that the old leader had not logged yet (ClockEntryEvery), the time for which
// the old leader may have been cut off (LeaseTimeout), and the delay of the
// observations (lookEvery).
func (h *history) forgets() time.Duration {
	slow := 1
	for _, by := range h.plan.Sluggish {
		slow = max(slow, by)
	}
	o := h.w.opts
	return o.ClockEntryEvery + o.LeaseTimeout*time.Duration(slow) + 4*lookEvery
}

// exclude excludes a stretch of the history from the checks that need a healthy
// cluster, such as the expiry of keys. The excluded stretch begins before the
// time from, by the duration that history.forgets returns.
func (h *history) exclude(from, to time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.health.Add(max(0, from-h.forgets()), to)
}

// observe watches the cluster until stop is closed, and records when the
// cluster is not healthy.
func (h *history) observe(stop <-chan struct{}) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var term uint64
	last := time.Duration(0)
	for round := 0; ; round++ {
		select {
		case <-stop:
			return
		case <-t.C:
		}
		is, ready := h.w.look()
		if round%20 == 0 {
			h.w.commits()
		}
		h.observeWaiters()
		if h.w.ports && round%60 == 10 {
			h.w.readBack()
		}
		now := h.w.elapsed()
		// Only a leader that is ready expires keys, and only until its term
		// ends.
		if !ready || is != term {
			h.exclude(last, now+lookEvery)
		}
		term, last = is, now
	}
}

// recovery is the time within which a cluster must recover fully after the last
// fault.
const recovery = 10 * time.Second

// run runs a schedule. It must be called in a bubble.
func run(plan *Schedule) *Result {
	w := newWorld(plan.Seed, plan.Nodes)
	h := &history{
		w: w, plan: plan, done: make(chan struct{}),
		registers: newFamily("r", 4), counters: newFamily("c", 2), watched: newFamily("w", 2),
		scripted: newFamily("s", 2), typed: newFamily("t", 1),
		outcomes: make(map[string]int), injected: make(map[string]int), seen: make(map[string]int),
	}
	h.served.waiting = make(map[waiterName]*checker.Take)
	h.served.steady.Known = true
	w.ports = len(plan.Work) > 0
	if plan.Window > 0 {
		w.opts.Window = plan.Window
	}
	w.opts.LeaderLease = plan.LeaderLease
	h.health = checker.Health{Known: true, Slack: 2*w.opts.HeartbeatTimeout + 500*time.Millisecond}
	for id, by := range plan.Sluggish {
		w.node(id).sluggish = by
	}
	for id, features := range plan.Features {
		w.node(id).features = features
	}
	for _, id := range w.ids() {
		if err := w.start(id); err != nil {
			w.audit.violate("%v", err)
		}
	}
	stop := make(chan struct{})
	var watchers, clients sync.WaitGroup
	watchers.Go(func() { h.observe(stop) })
	watchers.Go(func() { h.observeLocks(stop) })
	for i := range plan.Clients {
		clients.Go(h.client(i, "client").register)
	}
	for i, work := range []func(*client){(*client).watcher, (*client).watcher, (*client).locker, (*client).locker,
		(*client).locker, (*client).appender, (*client).appender, (*client).pipeliner} {
		c := h.client(plan.Clients+i, "client")
		clients.Go(func() { work(c) })
	}
	h.startServed(&clients)
	var faults sync.WaitGroup
	for _, f := range plan.Faults {
		faults.Go(func() {
			<-time.After(f.At - w.elapsed())
			begun := w.elapsed()
			effective := w.inject(f)
			h.exclude(begun, w.elapsed()+2*time.Second)
			h.faultEnded(f.Kind, begun, w.elapsed())
			h.mu.Lock()
			defer h.mu.Unlock()
			h.injected[f.Kind]++
			if effective {
				h.seen[f.Kind]++
			}
		})
	}
	faults.Wait()
	w.repair()
	healed := w.elapsed()
	h.exclude(healed, healed+recovery)
	recoveries := h.recover(healed)
	if rest := plan.Length - w.elapsed(); rest > 0 {
		<-time.After(rest)
	}
	// The cluster then runs for some time without faults. Locks that no
	// client releases must expire in this time.
	<-time.After(recovery)
	close(h.done)
	clients.Wait()
	h.converge()
	if w.ports {
		h.finishServed()
		h.converge()
	}
	close(stop)
	watchers.Wait()
	lists := h.lists()
	w.commits()
	length := w.elapsed()
	w.end()
	return h.check(length, recoveries, lists)
}

// recover writes through each node until the node has served one write. It
// tries for at most twice the recovery time. It returns the time at which each
// node served its write.
func (h *history) recover(healed time.Duration) []checker.Recovery {
	var mu sync.Mutex
	var all []checker.Recovery
	var wg sync.WaitGroup
	for i, id := range h.w.ids() {
		c := h.client(1000+i, "recovery")
		wg.Go(func() {
			r := checker.Recovery{Node: id, Healed: healed, Served: checker.Forever}
			for h.w.elapsed() < healed+2*recovery && r.Served == checker.Forever {
				c.home = id
				if p := h.w.node(id).running(); p == nil || !c.connect() {
					<-time.After(lookEvery)
					continue
				}
				if x := c.do(command{"set", "recovered", id}); x.outcome == checker.Done {
					r.Served = x.ret
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b checker.Recovery) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// converge waits until all nodes have applied the same index.
func (h *history) converge() {
	begun := h.w.elapsed()
	for h.w.elapsed() < begun+recovery {
		h.w.look()
		if h.w.level() {
			return
		}
		<-time.After(lookEvery)
	}
	h.w.audit.violate("the nodes did not reach the same index within %v of the end: %s", recovery, h.w.describe())
}

// lists reads the list that the appenders wrote.
func (h *history) lists() map[string][]string {
	c := h.client(2000, "reader")
	lists := make(map[string][]string)
	begun := h.w.elapsed()
	for h.w.elapsed() < begun+recovery {
		for _, id := range h.w.ids() {
			p := h.w.node(id).running()
			if p == nil {
				continue
			}
			c.home, c.proc, c.s = id, p, p.n.NewSession()
			x := c.do(command{"lrange", "list", "0", "-1"})
			if x.outcome == checker.Done {
				lists["list"] = []string{}
				for _, v := range x.first().Array {
					lists["list"] = append(lists["list"], v.Text)
				}
				return lists
			}
		}
	}
	h.w.audit.violate("the list could not be read at the end")
	return nil
}

// check runs the checkers on the history and returns the result.
func (h *history) check(length time.Duration, recoveries []checker.Recovery, lists map[string][]string) *Result {
	r := &Result{
		Schedule: h.plan, Virtual: length, Injected: h.injected, Seen: h.seen, Outcomes: h.outcomes, Exits: h.w.exits,
		Failovers: h.w.audit.failovers(), Hashes: int(h.w.audit.compared), Checks: make(map[string]int),
		Log: h.w.book.Tail(5000),
	}
	r.Violations = append(r.Violations, h.w.audit.violations()...)
	add := func(bad []checker.Violation) {
		for _, v := range bad[:min(len(bad), maxViolations)] {
			r.Violations = append(r.Violations, fmt.Sprintf("%s (%v to %v)", v, v.From, v.To))
		}
	}
	linear := checker.Linear(h.ops, &h.health, checkLimit)
	add(linear.Violations)
	r.Keys, r.Checks["linearizable"] = linear.Keys, linear.Ops
	r.bad = linear.Bad
	locks := checker.Locks(h.holds, h.refusals, &h.health)
	add(locks.Violations)
	r.Grants, r.Expired = locks.Grants, locks.Expired
	r.Checks["locks"] = len(h.holds) + len(h.refusals)
	if lists != nil {
		add(checker.Once(h.appends, lists))
		r.Checks["at most once"] = len(h.appends)
	}
	log, gap := h.w.audit.log()
	if gap == 0 {
		replayed := replay.Check(log, h.written, h.appends)
		add(replayed.Violations)
		r.Entries, r.committed = replayed.Entries, log
		r.Checks["replay of the log"] = replayed.Matched + replayed.Reads
	} else {
		r.Checks["replay NOT RUN: entries were not seen"]++
	}
	if h.w.ports {
		h.checkServed(r, log, gap == 0, add)
	}
	add(checker.Batches(h.batches))
	checked, bad := checker.Replies(h.ops)
	add(bad)
	r.Checks["reply order"] = checked
	for _, b := range h.batches {
		r.Checks["reply order"] += b.Sent
		r.Ops += b.Sent
	}
	add(checker.Recoveries(recoveries, recovery))
	r.Checks["recovery"] = len(recoveries)
	r.Checks["replica equality"] = r.Hashes
	r.Ops += len(h.ops) + len(h.holds) + len(h.refusals) + len(h.appends)
	return r
}

// checkLimit is the time limit of the search for a linearization of one key's
// history.
const checkLimit = 30 * time.Second
