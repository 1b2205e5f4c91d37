package events

import (
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// A listener that is too slow is notified that it has missed events, and
// receives all later ones.
func TestQueue_Overflow(t *testing.T) {
	q := NewQueue(fsm.SessionID{})
	publish := func(index uint64, size int) {
		q.Applied(&fsm.Result{Index: index, Events: []fsm.Event{{Kind: fsm.EventPublish, Session: -1, Payload: make([]byte, size)}}})
	}
	publish(1, 10)
	publish(2, maxQueued)
	publish(3, 10)
	got := q.take()
	if len(got) != 2 || got[0].index != 2 || got[0].missed == "" || got[1].index != 3 || got[1].missed != "" {
		t.Errorf("the queue contains %+v, want a note that events up to 2 are missing, and the events of 3", got)
	}
	if q.bytes != 0 || len(q.take()) != 0 {
		t.Error("the queue is not empty after take")
	}
}

// The note that events are missing comes before the marks: a mark means that
// the events before it were delivered or reported as missing.
func TestQueue_MissedBeforeMarks(t *testing.T) {
	q := NewQueue(fsm.SessionID{NodeID: "n1", Boot: 1})
	marked := 0
	q.Mark(func() { marked++ })
	q.MarkOwn(7, func(uint64, int) { marked++ })
	q.restored(5, 7)
	got := q.take()
	if len(got) != 3 || got[0].missed == "" || got[1].mark == nil || got[2].mark == nil {
		t.Errorf("after a snapshot the queue contains %+v, want the note about missed events and then two marks", got)
	}
}
