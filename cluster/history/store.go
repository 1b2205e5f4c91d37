package history

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

const (
	// MinBytes is the smallest size of a store that is on.
	MinBytes = 1 << 20
	// maxQueued bounds the events that wait for the goroutine that writes, in
	// estimated bytes.
	maxQueued = 16 << 20
	// MaxBytes is the largest size of a store. The store keeps its files open, and
	// a file has at most 256 MiB.
	MaxBytes = 64 << 30
	// maxWrite is the largest number of bytes from which on frames are written.
	maxWrite = 256 << 10
	// maxMarks bounds the marks in memory. Older ones are forgotten, with the
	// history before them.
	maxMarks = 1 << 16
	// syncWait bounds how long a snapshot waits for the store.
	syncWait = 10 * time.Second
)

// Config is what a Store needs of its node. All fields are required.
type Config struct {
	Dir   string // is created if it is missing
	Bytes int64  // bound of the size of all files, at least MinBytes
	// Gaps counts the gaps.
	Gaps   prometheus.Counter
	Logger hclog.Logger
}

// Store is the history of locks of one node. Applied and Restored must be called by
// one goroutine at a time, in log order. The other methods are safe for concurrent
// use.
//
// A Store owns one goroutine, which writes. Close stops it.
type Store struct {
	cfg          Config
	segmentBytes int64         // a segment gets no more frames from this size on
	writeBytes   int           // frames are written from this size on
	covered      uint64        // the files covered this log index when they were opened
	wall         int64         // wall clock of that entry in microseconds
	seen         atomic.Uint64 // log index up to which the store was told of all entries
	size         atomic.Int64  // bytes of all files

	ready chan struct{} // capacity 1
	stop  chan struct{}
	done  chan struct{}
	once  sync.Once

	// mu guards the queue.
	mu      sync.Mutex
	queue   []item
	queued  int   // estimated bytes
	dropped *item // a gap that grows while the queue is full, nil if there is none

	// index guards the segments and the marks. Only the goroutine that writes
	// changes them.
	index    sync.RWMutex
	segments []*segment // the oldest first; the last one is written
	marks    []mark     // in log order
	// unwritten is the gap that has not been written yet, because writing fails.
	unwritten *mark
	horizon   uint64 // log index up to which marks were forgotten

	searching chan struct{} // holds an element for each query that runs

	writer
}

// writer is the state of the goroutine that writes.
type writer struct {
	buf     []byte
	pending []pending
	written uint64 // log index of the last frame
	lost    *item  // a gap that must be written, because a write failed
	failed  bool   // the last write failed
}

// pending is a frame in writer.buf.
type pending struct {
	frame
	offset int // in buf
}

// item is an element of the queue: the events of an entry, a gap, or a request.
type item struct {
	index  uint64
	clock  fsm.Clock
	events []fsm.LockEvent
	gap    *gap
	sync   bool          // write a checkpoint, and sync the files
	done   chan struct{} // is closed when everything before it is written; nil for none
}

// mark is an event that concerns the grants of whole databases, or a gap.
type mark struct {
	position
	clock fsm.Clock
	event
}

// position is a position in the history.
type position struct {
	index uint64
	event int // in the frame
}

func (p position) after(q position) bool {
	return p.index > q.index || p.index == q.index && p.event > q.event
}

// Open opens the store in a directory, and starts its goroutine. It removes the end
// of the newest file if a crash has torn it. It reports damage in the log, and
// continues without the damaged files.
func Open(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, ready: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		segmentBytes: min(cfg.Bytes/16, 256<<20), writeBytes: int(min(cfg.Bytes/16, maxWrite)),
		searching: make(chan struct{}, maxSearches),
	}
	if err := s.load(); err != nil {
		for _, g := range s.segments {
			err = errors.Join(err, g.file.Close())
		}
		return nil, fmt.Errorf("open history of locks: %w", err)
	}
	s.seen.Store(s.covered)
	s.written = s.covered
	go s.run()
	return s, nil
}

