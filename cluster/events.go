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
	if len(res.Events) == 0 {
		return
	}
	keep := res.Events[:0]
	for _, e := range res.Events {
		if own := e.Session >= 0 && res.Sessions[e.Session] == q.self; !own {
			if e.Kind == fsm.EventTracked {
				continue
			}
			e.Origin = 0
		}
		keep = append(keep, e)
	}
	if len(keep) == 0 {
		return
	}
	bytes := fsm.EventBytes(keep)
	q.mu.Lock()
	if q.bytes+bytes > maxQueuedEvents {
		q.missLocked(res.Index, "more events than can be delivered")
	} else {
		q.entries = append(q.entries, entryEvents{index: res.Index, events: keep})
		q.bytes += bytes
	}
	q.mu.Unlock()
	poke(q.ready)
}

// restored notes that the state was replaced by a snapshot up to index.
func (q *eventQueue) restored(index uint64) {
	q.mu.Lock()
	q.missLocked(index, "a snapshot took the place of the log")
	q.mu.Unlock()
	poke(q.ready)
}

// missLocked puts the news that events up to index are missing in the place of
// those that wait, which are part of them.
func (q *eventQueue) missLocked(index uint64, why string) {
	q.entries = append(slices.DeleteFunc(q.entries, func(e entryEvents) bool { return e.mark == nil }), entryEvents{index: index, missed: why})
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

// close calls the marks that nobody will come to.
func (q *eventQueue) close() {
	q.mu.Lock()
	q.closed = true
	entries := q.entries
	q.entries, q.bytes = nil, 0
	q.mu.Unlock()
	for _, e := range entries {
		if e.mark != nil {
			e.mark()
		}
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
