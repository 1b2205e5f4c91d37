package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// drills lists the injected bugs for which planFor has schedules. Each of them
// is a patch in test/controls.
var drills = []string{
	"broken-promise", "crossed-replies", "double-apply", "early-expiry", "forgotten-promise", "forgotten-waiter",
	"hold-forgets", "ignored-delay",
	"kept-grant", "late-expiry", "leader-raises", "lost-sessions", "mixed-request", "no-term-start", "no-watch",
	"old-snapshot", "own-disk",
	"own-late", "promote-anyway", "queue-jumper", "removal-unchecked", "skipped-fsync",
	"slow-lease-clock", "snapshot-clock",
	"stale-read", "superseded-runs", "token-reset", "transfer-flag", "two-votes",
	"unblock-as-refused", "unknown-as-refused", "verify-leader", "wall-expiry",
}

// Drills returns the names of the injected bugs that have schedules.
func Drills() []string { return slices.Clone(drills) }

// Drill returns schedules for an injected bug, or nil if the bug is not in
// Drills. These schedules often create the conditions under which the bug
// shows. Random schedules would find the bug too, but later.
func Drill(bug string) []*Schedule {
	if !slices.Contains(drills, bug) {
		return nil
	}
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

// drill returns a schedule that repeats the same faults. The times of the
// faults count from the beginning of each repetition.
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

// queueDrill makes the clients of a schedule use queues, and little else. More
// clients wait for elements than the queues have elements.
func queueDrill(p *Schedule) *Schedule {
	p.Work, p.Clients, p.Think = []string{"queues"}, 2, 700*ms
	return p
}

// lockDrill makes the clients of a schedule use locks, and little else.
func lockDrill(p *Schedule) *Schedule {
	p.Work, p.Clients, p.Think = []string{lockWork}, 2, 400*ms
	return p
}

// scenarioFor maps a bug to the scenario that finds it.
var scenarioFor = map[string]string{
	"skipped-fsync": powerCutScenario,
	"mixed-request": mixedScenario,
	"two-votes":     swappedScenario,
	"old-snapshot":  lateSnapshotScenario,
}

// planFor returns a schedule in which the given bug is likely to show. The seed
// determines the random choices of the history.
func planFor(bug string, seed uint64) *Schedule {
	const second = time.Second
	leader, follower := "leader", "follower"
	if scenario := scenarioFor[bug]; scenario != "" {
		return &Schedule{Seed: seed, Scenario: scenario}
	}
	switch bug {
	case "superseded-runs":
		// While one entry is delayed, groups of two starts of a node arrive for
		// the next entry. The snapshot then contains waiters of both starts,
		// and the next start of a node has to read the snapshot.
		p := drill(seed, 6, 6*second,
			Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: quickRestart, At: 1500 * ms, For: 60 * ms, Who: "n2", Much: int64(1200 * ms)},
			Fault{Kind: "snapshot", At: 3300 * ms, Who: leader},
			Fault{Kind: "snapshot", At: 3300 * ms, Who: "n3"},
			Fault{Kind: "power failure of all", At: 4500 * ms, For: 500 * ms})
		p.Work = []string{"queues"}
		return p
	case "unblock-as-refused":
		// The leader gives elements to waiters of a node that is cut off. The
		// timeouts of the waiters end before the node is back, and before their
		// clients get the elements.
		return queueDrill(drill(seed, 6, 8*second, Fault{Kind: "isolation", For: 6 * second, Who: follower}))
	case "hold-forgets":
		// A node is cut off for longer than WaiterGrace, so the leader removes
		// its waiters. When the node is back, its clients still wait.
		return queueDrill(drill(seed, 10, 5*second, Fault{Kind: "isolation", For: 2800 * ms, Who: follower}))
	case "own-late":
		p := drill(seed, 4, 4*second, Fault{Kind: "kill", For: second, Who: follower})
		p.Work = []string{"tracking"}
		return p
	case "leader-raises":
		p := drill(seed, 6, 4*second, Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: "transfer", At: 2 * second, Who: "n2"})
		p.Features = map[string]int{"n1": fsm.FeatureMend - 1, "n3": fsm.FeatureMend - 1}
		return p
	case "transfer-flag":
		return drill(seed, 1, 10*second, Fault{Kind: transferToDead, At: second, For: 7 * second, Who: follower})
	case "removal-unchecked":
		return drill(seed, 2, 15*second, Fault{Kind: removalTooMany, At: second, For: second})
	case "promote-anyway":
		return drill(seed, 4, 8*second,
			Fault{Kind: removalOfJoining, At: second, For: second, Much: int64(80 * ms)})
	case "no-term-start":
		// The disks are so slow that the first entry of a term takes long.
		// Meanwhile, clients send reads. With the bug, these reads do not wait
		// for the entry. The last entry of the previous term is acknowledged,
		// but the other nodes do not learn that it is committed.
		return drill(seed, 10, 3500*ms,
			Fault{Kind: "slow disk", For: 3499 * ms, Who: "all", Much: int64(100 * ms)},
			Fault{Kind: "one-way loss out", At: 1750 * ms, For: 300 * ms, Who: leader},
			Fault{Kind: "kill", At: 2 * second, For: second, Who: leader})
	case "verify-leader":
		// The network delays acknowledgements until another node leads. They
		// then reach the former leader, which does not step down for a long
		// time.
		p := drill(seed, 6, 6*second,
			Fault{Kind: "transfer", Who: "n2"},
			Fault{Kind: "slow answers", At: 1500 * ms, For: 400 * ms, Who: "n2", Much: int64(1400 * ms)},
			Fault{Kind: "isolation", At: 1900 * ms, For: 2800 * ms, Who: "n2"})
		p.Sluggish = map[string]int{"n2": 30}
		return p
	case "own-disk":
		// The leader acknowledges entries that one follower has stored and that
		// the leader itself has not written to its disk. When the leader is
		// killed, it loses them. The leader and the third node, which was cut
		// off, then form the next majority.
		return drill(seed, 4, 6*second,
			Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: "isolation", At: 1500 * ms, For: 1000 * ms, Who: "n3"},
			Fault{Kind: "slow disk", At: 1900 * ms, For: 600 * ms, Who: "n1", Much: int64(400 * ms)},
			Fault{Kind: "kill", At: 2400 * ms, For: 200 * ms, Who: "n1"},
			Fault{Kind: "isolation", At: 2401 * ms, For: 2500 * ms, Who: "n2"})
	}
	return planForState(bug, seed)
}

