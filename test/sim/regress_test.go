package sim

import "testing"

// TestLateSnapshot was found by seed 18 of 60 s, by a replay of old requests:
// raft installed a snapshot once more, the follower answered for entries that it
// had deleted, and its process ended with a panic.
func TestLateSnapshot(t *testing.T) {
	r := inBubble(t, &Schedule{Seed: 1, Scenario: lateSnapshotScenario})
	for _, bad := range r.Violations {
		t.Error(bad)
	}
	if r.Seen["replay of old requests"] == 0 {
		t.Error("no request was played again")
	}
}
