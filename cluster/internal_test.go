package cluster

import (
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// After a transfer that failed an office is replaced by another one of the same
// term. What the first one proposed is not the second one's to count.
func TestOffice_IgnoresWhatIsBeforeItsStart(t *testing.T) {
	stats := newCounters()
	ticked := 0
	o := &office{start: 10, clock: systemClock{}, stats: &stats, slot: make(chan struct{}, 1)}
	o.inflight = []proposal{{ticks: []func(){func() { ticked++ }}, stamped: time.Second}}
	o.applied(&fsm.Result{Index: 9})
	if len(o.inflight) != 1 || ticked != 0 {
		t.Fatal("an entry of the office before was taken for this one's")
	}
	o.applied(&fsm.Result{Index: 11})
	if len(o.inflight) != 0 || ticked != 1 {
		t.Fatal("an entry of this office was not counted")
	}
}

// Who waits for an entry that is never applied is told when the node stops.
func TestMachine_Stop(t *testing.T) {
	m := newMachine(fsm.NewTable())
	var got []bool
	note := func(ok bool) { got = append(got, ok) }
	m.whenApplied(0, note)
	m.whenApplied(5, note)
	m.stop()
	m.whenApplied(6, note)
	if len(got) != 3 || !got[0] || got[1] || got[2] {
		t.Errorf("waiters were told %v, want true, false, false", got)
	}
}