// planForState returns the schedules of planFor for the bugs that have no case
// there. Bugs without a case in either function get the schedule at the end.
func planForState(bug string, seed uint64) *Schedule {
	const second = time.Second
	leader, follower := "leader", "follower"
	switch bug {
	case "unknown-as-refused":
		// For longer than the follower waits for replies (ResolveWait), its
		// requests reach the leader, but the replies do not reach the follower.
		return drill(seed, 2, 15*second, Fault{Kind: "one-way loss in", For: 13 * second, Who: follower})
	case "double-apply":
		// Requests wait in a connection that the forwarder gives up. They
		// arrive while the leader executes the same groups, which the forwarder
		// has sent again. The slow disks make this execution take long.
		return drill(seed, 4, 8*second,
			Fault{Kind: "slow disk", For: 7999 * ms, Who: "all", Much: int64(20 * ms)},
			Fault{Kind: "one-way loss out", For: 5500 * ms, Who: follower})
	case "wall-expiry":
		return drill(seed, 8, 3*second, Fault{Kind: "clock jump", At: second, For: second, Who: leader,
			Much: int64(5 * second)})
	case "snapshot-clock":
		return drill(seed, 4, 6*second,
			Fault{Kind: "snapshot", At: 2 * second, Who: leader},
			Fault{Kind: "power failure of all", At: 2*second + 10*ms, For: second})
	case "lost-sessions", "token-reset":
		return drill(seed, 3, 9*second, Fault{Kind: "kill", For: 7 * second, Who: follower})
	case "queue-jumper":
		return lockDrill(drill(seed, 4, 5*second, Fault{Kind: "kill", At: 3 * second, For: second, Who: follower}))
	case "ignored-delay":
		p := lockDrill(drill(seed, 4, 5*second, Fault{Kind: "kill", At: 3 * second, For: second, Who: leader}))
		p.Lease, p.LockDelay = second, 800*ms
		return p
	case "forgotten-waiter":
		// A node starts from a snapshot that it wrote while clients of the
		// other nodes waited, and then leads.
		p := lockDrill(drill(seed, 5, 5*second,
			Fault{Kind: "transfer", Who: "n1"},
			Fault{Kind: "snapshot", At: 1500 * ms, Who: "n2"},
			Fault{Kind: "kill", At: 1600 * ms, For: 100 * ms, Who: "n2"},
			Fault{Kind: "transfer", At: 2000 * ms, Who: "n2"}))
		return p
	case "kept-grant":
		// A node loses its power. Before the leader notices this, it gives locks
		// to waiters of that node.
		p := lockDrill(drill(seed, 6, 12*second,
			Fault{Kind: "power failure", At: 2 * second, For: 8 * second, Who: follower}))
		p.Lease = 9 * second
		return p
	case "late-expiry":
		// A key must expire on time only while the cluster is healthy,
		// so the healthy periods are long.
		return drill(seed, 2, 12*second, Fault{Kind: "kill", For: second, Who: follower})
	case "broken-promise", "forgotten-promise", "slow-lease-clock":
		return leaseDrill(bug, seed)
	case "early-expiry":
		return drill(seed, 8, 3*second, Fault{Kind: "kill", For: second, Who: leader})
	case "stale-read":
		return drill(seed, 6, 4*second, Fault{Kind: "isolation", For: 3 * second, Who: "leader"})
	}
	return drill(seed, 6, 4*second, Fault{Kind: "isolation", For: second, Who: "leader"},
		Fault{Kind: "kill", At: 2 * second, For: second, Who: follower})
}

