// Package events delivers the events of the log, such as published messages and
// changed keys, to a node's client port. The goroutine that applies the log
// must not wait, so it puts the events into a Queue, and another goroutine
// passes them to the Listener.
package events

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Listener receives the events of the log entries that this node applies, in
// log order, on one goroutine. A slow Listener delays only its own events. It
// must still not wait for the network, because at most maxQueued bytes of
// events may wait for it.
type Listener interface {
	// Applied is called for every entry with events of the kinds that
	// machine.Machine.Want has selected. Origin is 0 in events that no
	// connection of this node caused. Events of the kind EventTracked concern
	// only the connection that caused them, and are passed on only if it is a
	// connection of this node.
	Applied(index uint64, events []fsm.Event)
	// Missed reports that some of the events up to index will not be delivered.
	// why names the cause: a snapshot replaced the log, the listener was too
	// slow, or the node receives no further events.
	Missed(index uint64, why string)
}

// maxQueued limits the estimated size, in bytes, of the events that wait for
// the listener. If the events of an entry would exceed it, the queue drops them
// and all waiting events, and Deliver calls Missed.
const maxQueued = 64 << 20

// Queue passes events from raft's FSM goroutine, which must not wait, to the
// listener. It is safe for concurrent use.
type Queue struct {
	self  fsm.SessionID // this node's session
	ready chan struct{} // capacity 1

	mu      sync.Mutex
	entries []entryEvents
	bytes   int
	closed  bool // the listener's goroutine has ended, so nothing is delivered
	// group is the number of the last group of this node's session that the
	// state machine has executed. ownMarks are the marks that wait for a later
	// group. ran holds the positions in the log of the last executed groups:
	// that of group g is element g modulo len(ran).
	group    uint64
	ran      [1024]ranGroup
	ownMarks []ownMark
}

// ranGroup is an executed group of this node's session. It was at the given
// position in the entry at the given log index.
type ranGroup struct {
	group, index uint64
	position     int
}

// ownMark is a mark to be inserted after the events of a group of this node.
type ownMark struct {
	group uint64
	f     func(index uint64, position int)
}

// entryEvents is an element of the queue: the events of one entry, a note that
// events are missing, or a mark (see Queue.Mark).
type entryEvents struct {
	index  uint64
	events []fsm.Event
	missed string
	mark   func()
}

// NewQueue returns an empty queue for the node with the given session.
func NewQueue(self fsm.SessionID) *Queue {
	return &Queue{self: self, ready: make(chan struct{}, 1)}
}

// Applied adds the events of an applied entry.
func (q *Queue) Applied(res *fsm.Result) {
	keep := res.Events[:0]
	for _, e := range res.Events {
		if own := e.Session >= 0 && res.Sessions[e.Session] == q.self; !own {
			if e.Kind == fsm.EventTracked {
				continue
			}
			e.Origin = 0
		}
		if e.Waiter != nil && e.Waiter.Session != q.self {
			e.Waiter = nil
		}
		keep = append(keep, e)
	}
	q.mu.Lock()
	switch bytes := fsm.EventBytes(keep); {
	case len(keep) == 0:
	case q.bytes+bytes > maxQueued:
		q.missLocked(res.Index, "more events than can be delivered")
	default:
		q.entries = append(q.entries, entryEvents{index: res.Index, events: keep})
		q.bytes += bytes
	}
	for i := range res.Groups {
		g := &res.Groups[i]
		// Skip a group that an earlier entry has executed: for such a group,
		// this entry only returns the stored reply.
		if g.Seq > q.group && g.Status == fsm.StatusDone && res.Sessions[g.Session] == q.self {
			q.group = g.Seq
			q.ran[g.Seq%uint64(len(q.ran))] = ranGroup{g.Seq, res.Index, i}
		}
	}
	q.insertMarksLocked()
	wake := len(q.entries) > 0
	q.mu.Unlock()
	if wake {
		q.signal()
	}
}

// insertMarksLocked inserts the marks whose groups have been executed. mu must
// be held.
func (q *Queue) insertMarksLocked() {
	q.ownMarks = slices.DeleteFunc(q.ownMarks, func(m ownMark) bool {
		if m.group > q.group {
			return false
		}
		q.entries = append(q.entries, entryEvents{mark: q.ownMarkLocked(m)})
		return true
	})
}

