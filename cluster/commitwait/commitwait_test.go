package commitwait

import (
	"testing"
	"time"
)

// entry proposes an entry of the given number of groups and applies it. waiting
// is the number of groups that wait for the next entry at that time.
func (t *Wait) entry(groups, waiting int) {
	t.Proposed(groups)
	t.Applied(waiting, 0, time.Millisecond)
}

func TestWait_Halves(t *testing.T) {
	var u Wait
	if u.Begin(25) != 0 {
		t.Error("Begin returns a wait before the first entry, want none")
	}
	u.entry(25, 25) // fifty clients, half of which have been answered
	if got := u.Begin(25); got != 2*time.Millisecond {
		t.Fatalf("waits %v for the other half, want twice as long as the entry took", got)
	}
	if u.enough != 47 {
		t.Errorf("waits for %d groups of 50, want 47", u.enough)
	}
	u.Waited(47)
	u.entry(47, 3)
	if got := u.Begin(48); got != 0 {
		t.Errorf("waits %v when 48 of 50 groups are there, want 0", got)
	}
}

func TestWait_Alone(t *testing.T) {
	var u Wait
	for range 3 {
		if got := u.Begin(1); got != 0 {
			t.Fatalf("the only client waits %v, want 0", got)
		}
		u.entry(1, 0)
	}
}

func TestWait_SlowEntry(t *testing.T) {
	var u Wait
	u.Proposed(4)
	u.Applied(4, 0, time.Minute)
	if got := u.Begin(4); got != maxCommitWait {
		t.Errorf("waits %v, want %v at most", got, maxCommitWait)
	}
}

// If the last entry took no time, Begin starts no wait. It also leaves
// Wait.enough at 0, so that any group wakes the proposer, no matter how many
// were expected.
func TestWait_NotTaken(t *testing.T) {
	var u Wait
	u.Proposed(4)
	u.Applied(4, 0, 0)
	if u.Begin(4) != 0 || u.enough != 0 {
		t.Errorf("after an entry that took no time, the proposer waits for %d groups, want no wait", u.enough)
	}
}

// If clients send at their own times, and not because they were answered, the
// proposer waits for them less and less often.
func TestWait_InVain(t *testing.T) {
	var u Wait
	waits := 0
	for range 10_000 {
		if u.Begin(5) > 0 {
			waits++
			u.Waited(6)
		}
		u.entry(6, 5)
	}
	if most := maxMissed + 10_000>>maxMissed + 1; waits > most || waits < 20 {
		t.Errorf("%d waits without the expected groups, want 20 to %d", waits, most)
	}
	u.skip = 0
	if u.Begin(5) == 0 {
		t.Fatal("Begin = 0 after the skipped entries, want another wait")
	}
	u.Waited(11)
	u.entry(6, 5)
	if u.Begin(5) == 0 {
		t.Error("after a wait in which the groups arrived, Begin = 0, want a wait")
	}
}

// TestWait_Blocked checks that the proposer does not wait for clients whose
// commands block: one of two clients was answered, and its next command has
// arrived.
func TestWait_Blocked(t *testing.T) {
	var u Wait
	u.Proposed(2)
	u.Applied(0, 1, time.Millisecond)
	if got := u.Begin(1); got != 0 {
		t.Errorf("waits %v for a client that was not answered, want 0", got)
	}
}
