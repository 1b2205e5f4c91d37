package attack

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// control is a negative control: an episode that breaks a guarantee on purpose,
// by means that the released binary offers. If the checkers do not find the
// violation, the absence of violations in other episodes proves nothing. The
// controls of the simulator cover bugs that must be injected into the program
// itself.
type control struct {
	what   string
	load   func(*load.Config)
	inject func(context.Context, *episode) error
	finds  []string // names of checks; at least one must find the violation
}

var controls = map[string]control{
	"stale-reads": {
		what:   "clients that allow stale reads (READONLY), at a node that is cut off",
		load:   func(c *load.Config) { c.First = []string{"READONLY"} },
		inject: staleReads,
		finds:  []string{"linearizable", "log replay"},
	},
	"fast-clock": {
		what:   "all nodes' clocks run at four times their speed, so that locks expire early",
		load:   func(c *load.Config) {},
		inject: fastClock,
		finds:  []string{"mutual exclusion", "lock not lost", "linearizable"},
	},
	"deleted-locks": {
		what:   "a client deletes the locks of other clients",
		load:   func(c *load.Config) {},
		inject: deletedLocks,
		finds:  []string{"mutual exclusion", "lock not lost", "linearizable"},
	},
	"overwritten-locks": {
		what:   "a client overwrites locks that others wait for, and so gets them first",
		load:   func(c *load.Config) {},
		inject: overwrittenLocks,
		finds:  []string{"lock order"},
	},
}

// controlPlans returns the plans of all controls.
func controlPlans(seed uint64) []Plan {
	var all []Plan
	for name := range controls {
		all = append(all, Plan{Seed: seed, Nodes: 3, LogStore: "wal", Snapshot: 128 << 20,
			Trailing: 16 << 20, Control: name})
	}
	slices.SortFunc(all, func(a, b Plan) int { return b2i(a.Control > b.Control) - b2i(a.Control < b.Control) })
	return all
}

// recordCaught sets Caught to the name of an expected check that reported a
// violation, if there is one. In the episode of a negative control, violations
// are expected, so Report.sum does not count them.
func (r *EpisodeReport) recordCaught() {
	for _, v := range r.Violations {
		if slices.Contains(controls[r.Plan.Control].finds, v.Check) {
			r.Caught = v.Check
			return
		}
	}
}

func staleReads(ctx context.Context, e *episode) error {
	if err := e.traffic(ctx, e.cfg.Traffic); err != nil {
		return err
	}
	s := &injection{episode: e, rng: rand.New(rand.NewPCG(e.plan.Seed, 4))}
	for range 2 {
		if _, err := isolateFollower(ctx, s); err != nil {
			return err
		}
	}
	return e.heal(ctx)
}

func fastClock(ctx context.Context, e *episode) error {
	for _, n := range e.c.nodes {
		if err := n.setClocks(0, 4); err != nil {
			return err
		}
	}
	if err := e.traffic(ctx, 4*e.cfg.Traffic); err != nil {
		return err
	}
	load.Sleep(ctx, 2*time.Second)
	return e.heal(ctx)
}

// deletedLocks deletes locks that other clients own.
func deletedLocks(ctx context.Context, e *episode) error {
	if err := e.traffic(ctx, e.cfg.Traffic); err != nil {
		return err
	}
	if err := e.load.Sabotage(ctx, 3*time.Second); err != nil {
		return err
	}
	return e.heal(ctx)
}

// overwrittenLocks overwrites locks that have waiters, so that a client that
// did not wait becomes the owner.
func overwrittenLocks(ctx context.Context, e *episode) error {
	if err := e.traffic(ctx, e.cfg.Traffic); err != nil {
		return err
	}
	if err := e.load.Overwrite(ctx, 12*time.Second); err != nil {
		return err
	}
	return e.heal(ctx)
}
