package cluster

import (
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// entry lets groups wait, proposes them, and applies them with waiting groups
// for the next entry.
func (t *commitWait) entry(groups, waiting int) {
	t.proposed(groups)
	t.applied(waiting, time.Millisecond)
}

func TestCommitWait_Halves(t *testing.T) {
	var u commitWait
	if u.begin(25) != 0 {
		t.Error("waits before anything is known")
	}
	u.entry(25, 25) // fifty clients, half of which have been answered
	if got := u.begin(25); got != 2*time.Millisecond {
		t.Fatalf("waits %v for the other half, want twice as long as the entry took", got)
	}
	if u.enough != 47 {
		t.Errorf("waits for %d groups of 50, want 47", u.enough)
	}
	u.waited(47)
	u.entry(47, 3)
	if got := u.begin(48); got != 0 {
		t.Errorf("waits %v when nearly all are there", got)
	}
}

func TestCommitWait_Alone(t *testing.T) {
	var u commitWait
	for range 3 {
		if got := u.begin(1); got != 0 {
			t.Fatalf("a client that is alone waits %v", got)
		}
		u.entry(1, 0)
	}
}

func TestCommitWait_SlowEntry(t *testing.T) {
	var u commitWait
	u.proposed(4)
	u.applied(4, time.Minute)
	if got := u.begin(4); got != maxCommitWait {
		t.Errorf("waits %v, want %v at most", got, maxCommitWait)
	}
}

// If the proposer does not wait, the next group wakes it, regardless of how many
// groups it expected.
func TestCommitWait_NotTaken(t *testing.T) {
	var u commitWait
	u.proposed(4)
	u.applied(4, 0)
	if u.begin(4) != 0 || u.enough != 0 {
		t.Errorf("without a time to wait for, the proposer waits for %d groups", u.enough)
	}
	ld := &leadership{
		leaderParts: leaderParts{opts: Options{Window: 1}},
		batches:     batches{filling: &fsm.BatchBuilder{}}, clockWaits: []func(){func() {}},
	}
	ld.commitWait.proposed(4)
	ld.commitWait.applied(4, time.Millisecond)
	ld.batches.filling.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, noop)
	if b, _, ok := ld.next(); !ok || b == nil || ld.commitWait.enough != 0 {
		t.Errorf("while a clock entry is due, the proposer waits for %d groups", ld.commitWait.enough)
	}
}

// If clients send at their own times, and not because they were answered, the
// proposer waits for them less and less often.
func TestCommitWait_InVain(t *testing.T) {
	var u commitWait
	waits := 0
	for range 10_000 {
		if u.begin(5) > 0 {
			waits++
			u.waited(6)
		}
		u.entry(6, 5)
	}
	if most := maxMissed + 10_000>>maxMissed + 1; waits > most || waits < 20 {
		t.Errorf("%d waits without the expected groups, want 20 to %d", waits, most)
	}
	u.skip = 0
	if u.begin(5) == 0 {
		t.Fatal("does not wait once more")
	}
	u.waited(11)
	u.entry(6, 5)
	if u.begin(5) == 0 {
		t.Error("a wait that was not in missed is not repeated")
	}
}