// load reads all segments.
func (s *Store) load() error {
	if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
		return err
	}
	numbers, err := listSegments(s.cfg.Dir)
	if err != nil {
		return err
	}
	var broken *mark // the gap after the last damaged segment
	for i, number := range numbers {
		g, bad, err := openSegment(segmentPath(s.cfg.Dir, number), number, func(f *frame) {
			if broken != nil {
				broken.index, broken.clock = f.index-1, f.clock
				s.marks = append(s.marks, *broken)
				broken = nil
			}
			s.note(f)
			s.covered, s.wall = f.index, f.clock.Wall
		})
		if err != nil {
			return err
		}
		s.segments = append(s.segments, g)
		last := i == len(numbers)-1
		if bad != nil {
			if err := s.repair(g, bad, last); err != nil {
				return err
			}
			broken = &mark{event: event{gap: gap{s.covered + 1, s.wall}}}
			broken.Kind = kindGap
		}
		if !last && !g.sealed {
			g.seal()
		}
		s.size.Add(g.size)
	}
	return nil
}

// repair reports that a segment has no valid frame after its size. It removes the
// torn end of the last segment. It leaves other files as they are, and seals them.
func (s *Store) repair(g *segment, bad error, last bool) error {
	info, err := g.file.Stat()
	if err != nil {
		return err
	}
	header := int64(len(segmentMagic))
	if !last || g.size == 0 && info.Size() >= header {
		// After a loss of power, the newest file may have its size without its
		// content.
		complain := s.cfg.Logger.Error
		if last {
			complain = s.cfg.Logger.Warn
		}
		complain("history of locks is damaged: a gap remains", "file", g.path, "offset", g.size,
			"error", bad)
		s.cfg.Gaps.Inc()
		g.size = info.Size() // the file counts, although it is not used
		g.seal()
		return nil
	}
	s.cfg.Logger.Info("removing the torn end of the history of locks", "file", g.path, "from", g.size,
		"to", info.Size(), "error", bad)
	if g.size == 0 { // the file was being created
		g.size = header
		if _, err := g.file.WriteAt(segmentMagic, 0); err != nil {
			return err
		}
	}
	return g.file.Truncate(g.size)
}

// note adds the marks of a frame. The caller holds s.index, or is Open.
func (s *Store) note(f *frame) {
	for i, e := range f.events {
		if e.Kind == fsm.LockGranted || e.Kind == fsm.LockEnded {
			continue
		}
		s.marks = append(s.marks, mark{position: position{f.index, i}, clock: f.clock, event: e})
		if len(s.marks) >= maxMarks {
			half := len(s.marks) / 2
			s.horizon = s.marks[half-1].index
			s.marks = append([]mark(nil), s.marks[half:]...)
		}
	}
}

// Bytes returns the size of all files, in bytes.
func (s *Store) Bytes() int64 { return s.size.Load() }

// Applied adds the events of an entry that was applied. clock is the clock after
// the entry. It does not wait.
func (s *Store) Applied(clock fsm.Clock, res *fsm.Result) {
	if res.Index <= s.covered {
		return
	}
	s.seen.Store(res.Index)
	if len(res.Locks) == 0 && !res.LocksCut {
		return
	}
	// The store does not keep long texts, so the queue should not keep them either.
	for i := range res.Locks {
		if e := &res.Locks[i]; len(e.Owner) > maxText {
			e.Owner = strings.Clone(e.Owner[:maxText])
		}
	}
	it := item{index: res.Index, clock: clock, events: res.Locks}
	if res.LocksCut {
		it = item{index: res.Index, clock: clock, gap: &gap{res.Index, clock.Wall}}
	}
	s.put(it, false)
}

// Restored notes that a snapshot up to a log index has replaced the state. clock is
// the clock of the new state. before is the wall clock of the state before, in
// microseconds, 0 if there was none.
func (s *Store) Restored(index uint64, clock fsm.Clock, before int64) {
	seen := s.seen.Load()
	if index <= seen {
		return
	}
	if before == 0 {
		before = s.wall
	}
	s.seen.Store(index)
	s.put(item{index: index, clock: clock, gap: &gap{seen + 1, before}}, true)
}

