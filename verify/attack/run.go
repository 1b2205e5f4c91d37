package attack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// Config configures a run.
type Config struct {
	Program  string        // the holdfast binary
	Old      string        // another build to mix with Program, "" for none
	Dir      string        // directory of the clusters and of the evidence of violations
	Seed     uint64        // seed of all random choices
	Episodes int           // number of episodes; 0 means that only For limits them
	For      time.Duration // no episode begins after this time, 0 for no limit
	Faults   []string      // classes of faults to inject: see the function choose
	Steps    int           // largest number of steps of an episode, 0 for stepsPerEpisode
	Controls bool          // also run the negative controls
	Load     load.Config   // the load, without addresses
	// Traffic is the number of commands that the load completes before each
	// step and after the last one. Quiet is the length of an episode without
	// faults.
	Traffic int
	Quiet   time.Duration
	Out     io.Writer // progress, one line per episode
	// Beside starts additional clients at the addresses of each cluster, except
	// in the negative controls. If Beside is nil, there are none.
	Beside func(ctx context.Context, addrs []string, seed uint64) Companion
	Keep   bool // keep the directories of all episodes, not only those with violations or failures
}

// Companion is a set of clients of another kind that run at the same time as the
// load, for example those of a client library.
type Companion interface {
	// Pause waits until the clients have no command in flight, and lets them
	// send none until resume is called.
	Pause() (resume func())
	// Stop ends the clients. It is called after the last fault. It returns the
	// name of its check, the number of results checked, and the violations. Stop
	// must return before ctx ends.
	Stop(ctx context.Context) (name string, checked int, bad []checker.Violation)
}

// DefaultConfig returns a Config for a small machine, without Program and Dir.
func DefaultConfig() Config {
	return Config{Load: load.DefaultConfig().WithQueues(), Traffic: 500, Quiet: 6 * time.Second, Out: io.Discard}
}

// EpisodeReport is the result of one episode.
type EpisodeReport struct {
	Plan      Plan           `json:"plan"`
	Took      time.Duration  `json:"took_ns"`
	Commands  int            `json:"commands"`
	Failovers int            `json:"failovers"`
	Installs  int            `json:"installs"` // snapshots that nodes received from other nodes
	Events    []Event        `json:"events"`
	Errors    map[string]int `json:"errors,omitempty"` // number of errors that clients got, by kind
	Longest   time.Duration  `json:"longest_ns"`       // longest wait of a client
	Evidence  string         `json:"evidence,omitempty"`
	// Failure is the reason why the test harness could not run the plan to its
	// end. Checks that were not made for that reason prove nothing.
	Failure string `json:"failure,omitempty"`
	// Caught names the check that found the violation of a negative control. It
	// is "" if no expected check found it, and in all other episodes.
	Caught string `json:"caught,omitempty"`
	Verdict

	Holds       []checker.Hold `json:"-"` // grants of locks; package report draws them and the next two fields
	Samples     []load.Sample  `json:"-"`
	Leaderships []Leadership   `json:"leaders"`
	Duration    time.Duration  `json:"duration_ns"`
}

// Sample is one pipeline as its client saw it.
type Sample = load.Sample

// ClassTally counts the faults of one class in a run.
type ClassTally struct {
	Class    string `json:"class"`
	Injected int    `json:"injected"`
	Seen     int    `json:"seen"`
	NotRun   string `json:"not_run,omitempty"` // reason of the last fault that was not run
}

// Used reports whether the run was to inject faults of the class. If it could
// inject none, NotRun says why.
func (c ClassTally) Used() bool { return c.Injected > 0 || c.NotRun != "" }

// Report is the result of a run.
type Report struct {
	Seed       uint64          `json:"seed"`
	Target     []string        `json:"target,omitempty"` // addresses of a cluster that was already running
	Began      time.Time       `json:"began"`
	Took       time.Duration   `json:"took_ns"`
	Episodes   []EpisodeReport `json:"episodes"`
	Classes    []ClassTally    `json:"classes"`
	Checks     []Check         `json:"checks"`
	Histories  int             `json:"histories"` // histories in which at least three classes of faults were seen
	Faults     int             `json:"faults_seen"`
	Points     map[string]int  `json:"points"` // failpoints at which processes killed themselves, with counts
	Failovers  int             `json:"failovers"`
	Installs   int             `json:"installs"`
	Stalls     int             `json:"stalls"` // nodes that ended because this machine's disk stalled
	PowerCuts  int             `json:"power_cuts"`
	Commands   int             `json:"commands"`
	Checked    int             `json:"checked"`
	Grants     int             `json:"grants"`
	Expired    int             `json:"expired"`
	Violations int             `json:"violations"`
	Failures   int             `json:"failures"` // episodes that could not be completed
	Controls   int             `json:"controls"`
	Caught     int             `json:"controls_caught"`
}