// leaseDrill returns the schedule of a seed for a bug that lets another leader
// be elected while the old leader, n2, has a lease. The timers of n2 are so
// slow that n2 does not step down while it is cut off, and its lease outlasts
// the election of another leader. A ReadIndex round asks only one of n1 and n3
// for a promise: the one that answered last. The schedule does not determine
// which one that is, so a bug that breaks promises must affect both.
func leaseDrill(bug string, seed uint64) *Schedule {
	const second = time.Second
	faults := []Fault{
		{Kind: "transfer", Who: "n2"},
		{Kind: "isolation", At: 3 * second, For: 4500 * ms, Who: "n2"},
	}
	lease := 100 * ms
	switch bug {
	case "forgotten-promise":
		// A node that has just started may take up to a second to campaign. So
		// the lease is longer: 5.4 s on n2, whose Sluggish factor is 30.
		lease = 180 * ms
		faults = append(faults,
			Fault{Kind: "kill", At: 3 * second, For: 50 * ms, Who: "n1"},
			Fault{Kind: "kill", At: 3 * second, For: 50 * ms, Who: "n3"})
	case "slow-lease-clock":
		lease = 20 * ms
		faults = append(faults, Fault{Kind: "clock drift", At: 2900 * ms, For: 4700 * ms, Who: "n2", Much: 100_000})
	}
	p := drill(seed, 8, 9*second, faults...)
	p.Sluggish = map[string]int{"n2": 30}
	p.LeaderLease, p.Think = lease, 100*ms
	return p
}