// put adds an element to the queue. If the queue is full, put drops an element that
// is not required, and the queue gets a gap in its place.
func (s *Store) put(it item, required bool) {
	size := 0
	for i := range it.events {
		e := &it.events[i]
		size += 200 + len(e.Key) + len(e.Owner)
	}
	s.mu.Lock()
	switch {
	case required:
		s.endGap()
		s.queue = append(s.queue, it)
	case s.dropped == nil && s.queued+size <= maxQueued:
		s.queue = append(s.queue, it)
		s.queued += size
	case s.dropped == nil:
		s.dropped = &item{index: it.index, clock: it.clock, gap: &gap{it.index, it.clock.Wall}}
	default:
		s.dropped.index, s.dropped.clock = it.index, it.clock
	}
	s.mu.Unlock()
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// endGap adds the gap to the queue that has grown while the queue was full. The
// caller holds s.mu.
func (s *Store) endGap() {
	if s.dropped != nil {
		s.queue, s.dropped = append(s.queue, *s.dropped), nil
	}
}

// await waits until the goroutine that writes has reached a request.
func (s *Store) await(it item, limit time.Duration) error {
	it.done = make(chan struct{})
	s.put(it, true)
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

// Sync writes and syncs all events up to a log index that was applied, with a
// checkpoint. A snapshot must not be complete before Sync has returned. If that
// fails, or takes very long, Sync logs it, and the next start finds a gap.
func (s *Store) Sync(index uint64, clock fsm.Clock) {
	if err := s.await(item{index: index, clock: clock, sync: true}, syncWait); err != nil {
		s.cfg.Logger.Error("snapshot does not wait for the history of locks", "error", err)
	}
}

// Close writes and syncs what is in the queue, and closes the files. A second Close
// does nothing.
func (s *Store) Close() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// run writes what is in the queue until Close.
func (s *Store) run() {
	defer close(s.done)
	for open := true; open; {
		select {
		case <-s.ready:
		case <-s.stop:
			open = false
		}
		s.write(s.take())
	}
	s.index.Lock()
	defer s.index.Unlock()
	for i, g := range s.segments {
		if g.file == nil {
			continue
		}
		if i == len(s.segments)-1 {
			s.report(g.file.Sync())
		}
		s.report(g.file.Close())
		g.file = nil
	}
}

// take removes and returns everything that waits.
func (s *Store) take() []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endGap()
	items := s.queue
	s.queue, s.queued = nil, 0
	return items
}

// write writes elements of the queue.
func (s *Store) write(items []item) {
	for i := range items {
		it := &items[i]
		switch {
		case it.sync:
			s.flush()
			if it.index > s.written {
				s.append(item{index: it.index, clock: it.clock})
				s.flush()
			}
			s.index.RLock()
			var f *os.File
			if n := len(s.segments); n > 0 {
				f = s.segments[n-1].file
			}
			s.index.RUnlock()
			if f != nil {
				s.report(f.Sync())
			}
		case it.done != nil:
			s.flush()
		default:
			s.append(*it)
			if len(s.buf) >= s.writeBytes {
				s.flush()
			}
		}
		if it.done != nil {
			close(it.done)
		}
	}
	s.flush()
}

// append adds a frame to the buffer.
func (s *Store) append(it item) {
	at := len(s.buf)
	f := frame{index: it.index, clock: it.clock}
	s.buf = beginFrame(s.buf, it.index, it.clock)
	if it.gap != nil {
		s.buf = appendGap(s.buf, *it.gap)
		f.events = append(f.events, event{LockEvent: fsm.LockEvent{Kind: kindGap}, gap: *it.gap})
	}
	for i := range it.events {
		if e := &it.events[i]; len(e.Key) <= MaxKey {
			s.buf = appendEvent(s.buf, e)
			f.events = append(f.events, event{LockEvent: *e})
		}
	}
	if int64(len(s.buf)-at) > s.cfg.Bytes/4 {
		s.buf = s.buf[:at]
		s.append(item{index: it.index, clock: it.clock, gap: &gap{it.index, it.clock.Wall}})
		return
	}
	finishFrame(s.buf, at)
	s.pending = append(s.pending, pending{f, at})
}

// flush writes the buffer. If that fails, its frames become a gap.
func (s *Store) flush() {
	if len(s.pending) == 0 {
		return
	}
	if s.lost != nil { // the gap comes before the frames that can be written
		frames, buf := s.pending, s.buf
		s.pending, s.buf = nil, nil
		s.append(*s.lost)
		shift := len(s.buf)
		s.buf = append(s.buf, buf...)
		for _, w := range frames {
			w.offset += shift
			s.pending = append(s.pending, w)
		}
	}
	first, last := s.pending[0], s.pending[len(s.pending)-1]
	err := s.writeFrames()
	var unwritten *mark
	if err == nil {
		s.lost, s.failed = nil, false
		s.written = last.index
	} else {
		if s.lost == nil {
			s.lost = &item{gap: &gap{first.index, first.clock.Wall}}
		}
		s.lost.index, s.lost.clock = last.index, last.clock
		unwritten = &mark{position{last.index, 0}, last.clock,
			event{LockEvent: fsm.LockEvent{Kind: kindGap}, gap: *s.lost.gap}}
		s.report(err)
	}
	s.index.Lock()
	s.unwritten = unwritten
	s.index.Unlock()
	s.buf, s.pending = s.buf[:0], s.pending[:0]
	if cap(s.buf) > 4*maxWrite {
		s.buf, s.pending = nil, nil
	}
	clear(s.pending[:cap(s.pending)]) // do not keep the texts of the events
}

// report logs the first of consecutive errors.
func (s *Store) report(err error) {
	if err != nil && !s.failed {
		s.failed = true
		s.cfg.Logger.Error("failed to write the history of locks", "error", err)
	}
}

// writeFrames writes the buffer to the newest segment, or to a new one, and adds
// the frames to the index.
func (s *Store) writeFrames() error {
	n := int64(len(s.buf))
	g, err := s.segmentFor(n)
	if err != nil {
		return err
	}
	if _, err := g.file.WriteAt(s.buf, g.size); err != nil {
		// The file must not contain a frame after those of the next write.
		return errors.Join(err, g.file.Truncate(g.size))
	}
	s.index.Lock()
	defer s.index.Unlock()
	for i := range s.pending {
		w := &s.pending[i]
		g.add(&w.frame, g.size+int64(w.offset))
		s.note(&w.frame)
		if len(w.events) > 0 && w.events[0].Kind == kindGap {
			s.cfg.Gaps.Inc()
			s.cfg.Logger.Warn("history of locks has a gap", "from_index", w.events[0].gap.from, "to_index", w.index)
		}
	}
	g.size += n
	s.size.Add(n)
	return nil
}

// segmentFor returns the segment to which the next n bytes are written. It removes
// the oldest segments if the files would exceed their size.
func (s *Store) segmentFor(n int64) (*segment, error) {
	var newest *segment
	next := uint64(1)
	if len(s.segments) > 0 {
		newest = s.segments[len(s.segments)-1]
		next = newest.number + 1
	}
	if newest == nil || newest.sealed || newest.size >= s.segmentBytes {
		if newest != nil && !newest.sealed {
			if err := newest.file.Sync(); err != nil {
				return nil, err
			}
			s.index.Lock()
			newest.seal()
			s.index.Unlock()
		}
		if err := s.shrink(n + int64(len(segmentMagic))); err != nil {
			return nil, err
		}
		g, err := createSegment(s.cfg.Dir, next)
		if err != nil {
			return nil, err
		}
		s.size.Add(g.size)
		s.index.Lock()
		s.segments = append(s.segments, g)
		s.index.Unlock()
		return g, nil
	}
	return newest, s.shrink(n)
}

// shrink removes the oldest segments until there is room for n more bytes. It keeps
// a segment that is written.
func (s *Store) shrink(n int64) error {
	for s.size.Load()+n > s.cfg.Bytes && len(s.segments) > 0 && s.segments[0].sealed {
		s.index.Lock()
		g := s.segments[0]
		s.segments = append([]*segment(nil), s.segments[1:]...)
		var first uint64
		if len(s.segments) > 0 {
			first = s.segments[0].first
		}
		keep := 0
		for keep < len(s.marks) && (first == 0 || s.marks[keep].index < first) {
			keep++
		}
		s.marks = append([]mark(nil), s.marks[keep:]...)
		err := g.remove()
		s.index.Unlock()
		s.size.Add(-g.size)
		if err != nil {
			return err
		}
	}
	return nil
}