// Passed reports whether the run passed. A run passes if there are no
// violations, every episode was completed, the checkers caught every control,
// and, if faults were to be injected, at least one took effect.
func (r *Report) Passed() bool {
	return (len(r.Classes) == 0 || r.Faults > 0) && r.Violations == 0 && r.Failures == 0 && r.Controls == r.Caught &&
		len(r.Episodes) > 0
}

// Run plays episodes until all are done, cfg.For has passed, or ctx ends.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	faults, err := choose(cfg.Faults)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	r := &Report{Seed: cfg.Seed, Began: time.Now()}
	var todo []Plan
	if cfg.Controls {
		todo = append(todo, controlPlans(cfg.Seed)...)
	}
	episodes := cfg.Episodes
	if episodes == 0 && cfg.For > 0 {
		episodes = int(cfg.For/time.Second) + 1 // an upper bound: an episode takes over 1 s
	}
	todo = append(todo, plans(cfg.Seed, episodes, chosen(cfg, faults))...)
	for _, p := range todo {
		if cfg.Steps > 0 {
			p.Steps = p.Steps[:min(cfg.Steps, len(p.Steps))]
		}
		if cfg.For > 0 && time.Since(r.Began) > cfg.For && len(r.Episodes) > 0 {
			break
		}
		e := &episode{cfg: cfg, plan: p, dir: filepath.Join(cfg.Dir, fmt.Sprintf("episode-%d", p.Number))}
		if p.Control != "" {
			e.dir = filepath.Join(cfg.Dir, "control-"+p.Control)
		}
		rep, err := e.play(ctx)
		if ctx.Err() != nil {
			discard(os.RemoveAll(e.dir))
			return r, context.Cause(ctx)
		}
		if err != nil {
			return r, err
		}
		r.Episodes = append(r.Episodes, *rep)
		fmt.Fprintln(cfg.Out, rep.line())
	}
	r.Took = time.Since(r.Began)
	r.sum(cfg, faults)
	return r, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// play runs one episode and checks it. An error means that the evidence could
// not be written, or that the episode's directory could not be removed.
func (e *episode) play(ctx context.Context) (*EpisodeReport, error) {
	begun := time.Now()
	rep := &EpisodeReport{Plan: e.plan}
	var commit uint64
	failure := e.run(ctx, func() error {
		var err error
		commit, err = e.mon.converge(ctx)
		return err
	}, func(h *load.History) {
		e.checkHistory(rep, h, commit)
	})
	rep.Took = time.Since(begun)
	if failure != nil && !errors.Is(failure, errLost) {
		rep.Failure = failure.Error()
	}
	rep.Events = e.events
	sort.Slice(rep.Events, func(i, j int) bool { return rep.Events[i].From < rep.Events[j].From })
	rep.note("recovery: nodes that served again", len(e.recoveries), checker.Recoveries(e.recoveries, recoverWithin))
	if e.families.Name != "" {
		rep.note(e.families.Name, e.families.Checked, nil)
	}
	if e.beside.Name != "" {
		rep.note(e.beside.Name, e.beside.Checked, e.besideBad)
	}
	rep.Violations = append(rep.Violations, e.violations...)
	if e.plan.Control != "" {
		rep.recordCaught()
	}
	keep := e.cfg.Keep || rep.Failure != "" || len(rep.Violations) > 0 && rep.Caught == "" ||
		e.plan.Control != "" && rep.Caught == ""
	if !keep {
		return rep, os.RemoveAll(e.dir)
	}
	rep.Evidence = e.dir
	return rep, e.keep(rep)
}

// checkHistory runs all checkers on the history. The health of the cluster is
// known completely, because the episode has recorded every fault and every
// change of leader.
func (e *episode) checkHistory(rep *EpisodeReport, h *load.History, commit uint64) {
	e.mu.Lock()
	health, steady := e.health, e.steady
	e.mu.Unlock()
	health.Known, health.Slack, steady.Known = true, lateBy, true
	rep.Commands, rep.Errors, rep.Longest = h.Commands, h.Errors, h.Longest
	rep.Failovers = e.mon.failovers
	for _, n := range e.c.all() {
		rep.Installs += n.installs()
	}
	rep.Holds, rep.Samples, rep.Leaderships, rep.Duration = h.Holds, h.Samples, e.mon.leaderships, e.load.Now()
	rep.Verdict = *CheckHistory(h, &health, &steady)
	if commit > 0 {
		e.checkNodes(&rep.Verdict, h, commit)
	}
	for key, history := range rep.bad {
		e.draw(key, history, &health)
	}
}

