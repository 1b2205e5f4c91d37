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

// A listener that is too slow is told that it has missed events, and of all that
// comes after them.
func TestEventQueue_Overflow(t *testing.T) {
	q := newEventQueue()
	publish := func(index uint64, size int) {
		q.applied(&fsm.Result{Index: index, Events: []fsm.Event{{Kind: fsm.EventPublish, Session: -1, Payload: make([]byte, size)}}})
	}
	publish(1, 10)
	publish(2, maxQueuedEvents)
	publish(3, 10)
	got := q.take()
	if len(got) != 2 || got[0].index != 2 || got[0].missed == "" || got[1].index != 3 || got[1].missed != "" {
		t.Errorf("queue holds %+v", got)
	}
	if q.bytes != 0 || len(q.take()) != 0 {
		t.Error("queue is not empty after take")
	}
}
