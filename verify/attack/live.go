package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// LiveConfig configures a check of a running cluster. The check injects no
// faults. The operator may inject faults while it runs.
type LiveConfig struct {
	Load     load.Config   // the load, with addresses, password and prefix
	Duration time.Duration // how long the load runs
	// Progress is called about four times a second while the load runs, and when
	// it has ended. It may be nil.
	Progress func(Progress)
}

// Progress describes how far the check of a running cluster is.
type Progress struct {
	Took     time.Duration // since the start of the load
	Commands int           // number of commands sent so far
	Leader   string        // last node that claimed to lead, "" if none has
	Checking bool          // the load has ended, and its history is being checked
}

// liveSlack is how late a cluster may release an expired lock in a check that
// knows only what clients observe. The cluster may be a Redis, which expires a
// key only when a command uses it, or it may just have changed its leader.
const liveSlack = 5 * time.Second

// redisTick is how much too early a Redis may expire a key. Redis reads its
// clock once for many commands, and its clock has a resolution of one
// millisecond.
const redisTick = 5 * time.Millisecond

// fewest is the smallest number of commands from which a verdict is possible.
const fewest = 100

// ErrTooLittle reports that the cluster answered too few commands for a
// verdict.
var ErrTooLittle = errors.New("too few commands were answered for a verdict")

// Live runs the load against a running cluster, removes the keys that the load
// has written, and checks the history. It never touches keys that do not begin
// with the prefix of the load. A returned error does not mean that the cluster
// broke a guarantee: it is the reason why no verdict is possible. Live returns
// a report even with an error, unless the load could not be started.
func Live(ctx context.Context, cfg LiveConfig) (*Report, error) {
	r := &Report{Seed: cfg.Load.Seed, Began: time.Now(), Target: cfg.Load.Addrs}
	l, err := load.Start(ctx, cfg.Load)
	if err != nil {
		return nil, err
	}
	w := &observer{load: l, cfg: cfg.Load, leaders: make(map[uint64]string)}
	for until := time.Now().Add(cfg.Duration); time.Now().Before(until) && ctx.Err() == nil; {
		w.look(ctx)
		cfg.report(w, false)
		load.Sleep(ctx, min(250*time.Millisecond, time.Until(until)))
	}
	l.Stop()
	cfg.report(w, true)
	// Read the final state and remove the keys even if the user has canceled
	// ctx.
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	collected := l.Collect(ending)
	w.look(ending)
	cleaned := l.Cleanup(ending)

	h := l.History()
	health := &checker.Health{Known: true, Slack: liveSlack, Ill: append(h.Trouble, w.ill...)}
	if l.Foreign() {
		health.Early = redisTick
	}
	ep := EpisodeReport{Commands: h.Commands, Errors: h.Errors, Longest: h.Longest, Took: time.Since(r.Began),
		Holds: h.Holds, Samples: h.Samples, Leaderships: w.leaderships, Duration: l.Now(),
		Failovers: max(len(w.leaders)-1, 0)}
	ep.Verdict = *CheckHistory(h, health, health)
	compared, bad := checker.Chains(w.points)
	ep.note("replica equality: states", compared, bad)
	for _, s := range merge(h.Trouble) {
		ep.Events = append(ep.Events, Event{Class: "slow or refused", From: s.From, To: s.To, Seen: "by clients"})
	}
	if err := errors.Join(collected, cleaned); err != nil {
		ep.Failure = err.Error()
	}
	r.Episodes = []EpisodeReport{ep}
	r.Took = time.Since(r.Began)
	r.sum(Config{}, nil)
	switch answered := h.Commands - len(h.Trouble); {
	case r.Violations > 0:
		return r, nil
	case ep.Failure != "":
		return r, errors.New(ep.Failure)
	case answered < fewest:
		return r, fmt.Errorf("%w: %d commands sent, and %d requests slow or failed", ErrTooLittle,
			h.Commands, len(h.Trouble))
	}
	return r, nil
}

// report calls Progress.
func (cfg *LiveConfig) report(w *observer, checking bool) {
	if cfg.Progress == nil {
		return
	}
	p := Progress{Took: w.load.Now(), Commands: w.load.Count(), Checking: checking}
	if n := len(w.leaderships); n > 0 {
		p.Leader = w.leaderships[n-1].Node
	}
	cfg.Progress(p)
}

// merge removes the lead and the tail that the load added to each span. It
// joins spans that overlap or are at most 100 ms apart, and sorts the spans by
// time.
func merge(spans []checker.Span) []checker.Span {
	var all []checker.Span
	spans = slices.SortedFunc(slices.Values(spans), func(a, b checker.Span) int { return cmp.Compare(a.From, b.From) })
	for _, s := range spans {
		s.From = max(s.From+load.TroubleLead, 0)
		s.To -= load.TroubleTail
		if n := len(all); n > 0 && s.From <= all[n-1].To+100*time.Millisecond {
			all[n-1].From, all[n-1].To = min(all[n-1].From, s.From), max(all[n-1].To, s.To)
			continue
		}
		all = append(all, s)
	}
	return all
}

// observer asks the nodes of a running cluster for their states. A Redis has no
// such states and is skipped.
type observer struct {
	load        *load.Load
	cfg         load.Config
	leaders     map[uint64]string
	points      []checker.Chain
	ill         []checker.Span
	leaderships []Leadership
}

func (w *observer) look(ctx context.Context) {
	for _, addr := range w.cfg.Addrs {
		c, err := load.Dial(ctx, addr, w.cfg.Login, time.Second)
		if err != nil {
			continue // the clients notice a node that does not answer
		}
		v, err := c.Do("HOLDFAST", "STATUS", "LOCAL")
		discard(c.Close())
		var all []state
		if err != nil || v.Err != "" || json.Unmarshal([]byte(v.Text), &all) != nil || len(all) != 1 {
			continue
		}
		s, now := all[0], w.load.Now()
		if s.StateHash != "" {
			w.points = append(w.points, checker.Chain{Node: s.ID, At: now, Index: s.StateIndex, Hash: s.StateHash})
		}
		if s.Role == "leader" {
			w.leaderships = addLeadership(w.leaderships, s.ID, s.Term, now)
		}
		if s.Role == "leader" && w.leaders[s.Term] == "" {
			w.leaders[s.Term] = s.ID
			if len(w.leaders) > 1 {
				w.ill = append(w.ill, checker.Span{From: now - lostTime - time.Second, To: now + settle})
			}
		}
	}
}