// lateBy is how late a healthy cluster may release an expired lock on a machine
// that also runs other processes.
const lateBy = 1500 * time.Millisecond

// draw writes porcupine's page about a key that was not linearizable.
func (e *episode) draw(key string, history []*checker.Op, health *checker.Health) {
	name := fmt.Sprintf("key-%s.html", fileName(key))
	f, err := os.Create(filepath.Join(e.dir, name))
	if err != nil {
		e.violation("evidence", "cannot draw %s: %v", key, err)
		return
	}
	if err := errors.Join(checker.Draw(f, history, health, checkLimit), f.Close()); err != nil {
		e.violation("evidence", "cannot draw %s: %v", key, err)
	}
}

// fileName returns a key in a form that can be part of a file name.
func fileName(key string) string {
	b := []byte(key)
	for i, c := range b {
		if c == '/' || c == ':' || c < ' ' {
			b[i] = '-'
		}
	}
	return string(b)
}

// keep writes the files that are needed to understand a violation, in addition
// to the logs and the data of the nodes: the plan, the events and the history.
func (e *episode) keep(rep *EpisodeReport) error {
	var errs []error
	write := func(name string, v any) {
		b, err := json.MarshalIndent(v, "", " ")
		if err == nil {
			err = os.WriteFile(filepath.Join(e.dir, name), b, 0o644)
		}
		errs = append(errs, err)
	}
	write("report.json", rep)
	if e.load != nil {
		write("history.json", e.load.History())
	}
	return errors.Join(errs...)
}

func (r *EpisodeReport) line() string {
	seen, classes := 0, make(map[string]bool)
	for _, ev := range r.Events {
		if ev.Seen != "" {
			seen++
			classes[ev.Class] = true
		}
	}
	what := fmt.Sprintf("episode %d", r.Plan.Number)
	end := "held"
	switch {
	case r.Plan.Control != "":
		what = "control " + r.Plan.Control
		end = "NOT CAUGHT"
		if r.Caught != "" {
			end = "caught by " + r.Caught
		}
	case len(r.Violations) > 0:
		end = fmt.Sprintf("VIOLATED: %v", r.Violations[0])
	case r.Failure != "":
		end = "FAILED: " + r.Failure
	}
	if r.Evidence != "" {
		end += " (" + r.Evidence + ")"
	}
	return fmt.Sprintf("%s: %.0f s, %d commands, %d of %d faults seen (%d classes), %d failovers, %d grants, %s",
		what, r.Took.Seconds(), r.Commands, seen, len(r.Events), len(classes), r.Failovers, r.Grants, end)
}

// sum adds up the results of the episodes.
func (r *Report) sum(cfg Config, faults []fault) {
	r.Points = make(map[string]int)
	tallies := make(map[string]*ClassTally)
	for _, f := range faults {
		t := &ClassTally{Class: f.class}
		if f.needs != nil {
			t.NotRun = f.needs(cfg)
		}
		tallies[f.class] = t
	}
	checks := make(map[string]*Check)
	var order []string
	for i := range r.Episodes {
		ep := &r.Episodes[i]
		if ep.Plan.Control != "" {
			r.Controls++
			r.Caught += b2i(ep.Caught != "")
			continue
		}
		classes := make(map[string]bool)
		for _, ev := range ep.Events {
			t := tallies[ev.Class]
			if t == nil { // the event is not a fault of the plan: the monitor observed it
				r.Stalls += b2i(ev.Class == machineStall)
				continue
			}
			t.Injected++
			if ev.Seen == "" {
				t.NotRun = ev.NotRun
				continue
			}
			for _, p := range ev.Points {
				r.Points[pointOf(p)]++
			}
			t.Seen++
			r.Faults++
			classes[ev.Class] = true
			r.PowerCuts += b2i(find(ev.Class).cutsPower())
		}
		r.Histories += b2i(len(classes) >= 3 && ep.Failure == "")
		r.Failures += b2i(ep.Failure != "")
		r.Failovers += ep.Failovers
		r.Installs += ep.Installs
		r.Commands += ep.Commands
		r.Grants += ep.Grants
		r.Expired += ep.Expired
		r.Violations += len(ep.Violations)
		for _, c := range ep.Checks {
			if checks[c.Name] == nil {
				checks[c.Name] = &Check{Name: c.Name}
				order = append(order, c.Name)
			}
			checks[c.Name].Checked += c.Checked
			checks[c.Name].Bad += c.Bad
			r.Checked += c.Checked
		}
	}
	for _, f := range faults {
		r.Classes = append(r.Classes, *tallies[f.class])
	}
	for _, name := range order {
		r.Checks = append(r.Checks, *checks[name])
	}
}
