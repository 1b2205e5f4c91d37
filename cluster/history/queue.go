package history

import (
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

const (
	// maxQueued limits the total size, in bytes, of the frames that wait to be
	// written.
	maxQueued = 16 << 20
	// urgentBytes is the size of the queue, in bytes, at which the goroutine
	// that writes no longer waits for more events.
	urgentBytes = maxQueued / 4
	// maxKept limits the memory, in bytes, that an empty queue keeps for its
	// next use.
	maxKept = 1 << 20
	// gatherTime is how long the goroutine that writes waits for more events
	// after the first event in an empty queue. Without this wait, it would wake
	// and make a system call for each entry.
	gatherTime = 50 * time.Millisecond
)

// queue contains the frames and requests that wait for the goroutine that writes.
// The goroutine that applies entries encodes their events directly into the queue,
// so that it allocates no memory for each entry. It wakes the goroutine that writes
// only if the queue was empty or has reached urgentBytes.
type queue struct {
	buf    []byte   // the frames one after the other; their lengths and checksums are not set yet
	hashes []uint32 // keyHash of the key of each event of a grant in buf
	items  []item
}

// item is an element of the queue: a frame, or a request.
type item struct {
	index  uint64
	clock  fsm.Clock
	bytes  int           // length of the frame, 0 for a request
	hashes int           // number of the frame's elements in queue.hashes
	marked bool          // the frame has an event that becomes a mark
	sync   bool          // request: write a checkpoint, and sync the files
	done   chan struct{} // request: closed when all earlier items are written; nil if no goroutine waits
}

// reset removes everything. It keeps the memory of buf unless that exceeds
// maxKept.
func (q *queue) reset() {
	if cap(q.buf) > maxKept {
		*q = queue{}
		return
	}
	clear(q.items) // do not keep the channels of the requests
	q.buf, q.hashes, q.items = q.buf[:0], q.hashes[:0], q.items[:0]
}

// addEvents adds a frame with the events of an entry. It adds nothing and returns
// false if the frame or the queue would be too large.
func (q *queue) addEvents(index uint64, clock fsm.Clock, events []fsm.LockEvent, maxFrame int) bool {
	at, hashes := len(q.buf), len(q.hashes)
	it := item{index: index, clock: clock}
	q.buf = beginFrame(q.buf, index, clock)
	for i := range events {
		e := &events[i]
		if len(e.Key) > MaxKey {
			continue
		}
		q.buf = appendEvent(q.buf, e)
		if e.Kind == fsm.LockGranted || e.Kind == fsm.LockEnded {
			q.hashes = append(q.hashes, keyHash(e.Key))
		} else {
			it.marked = true
		}
		if len(q.buf) > maxQueued || len(q.buf)-at > maxFrame {
			q.buf, q.hashes = q.buf[:at], q.hashes[:hashes]
			return false
		}
	}
	it.bytes, it.hashes = len(q.buf)-at, len(q.hashes)-hashes
	q.items = append(q.items, it)
	return true
}

// addGap adds a frame that contains the gap g.
func (q *queue) addGap(g lostRange) {
	at := len(q.buf)
	q.buf = appendGap(beginFrame(q.buf, g.index, g.clock), g.gap)
	q.items = append(q.items, item{index: g.index, clock: g.clock, bytes: len(q.buf) - at, marked: true})
}

// lostRange is a gap that may still grow.
type lostRange struct {
	index uint64 // the last log index of the gap
	clock fsm.Clock
	gap
}

// Applied adds the events of an entry that was applied. clock is the clock
// after the entry. Applied does not wait for the disk.
func (s *Store) Applied(clock fsm.Clock, res *fsm.Result) {
	if res.Index <= s.covered {
		return
	}
	s.seen.Store(res.Index)
	if len(res.Locks) == 0 && !res.LocksCut {
		return
	}
	s.mu.Lock()
	first := len(s.queue.items) == 0
	lost := lostRange{res.Index, clock, gap{res.Index, clock.Wall}}
	switch {
	case s.dropped != nil: // the gap grows until endGap adds it to the queue
		s.dropped.index, s.dropped.clock = res.Index, clock
	case res.LocksCut:
		s.queue.addGap(lost)
	case s.queue.addEvents(res.Index, clock, res.Locks, s.maxFrame):
	case len(s.queue.buf)+s.maxFrame <= maxQueued: // the queue has room, so the frame is too large
		s.queue.addGap(lost)
	default:
		s.dropped = &lost
	}
	urgent := len(s.queue.buf) >= urgentBytes
	s.mu.Unlock()
	s.wake(first, urgent)
}

// Restored notes that a snapshot up to a log index has replaced the state.
// clock is the clock of the new state. The argument before is the wall clock of
// the replaced state, in microseconds. It is 0 if there was no earlier state.
func (s *Store) Restored(index uint64, clock fsm.Clock, before int64) {
	seen := s.seen.Load()
	if index <= seen {
		return
	}
	if before == 0 {
		before = s.wall
	}
	s.seen.Store(index)
	s.mu.Lock()
	first := len(s.queue.items) == 0
	s.endGap()
	s.queue.addGap(lostRange{index, clock, gap{seen + 1, before}})
	s.mu.Unlock()
	s.wake(first, false)
}

// endGap ends the gap that has grown while the queue was full, and adds it to
// the queue. The caller holds s.mu.
func (s *Store) endGap() {
	if s.dropped != nil {
		s.queue.addGap(*s.dropped)
		s.dropped = nil
	}
}

// wake wakes the goroutine that writes, if urgent or first is set. If urgent is
// set, the goroutine writes at once. If only first is set, because the queue was
// empty, the goroutine waits for at most gatherTime before it writes.
func (s *Store) wake(first, urgent bool) {
	switch {
	case urgent:
		signal(s.urgent)
	case first:
		signal(s.ready)
	}
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await adds a request and waits until the goroutine that writes has reached
// it, for at most limit.
func (s *Store) await(it item, limit time.Duration) error {
	it.done = make(chan struct{})
	s.mu.Lock()
	s.endGap()
	s.queue.items = append(s.queue.items, it)
	s.mu.Unlock()
	s.wake(false, true)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-it.done:
		return nil
	case <-s.done:
		return nil // Close has written everything
	case <-t.C:
		return fmt.Errorf("history of locks was not written within %v", limit)
	}
}

// take returns the queue and replaces it with an empty one.
func (s *Store) take(empty queue) queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endGap()
	q := s.queue
	s.queue = empty
	return q
}
