package attack

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// LiveConfig says which running cluster to ask. Nothing of it is broken: its
// operator may do that meanwhile.
type LiveConfig struct {
	Load     load.Config   // with addresses, password and prefix
	Duration time.Duration // of the load
}

// liveSlack is how late a cluster of which only the clients' view is known may
// give a lock away: it may be Redis, which looks at its clock when it is asked, or
// one that has just changed its leader.
const liveSlack = 5 * time.Second

// redisTick is by how much a Redis may count a time to live too short: it looks
// at its clock once for many commands, and counts in milliseconds.
const redisTick = 5 * time.Millisecond

// fewest is how many commands a history must have to say anything.
const fewest = 100

// ErrTooLittle says that the cluster answered too few commands to be judged.
var ErrTooLittle = errors.New("too little was answered to judge the cluster by")

// Live runs the load against a running cluster, removes what it has written, and
// judges it. Keys that do not begin with the load's prefix are never touched. The
// error is not about the cluster's promises, but says why nothing can be said of
// them; with ErrTooLittle there is a report all the same.
func Live(ctx context.Context, cfg LiveConfig) (*Report, error) {
	r := &Report{Seed: cfg.Load.Seed, Began: time.Now(), Target: cfg.Load.Addrs}
	l, err := load.Start(ctx, cfg.Load)
	if err != nil {
		return nil, err
	}
	w := &onlooker{load: l, cfg: cfg.Load, leaders: make(map[uint64]string)}
	for until := time.Now().Add(cfg.Duration); time.Now().Before(until) && ctx.Err() == nil; {
		w.look(ctx)
		sleep(ctx, min(250*time.Millisecond, time.Until(until)))
	}
	l.Stop()
	// The end has to be read, and the keys removed, although the user may have had
	// enough by now.
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer stop()
	collected := l.Collect(ending)
	w.look(ending)
	cleaned := l.Cleanup(ending)

	h := l.History()
	health := &oracle.Health{Known: true, Slack: liveSlack, Ill: append(h.Trouble, w.ill...)}
	if l.Foreign() {
		health.Early = redisTick
	}
	ep := EpisodeReport{Commands: h.Commands, Errors: h.Errors, Longest: h.Longest, Took: time.Since(r.Began), Holds: h.Holds, Duration: l.Now(), Failovers: max(len(w.leaders)-1, 0)}
	ep.Verdict = *Judge(h, health)
	compared, bad := oracle.Chains(w.points)
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
		return r, fmt.Errorf("%w: %d commands sent, %d of them slow or refused", ErrTooLittle, h.Commands, len(h.Trouble))
	}
	return r, nil
}

// merge joins spans that overlap, in order of time, without the lead and tail
// that they were given.
func merge(spans []oracle.Span) []oracle.Span {
	var all []oracle.Span
	spans = slices.SortedFunc(slices.Values(spans), func(a, b oracle.Span) int { return cmp.Compare(a.From, b.From) })
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

// onlooker asks the nodes of a running cluster for their states, if they have
// such: a Redis has not.
type onlooker struct {
	load    *load.Load
	cfg     load.Config
	leaders map[uint64]string
	points  []oracle.Chain
	ill     []oracle.Span
}

func (w *onlooker) look(ctx context.Context) {
	for _, addr := range w.cfg.Addrs {
		c, err := load.Dial(ctx, addr, w.cfg.Login, time.Second)
		if err != nil {
			continue // the clients notice
		}
		v, err := c.Do("HOLDFAST", "STATUS", "LOCAL")
		discard(c.Close())
		var all []state
		if err != nil || v.Err != "" || json.Unmarshal([]byte(v.Text), &all) != nil || len(all) != 1 {
			continue
		}
		s, now := all[0], w.load.Now()
		if s.StateHash != "" {
			w.points = append(w.points, oracle.Chain{Node: s.ID, At: now, Index: s.StateIndex, Hash: s.StateHash})
		}
		if s.Role == "leader" && w.leaders[s.Term] == "" {
			w.leaders[s.Term] = s.ID
			if len(w.leaders) > 1 {
				w.ill = append(w.ill, oracle.Span{From: now - memory - time.Second, To: now + settle})
			}
		}
	}
}
