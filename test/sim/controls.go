package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Control is a mistake and the schedules among which it has to be found.
type Control struct {
	Bug   string
	Plans []*Schedule
}

// Controls lists all mistakes.
func Controls() []Control {
	var all []Control
	for _, bug := range seeded.All() {
		all = append(all, Control{bug, plansFor(bug)})
	}
	return all
}

// plansFor returns schedules that are made for a mistake: what it needs to be
// seen comes often in them. Drawn ones would find it too, but later.
func plansFor(bug string) []*Schedule {
	var plans []*Schedule
	for seed := uint64(1); seed <= 8; seed++ {
		p := planFor(bug, seed)
		for i := range p.Faults {
			p.Faults[i].Seed = seed<<16 + uint64(i)
		}
		slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
		plans = append(plans, p)
	}
	return plans
}

// drill is a schedule that does the same again and again: faults, whose times
// count from the beginning of each round.
func drill(seed uint64, rounds int, every time.Duration, faults ...Fault) *Schedule {
	p := &Schedule{Seed: seed, Nodes: 3, Clients: 8, Length: settle + time.Duration(rounds)*every + quiet}
	for i := range rounds {
		for _, f := range faults {
			f.At += settle + time.Duration(i)*every
			p.Faults = append(p.Faults, f)
		}
	}
	return p
}

// queueDrill lets the clients of a schedule use queues, and little else. There are fewer
// elements than clients who wait for them.
func queueDrill(p *Schedule) *Schedule {
	p.Work, p.Clients, p.Think = []string{"queues"}, 2, 700*ms
	return p
}

func planFor(bug string, seed uint64) *Schedule {
	const second = time.Second
	leader, follower := "leader", "follower"
	switch bug {
	case seeded.SupersededRuns:
		// While an entry is held up, groups of two starts of a node come for the next.
		// What then waits shows in a snapshot, which the next start has to read.
		p := drill(seed, 6, 6*second,
			Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: quickRestart, At: 1500 * ms, For: 60 * ms, Who: "n2", Much: int64(1200 * ms)},
			Fault{Kind: "snapshot", At: 3300 * ms, Who: leader},
			Fault{Kind: "snapshot", At: 3300 * ms, Who: "n3"},
			Fault{Kind: "power failure of all", At: 4500 * ms, For: 500 * ms})
		p.Work = []string{"queues"}
		return p
	case seeded.UnblockRefused:
		// Elements are given to clients of a node that is cut off. Their time is over,
		// and nobody has told them, before it is back.
		return queueDrill(drill(seed, 6, 8*second, Fault{Kind: "isolation", For: 6 * second, Who: follower}))
	case seeded.HoldForgets:
		// The same, and the leader gives the node up before it is back, while they
		// still wait.
		return queueDrill(drill(seed, 10, 5*second, Fault{Kind: "isolation", For: 2800 * ms, Who: follower}))
	case seeded.OwnLate:
		p := drill(seed, 4, 4*second, Fault{Kind: "kill", For: second, Who: follower})
		p.Work = []string{"tracking"}
		return p
	case seeded.LeaderRaises:
		p := drill(seed, 6, 4*second, Fault{Kind: "transfer", Who: "n1"}, Fault{Kind: "transfer", At: 2 * second, Who: "n2"})
		p.Features = map[string]int{"n1": fsm.FeatureMend - 1, "n3": fsm.FeatureMend - 1}
		return p
	case seeded.SkippedFsync:
		return &Schedule{Seed: seed, Scenario: powerCutScenario}
	case seeded.NoTermStart:
		// Disks so slow that the first entry of a term takes its time, and reads that do
		// not wait for it. The last entry of the term before is acknowledged, and the
		// others do not hear of that.
		return drill(seed, 10, 3500*ms,
			Fault{Kind: "slow disk", For: 3499 * ms, Who: "all", Much: int64(100 * ms)},
			Fault{Kind: "one-way loss out", At: 1750 * ms, For: 300 * ms, Who: leader},
			Fault{Kind: "kill", At: 2 * second, For: second, Who: leader})
	case seeded.VerifyLeader:
		// Acknowledgements are kept on their way while another leader comes, on a
		// node that does not give up for long.
		p := drill(seed, 6, 6*second,
			Fault{Kind: "transfer", Who: "n2"},
			Fault{Kind: "slow answers", At: 1500 * ms, For: 400 * ms, Who: "n2", Much: int64(1400 * ms)},
			Fault{Kind: "isolation", At: 1900 * ms, For: 2800 * ms, Who: "n2"})
		p.Sluggish = map[string]int{"n2": 30}
		return p
	case seeded.OwnDisk:
		// What the leader has acknowledged with one of the others, and not written, goes
		// with its power; the third, who was away, and it form the next majority.
		return drill(seed, 4, 6*second,
			Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: "isolation", At: 1500 * ms, For: 1000 * ms, Who: "n3"},
			Fault{Kind: "slow disk", At: 1900 * ms, For: 600 * ms, Who: "n1", Much: int64(400 * ms)},
			Fault{Kind: "kill", At: 2400 * ms, For: 200 * ms, Who: "n1"},
			Fault{Kind: "isolation", At: 2401 * ms, For: 2500 * ms, Who: "n2"})
	case seeded.UnknownRefused:
		// Requests get through and their replies do not, for longer than a client
		// is kept waiting.
		return drill(seed, 2, 15*second, Fault{Kind: "one-way loss in", For: 13 * second, Who: follower})
	case seeded.OldSnapshot:
		return &Schedule{Seed: seed, Scenario: lateSnapshotScenario}
	case seeded.DoubleApply:
		// Requests wait in a connection that is given up, and come while those that
		// were sent again are under way, for as long as the disks need.
		return drill(seed, 4, 8*second,
			Fault{Kind: "slow disk", For: 7999 * ms, Who: "all", Much: int64(20 * ms)},
			Fault{Kind: "one-way loss out", For: 5500 * ms, Who: follower})
	case seeded.WallExpiry:
		return drill(seed, 8, 3*second, Fault{Kind: "clock jump", At: second, For: second, Who: leader, Much: int64(5 * second)})
	case seeded.SnapshotClock:
		return drill(seed, 4, 6*second,
			Fault{Kind: "snapshot", At: 2 * second, Who: leader},
			Fault{Kind: "power failure of all", At: 2*second + 10*ms, For: second})
	case seeded.LostSessions, seeded.TokenReset:
		return drill(seed, 3, 9*second, Fault{Kind: "kill", For: 7 * second, Who: follower})
	case seeded.LateExpiry:
		// Long times of health, with which alone a key has to be gone.
		return drill(seed, 2, 12*second, Fault{Kind: "kill", For: second, Who: follower})
	case seeded.EarlyExpiry:
		return drill(seed, 8, 3*second, Fault{Kind: "kill", For: second, Who: leader})
	case seeded.StaleRead:
		return drill(seed, 6, 4*second, Fault{Kind: "isolation", For: 3 * second, Who: "leader"})
	}
	return drill(seed, 6, 4*second, Fault{Kind: "isolation", For: second, Who: "leader"}, Fault{Kind: "kill", At: 2 * second, For: second, Who: follower})
}
