package cluster

import (
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// entry lets groups wait, then go, and be applied with waiting groups behind them.
func (t *turn) entry(groups, waiting int) {
	t.proposed(groups)
	t.applied(waiting, time.Millisecond)
}

func TestTurn_Halves(t *testing.T) {
	var u turn
	if u.begin(25) != 0 {
		t.Error("waits before anything is known")
	}
	u.entry(25, 25) // fifty clients: half of them have been answered
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

func TestTurn_Alone(t *testing.T) {
	var u turn
	for range 3 {
		if got := u.begin(1); got != 0 {
			t.Fatalf("a client that is alone waits %v", got)
		}
		u.entry(1, 0)
	}
}

func TestTurn_SlowEntry(t *testing.T) {
	var u turn
	u.proposed(4)
	u.applied(4, time.Minute)
	if got := u.begin(4); got != maxTurn {
		t.Errorf("waits %v, want %v at most", got, maxTurn)
	}
}

// Who does not wait is woken by the next group, whatever was expected.
func TestTurn_NotTaken(t *testing.T) {
	var u turn
	u.proposed(4)
	u.applied(4, 0)
	if u.begin(4) != 0 || u.enough != 0 {
		t.Errorf("without a time to wait for, %d groups are waited for", u.enough)
	}
	o := &office{filling: &fsm.BatchBuilder{}, ticks: []func(){func() {}}, opts: Options{Window: 1}}
	o.turn.proposed(4)
	o.turn.applied(4, time.Millisecond)
	o.filling.Add(fsm.SessionID{NodeID: "n1", Boot: 1}, 0, 1, noop)
	if b, _, ok := o.next(); !ok || b == nil || o.turn.enough != 0 {
		t.Errorf("beside a tick, %d groups are waited for", o.turn.enough)
	}
}

// Clients that come at their own time, and not because they were answered, are
// waited for ever more seldom.
func TestTurn_InVain(t *testing.T) {
	var u turn
	waits := 0
	for range 10_000 {
		if u.begin(5) > 0 {
			waits++
			u.waited(6)
		}
		u.entry(6, 5)
	}
	if most := maxVain + 10_000>>maxVain + 1; waits > most || waits < 20 {
		t.Errorf("%d waits in vain, want 20 to %d", waits, most)
	}
	u.skip = 0
	if u.begin(5) == 0 {
		t.Fatal("does not wait once more")
	}
	u.waited(11)
	u.entry(6, 5)
	if u.begin(5) == 0 {
		t.Error("a wait that was not in vain is not repeated")
	}
}
