package sim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLateSnapshot checks the fix of a bug that the simulator found with seed 18
// and a length of 60 s, by a replay of old requests. raft installed an old
// snapshot a second time. After that, the follower answered requests for entries
// that it had deleted, and its process ended with a panic.
func TestLateSnapshot(t *testing.T) {
	r := inBubble(t, &Schedule{Seed: 1, Scenario: lateSnapshotScenario})
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	if r.Seen["replay of old requests"] == 0 {
		t.Error("no request was played again")
	}
}

// TestSwappedAddresses starts two members with each other's address within one
// term. They must not both get the vote of the third member. hashicorp/raft
// stores the address of the candidate in a vote.
func TestSwappedAddresses(t *testing.T) {
	r := inBubble(t, &Schedule{Seed: 1, Scenario: swappedScenario})
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	if r.Seen[swappedScenario] == 0 {
		t.Error("n2 was not elected before the addresses were exchanged")
	}
}

// TestMixedRequests checks that a deposed leader does not send one request with
// entries from its own log and from the log of the next leader.
func TestMixedRequests(t *testing.T) {
	r := inBubble(t, &Schedule{Seed: 1, Scenario: mixedScenario})
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	if r.Seen[mixedScenario] == 0 {
		t.Error("the log was not replaced while an entry was read")
	}
}

// TestLaggingMember runs the faults to which seed 650 was reduced. They showed
// a bug: a removed node could not join again, because the member that it asked
// did not yet know of the removal.
func TestLaggingMember(t *testing.T) {
	plan := Plan(650, time.Minute)
	plan.Faults = slices.DeleteFunc(plan.Faults, func(f Fault) bool {
		return f.Kind != "removal" &&
			f.Kind != "one-way loss out"
	})
	for range 3 { // the scheduler's choices differ each time
		r := inBubble(t, plan)
		for _, bad := range r.Violations {
			t.Error(bad)
		}
		if r.Seen["removal"] == 0 {
			t.Error("no node was removed")
		}
	}
}

// TestReturningMember checks that a member gets the missing entries within a
// second of its return, even after a long absence. After each failed attempt to
// send entries, hashicorp/raft doubles its pause, up to ten seconds. Before the
// fix, the return of the member did not end the pause.
func TestReturningMember(t *testing.T) {
	for _, resets := range []bool{true, false} {
		for _, away := range []time.Duration{time.Second, 10 * time.Second, 20 * time.Second, 45 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, 3)
				for _, id := range w.ids() {
					w.revive(id)
				}
				if w.until("all nodes at one index", w.level) {
					gone := without(w.ids(), w.leader())[0]
					w.crash(gone, resets)
					<-time.After(away)
					w.revive(gone)
					begun := w.elapsed()
					if w.until("the member to have all entries", w.level) {
						if took := w.elapsed() - begun; took > time.Second {
							t.Errorf("away for %v (resets: %v): has all entries only after %v", away, resets, took)
						}
					}
				}
				w.look()
				w.end()
				for _, bad := range w.audit.violations() {
					t.Error(bad)
				}
			})
		}
	}
}
