package attack

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
)

// A control is an episode in which a promise is broken on purpose, by means that
// the shipped binary has: if the oracles do not notice, their silence in the
// other episodes proves nothing. Bugs that have to be built into the program are
// the simulator's controls.
type control struct {
	what   string
	load   func(*load.Config)
	strike func(context.Context, *episode) error
	finds  []string // one of these checks has to find it
}

var controls = map[string]control{
	"stale-reads": {
		what:   "clients that allow stale reads (READONLY), at a node that is cut off",
		load:   func(c *load.Config) { c.First = []string{"READONLY"} },
		strike: staleReads,
		finds:  []string{"linearizable", "log replay"},
	},
	"fast-clock": {
		what:   "all nodes' clocks run at four times their speed, so that locks run out early",
		load:   func(c *load.Config) {},
		strike: fastClock,
		finds:  []string{"mutual exclusion", "lock not lost", "linearizable"},
	},
	"deleted-locks": {
		what:   "somebody deletes the locks of others",
		load:   func(c *load.Config) {},
		strike: deletedLocks,
		finds:  []string{"mutual exclusion", "lock not lost", "linearizable"},
	},
}

// controlPlans are the plans of all controls.
func controlPlans(seed uint64) []Plan {
	var all []Plan
	for name := range controls {
		all = append(all, Plan{Seed: seed, Nodes: 3, LogStore: "wal", Snapshot: 128 << 20, Trailing: 16 << 20, Control: name})
	}
	slices.SortFunc(all, func(a, b Plan) int { return b2i(a.Control > b.Control) - b2i(a.Control < b.Control) })
	return all
}

// controlled says what found a control's fault, and forgets the violations: they
// are what was wanted.
func (r *EpisodeReport) controlled() {
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
	s := &strike{episode: e, rng: rand.New(rand.NewPCG(e.plan.Seed, 4))}
	for range 2 {
		if _, err := isolateFollower(ctx, s); err != nil {
			return err
		}
	}
	return e.heal(ctx)
}

func fastClock(ctx context.Context, e *episode) error {
	for _, n := range e.c.nodes {
		if err := n.lie(0, 4); err != nil {
			return err
		}
	}
	if err := e.traffic(ctx, 4*e.cfg.Traffic); err != nil {
		return err
	}
	sleep(ctx, 2*time.Second)
	return e.heal(ctx)
}

// deletedLocks deletes locks behind the backs of their owners.
func deletedLocks(ctx context.Context, e *episode) error {
	if err := e.traffic(ctx, e.cfg.Traffic); err != nil {
		return err
	}
	if err := e.load.Sabotage(ctx, 3*time.Second); err != nil {
		return err
	}
	return e.heal(ctx)
}