// ownMarkLocked returns the mark for an executed group. mu must be held.
func (q *Queue) ownMarkLocked(m ownMark) func() {
	r := q.ran[m.group%uint64(len(q.ran))]
	if r.group != m.group { // overwritten by later groups, or executed before a snapshot
		r = ranGroup{}
	}
	return func() { m.f(r.index, r.position) }
}

// Restored notes that a snapshot up to index has replaced the state. m is the
// new state.
func (q *Queue) Restored(m *fsm.Machine) { q.restored(m.Applied(), m.Session(q.self).LastSeq) }

// restored is like Restored, for a state up to index, in which group is the
// last group of this node's session.
func (q *Queue) restored(index, group uint64) {
	q.mu.Lock()
	q.missLocked(index, "a snapshot replaced the log")
	q.group = max(q.group, group)
	q.insertMarksLocked()
	q.mu.Unlock()
	q.signal()
}

// Lost notes that the node receives no further events after index. Deliver then
// also calls the marks that wait for a group of this node, because the queue
// will not learn that the group was executed.
func (q *Queue) Lost(index uint64, why string) {
	q.mu.Lock()
	q.missLocked(index+1, why) // subscriptions made at index miss messages too
	for _, m := range q.ownMarks {
		q.entries = append(q.entries, entryEvents{mark: func() { m.f(0, 0) }})
	}
	q.ownMarks = nil
	q.mu.Unlock()
	q.signal()
}

// missLocked replaces the waiting events with a note that all events up to index
// are missing. The note comes before the marks, because a mark means that the
// events before it have been delivered or reported as missing. mu must be held.
func (q *Queue) missLocked(index uint64, why string) {
	marks := slices.DeleteFunc(q.entries, func(e entryEvents) bool { return e.mark == nil })
	q.entries = slices.Insert(marks, 0, entryEvents{index: index, missed: why})
	q.bytes = 0
}

// Mark adds a mark after everything that waits now. The delivering goroutine
// calls f when it reaches the mark. If no more events are delivered, Mark calls
// f itself.
func (q *Queue) Mark(f func()) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		f()
		return
	}
	q.entries = append(q.entries, entryEvents{mark: f})
	q.mu.Unlock()
	q.signal()
}

// MarkOwn adds a mark after the events of a group of this node, which need not
// have been executed yet. f receives the log index of the group's entry and the
// group's position in that entry. Both are 0 if the queue does not know them.
func (q *Queue) MarkOwn(group uint64, f func(index uint64, position int)) {
	m := ownMark{group, f}
	q.mu.Lock()
	if group > q.group && !q.closed {
		q.ownMarks = append(q.ownMarks, m)
		q.mu.Unlock()
		return
	}
	mark := q.ownMarkLocked(m)
	q.mu.Unlock()
	q.Mark(mark)
}

// close stops the queue and calls the marks that have not been reached.
func (q *Queue) close() {
	q.mu.Lock()
	q.closed = true
	entries, own := q.entries, q.ownMarks
	q.entries, q.ownMarks, q.bytes = nil, nil, 0
	q.mu.Unlock()
	for _, e := range entries {
		if e.mark != nil {
			e.mark()
		}
	}
	for _, m := range own {
		m.f(0, 0)
	}
}

// take removes and returns all elements of the queue.
func (q *Queue) take() []entryEvents {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries := q.entries
	q.entries, q.bytes = nil, 0
	return entries
}

// signal wakes Deliver.
func (q *Queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Deliver passes events to the listener until ctx ends. Then it calls the marks
// that it has not reached. It calls the function missed before each call of
// Listener.Missed. Deliver must be called at most once.
func (q *Queue) Deliver(ctx context.Context, l Listener, missed func(index uint64, why string)) {
	defer q.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.ready:
		}
		for _, e := range q.take() {
			if e.mark != nil {
				e.mark()
				continue
			}
			if e.missed != "" {
				missed(e.index, e.missed)
				l.Missed(e.index, e.missed)
				continue
			}
			l.Applied(e.index, e.events)
		}
	}
}
