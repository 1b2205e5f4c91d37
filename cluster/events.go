package cluster

import (
	"slices"
	"sync"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Listener is told what the log does on this node, in its order, by one
// goroutine. It holds up nothing but what comes after it, and must not wait for
// the network all the same: see maxQueuedEvents.
type Listener interface {
	// Applied is called for an entry that has events of the kinds that Want
	// asks for. Origin is 0 for those that no connection of this node has
	// caused. Events that only concern the connection that caused them
	// (EventTracked) come for connections of this node only.
	Applied(index uint64, events []fsm.Event)
	// Missed says that events up to index have not been delivered, because a
	// snapshot took the place of the log, or because the listener was too slow.
	Missed(index uint64, why string)
}

// What may wait for the listener, in estimated bytes, before it is told that it
// has missed events.
const maxQueuedEvents = 64 << 20

// eventQueue carries events from raft's FSM goroutine, which must not wait, to
// the listener.
type eventQueue struct {
	self  fsm.SessionID // set before raft starts
	ready chan struct{} // capacity 1

	mu      sync.Mutex
	entries []entryEvents
	bytes   int
	closed  bool // nobody takes anything any more
	// group is the last group of this node's own session that the machine has
	// run, and ownMarks are the marks that wait for a later one. ran says where in
	// the log the last groups are, by number modulo its length.
	group    uint64
	ran      [1024]ranGroup
	ownMarks []ownMark
}

// ranGroup is a group of this node's session that the machine has run: the
// position-th group of the entry at a log index.
type ranGroup struct {
	group, index uint64
	position     int
}

// ownMark is a mark that follows the events of a group of this node.
type ownMark struct {
	group uint64
	f     func(index uint64, position int)
}

// entryEvents are the events of one entry, the news that some are missing, or a
// mark: see mark.
type entryEvents struct {
	index  uint64
	events []fsm.Event
	missed string
	mark   func()
}

func newEventQueue() *eventQueue {
	return &eventQueue{ready: make(chan struct{}, 1)}
}

// applied takes the events of an entry.
func (q *eventQueue) applied(res *fsm.Result) {
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
	case q.bytes+bytes > maxQueuedEvents:
		q.missLocked(res.Index, "more events than can be delivered")
	default:
		q.entries = append(q.entries, entryEvents{index: res.Index, events: keep})
		q.bytes += bytes
	}
	for i := range res.Groups {
		g := &res.Groups[i]
		// A group that was run before has its old reply.
		if g.Seq > q.group && g.Status == fsm.StatusDone && res.Sessions[g.Session] == q.self {
			q.group = g.Seq
			q.ran[g.Seq%uint64(len(q.ran))] = ranGroup{g.Seq, res.Index, i}
		}
	}
	q.placeMarksLocked()
	wake := len(q.entries) > 0
	q.mu.Unlock()
	if wake {
		poke(q.ready)
	}
}

// placeMarksLocked places the marks whose groups the machine has run.
func (q *eventQueue) placeMarksLocked() {
	q.ownMarks = slices.DeleteFunc(q.ownMarks, func(m ownMark) bool {
		if m.group > q.group {
			return false
		}
		q.entries = append(q.entries, entryEvents{mark: q.ownMarkLocked(m)})
		return true
	})
}

// ownMarkLocked returns the mark for a group that the machine has run.
func (q *eventQueue) ownMarkLocked(m ownMark) func() {
	r := q.ran[m.group%uint64(len(q.ran))]
	if r.group != m.group { // long ago, or in a snapshot
		r = ranGroup{}
	}
	return func() { m.f(r.index, r.position) }
}

// restored notes that the state was replaced by a snapshot up to index, in which
// group is the last group of this node's session.
func (q *eventQueue) restored(index, group uint64) {
	q.mu.Lock()
	q.missLocked(index, "a snapshot took the place of the log")
	q.group = max(q.group, group)
	q.placeMarksLocked()
	q.mu.Unlock()
	poke(q.ready)
}

// missLocked puts the news that events up to index are missing in the place of
// those that wait, which are part of them. It comes before the marks, because they
// stand for events that were delivered before them.
func (q *eventQueue) missLocked(index uint64, why string) {
	marks := slices.DeleteFunc(q.entries, func(e entryEvents) bool { return e.mark == nil })
	q.entries = slices.Insert(marks, 0, entryEvents{index: index, missed: why})
	q.bytes = 0
}

// mark has f called by whoever delivers, behind what waits now, or at once if
// nobody delivers any more.
func (q *eventQueue) mark(f func()) {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		f()
		return
	}
	q.entries = append(q.entries, entryEvents{mark: f})
	q.mu.Unlock()
	poke(q.ready)
}

// markOwn is mark behind the events of a group of this node, which the machine
// may not have run yet.
func (q *eventQueue) markOwn(group uint64, f func(index uint64, position int)) {
	m := ownMark{group, f}
	q.mu.Lock()
	if group > q.group && !q.closed {
		q.ownMarks = append(q.ownMarks, m)
		q.mu.Unlock()
		return
	}
	mark := q.ownMarkLocked(m)
	q.mu.Unlock()
	q.mark(mark)
}

// close calls the marks that nobody will come to.
func (q *eventQueue) close() {
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

// take returns all that waits.
func (q *eventQueue) take() []entryEvents {
	q.mu.Lock()
	defer q.mu.Unlock()
	entries := q.entries
	q.entries, q.bytes = nil, 0
	return entries
}

// Listen gives the node its listener. It is called once, before Want and Close.
func (n *Node) Listen(l Listener) {
	n.wg.Add(1)
	go n.deliverEvents(l)
}

// Want says which kinds of events the listener is to be told of. Entries that
// are applied after Want has returned have them.
func (n *Node) Want(kinds fsm.EventKinds) { n.machine.want(kinds) }

// Told has f called once the listener has been told of all that the log holds up
// to index, or will be told nothing more because the node stops. f must not block.
func (n *Node) Told(index uint64, f func()) {
	n.machine.whenApplied(index, func(bool) { n.machine.events.mark(f) })
}

// ToldOwn has f called once the listener has been told of all that this node's
// groups up to group did, or will be told nothing more because the node stops.
// See Session.Sent. f is given where in the log the group is: the index of the entry
// and the group's position in Result.Groups; the index is 0 if that is not known. A
// node that is cut off from the leader may learn of its group's entry much later than
// the leader answered the group. f must not block.
func (n *Node) ToldOwn(group uint64, f func(index uint64, position int)) {
	n.machine.events.markOwn(group, f)
}

// deliverEvents calls the listener until the node closes.
func (n *Node) deliverEvents(l Listener) {
	defer n.wg.Done()
	defer n.machine.events.close()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.machine.events.ready:
		}
		for _, e := range n.machine.events.take() {
			if e.mark != nil {
				e.mark()
				continue
			}
			if e.missed != "" {
				n.stats.EventsMissed.Inc()
				n.log.Warn("events were not delivered", "index", e.index, "reason", e.missed)
				l.Missed(e.index, e.missed)
				continue
			}
			l.Applied(e.index, e.events)
		}
	}
}
