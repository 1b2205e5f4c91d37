package history

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/fsm"
)

const (
	// MinBytes is the smallest value of Config.Bytes.
	MinBytes = 1 << 20
	// MaxBytes is the largest value of Config.Bytes. It bounds the number of
	// files, which the store keeps open: at this size, a file gets frames until
	// it has 256 MiB.
	MaxBytes = 64 << 30
	// maxWrite is the largest value of Store.writeBytes.
	maxWrite = 256 << 10
	// maxMarks bounds the marks in memory (see mark). The store forgets the
	// oldest marks, and does not return the history before them.
	maxMarks = 1 << 16
	// syncWait bounds how long a snapshot waits for the store.
	syncWait = 10 * time.Second
)

// Config contains the settings that a Store needs from its node. All fields are
// required.
type Config struct {
	Dir   string // is created if it is missing
	Bytes int64  // maximum total size of the files, at least MinBytes
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
	segmentBytes int64         // size at which a segment gets no more frames
	writeBytes   int           // size at which queued frames are written together
	maxFrame     int           // size of the largest frame
	covered      uint64        // last log index that the files covered when the store was opened
	wall         int64         // wall clock of that entry in microseconds
	seen         atomic.Uint64 // log index of the last entry that was passed to Applied or Restored
	size         atomic.Int64  // bytes of all files

	ready  chan struct{} // capacity 1: the queue is no longer empty
	urgent chan struct{} // capacity 1: the queue must be written at once
	stop   chan struct{}
	done   chan struct{}
	once   sync.Once

	// mu guards the queue.
	mu      sync.Mutex
	queue   queue
	dropped *lostRange // a gap that grows while the queue is full, nil if there is none

	// index guards the segments and the marks. Only the writing goroutine
	// changes them.
	index    sync.RWMutex
	segments []*segment // the oldest first; frames are written to the last one
	marks    []mark     // in log order
	// unwritten is the gap that has not been written yet, because writing fails.
	unwritten *mark
	horizon   uint64 // log index up to which marks were forgotten

	searching chan struct{} // holds an element for each query that runs

	writer
}

// writer is the state of the goroutine that writes.
type writer struct {
	written uint64     // log index of the last frame
	lost    *lostRange // a gap that must be written, because a write failed
	failed  bool       // the last write failed
}

// mark is an event that concerns the grants of whole databases, or a gap.
type mark struct {
	position
	clock fsm.Clock
	event
}

// position identifies an event in the history: by the log index of its frame, and
// by its position in this frame.
type position struct {
	index uint64
	event int // position of the event in the frame
}

func (p position) after(q position) bool {
	return p.index > q.index || p.index == q.index && p.event > q.event
}

// Open opens the store in a directory, and starts its goroutine. It removes the
// end of the newest file if a crash has torn it. If a file is damaged, Open
// logs the damage and continues without the damaged part.
func Open(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, segmentBytes: min(cfg.Bytes/16, 256<<20), writeBytes: int(min(cfg.Bytes/16, maxWrite)),
		maxFrame: int(min(cfg.Bytes/4, maxQueued/2)),
		ready:    make(chan struct{}, 1), urgent: make(chan struct{}, 1), stop: make(chan struct{}),
		done:      make(chan struct{}),
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
	var reader segmentReader
	var broken *mark // the gap after the last damaged segment
	for i, number := range numbers {
		g, bad, err := reader.open(segmentPath(s.cfg.Dir, number), number, func(f *frame) {
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

// repair logs that a segment has no valid frame after g.size. It removes the torn
// end of the last segment. It leaves other segments, and a last segment whose
// header is damaged, as they are, and seals them.
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
		g.size = info.Size() // the rest of the file counts toward the size of all files
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

// note adds the marks of a frame. It does not keep texts of the frame, because the
// events of marks have none. The caller holds s.index, or is Open.
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

// Sync writes all events up to a log index that was applied, then a checkpoint,
// and syncs the newest file. A snapshot must not be complete before Sync has
// returned. If a write fails, or takes longer than syncWait, the store logs an
// error and Sync returns nevertheless. If the node then stops before the events
// are written, the next start records a gap.
func (s *Store) Sync(index uint64, clock fsm.Clock) {
	if err := s.await(item{index: index, clock: clock, sync: true}, syncWait); err != nil {
		s.cfg.Logger.Error("snapshot is completed before the history of locks is written", "error", err)
	}
}

// Close writes the queue, syncs the newest file, and closes all files. A second
// Close does nothing.
func (s *Store) Close() {
	s.once.Do(func() { close(s.stop) })
	<-s.done
}

// run writes the items of the queue until Close.
func (s *Store) run() {
	defer close(s.done)
	var spare queue
	for open := true; open; {
		select {
		case <-s.ready:
			open = s.gather()
		case <-s.urgent:
		case <-s.stop:
			open = false
		}
		q := s.take(spare)
		s.write(&q)
		q.reset()
		spare = q
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

// gather waits for further events for at most gatherTime. It returns false after Close.
func (s *Store) gather() bool {
	t := time.NewTimer(gatherTime)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.urgent:
	case <-s.stop:
		return false
	}
	return true
}

// write writes the frames of q, and handles its requests.
func (s *Store) write(q *queue) {
	rest := *q
	var next queue // the frames at the beginning of rest that are written next
	flush := func() {
		s.flush(&next)
		rest.buf, rest.hashes = rest.buf[len(next.buf):], rest.hashes[len(next.hashes):]
		next = queue{}
	}
	for i := range q.items {
		it := &q.items[i]
		if it.bytes > 0 {
			next.buf = rest.buf[:len(next.buf)+it.bytes]
			next.hashes = rest.hashes[:len(next.hashes)+it.hashes]
			next.items = q.items[i-len(next.items) : i+1]
			if len(next.buf) >= s.writeBytes {
				flush()
			}
			continue
		}
		flush()
		if it.sync {
			s.sync(it)
		}
		if it.done != nil {
			close(it.done)
		}
	}
	flush()
}

// sync writes a checkpoint, and syncs the newest file.
func (s *Store) sync(it *item) {
	if it.index > s.written {
		b := beginFrame(nil, it.index, it.clock)
		s.flush(&queue{buf: b, items: []item{{index: it.index, clock: it.clock, bytes: len(b)}}})
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
}

// flush writes frames. If that fails, they become a gap.
func (s *Store) flush(q *queue) {
	if len(q.items) == 0 {
		return
	}
	var err error
	if s.lost != nil { // the gap comes before the frames that can be written
		var before queue
		before.addGap(*s.lost)
		if err = s.writeFrames(&before); err == nil {
			s.lost = nil
		}
	}
	if err == nil {
		err = s.writeFrames(q)
	}
	first, last := q.items[0], q.items[len(q.items)-1]
	var unwritten *mark
	if err == nil {
		s.failed = false
		s.written = last.index
	} else {
		if s.lost == nil {
			s.lost = &lostRange{gap: gap{first.index, first.clock.Wall}}
		}
		s.lost.index, s.lost.clock = last.index, last.clock
		unwritten = &mark{position{last.index, 0}, last.clock,
			event{LockEvent: fsm.LockEvent{Kind: kindGap}, gap: s.lost.gap}}
		s.report(err)
	}
	s.index.Lock()
	s.unwritten = unwritten
	s.index.Unlock()
}

// report logs the first of consecutive errors.
func (s *Store) report(err error) {
	if err != nil && !s.failed {
		s.failed = true
		s.cfg.Logger.Error("failed to write the history of locks", "error", err)
	}
}

// writeFrames writes frames to the newest segment, or to a new one, and adds them
// to the index.
func (s *Store) writeFrames(q *queue) error {
	n := int64(len(q.buf))
	g, err := s.segmentFor(n)
	if err != nil {
		return err
	}
	at := 0
	for i := range q.items {
		finishFrame(q.buf[at : at+q.items[i].bytes])
		at += q.items[i].bytes
	}
	if _, err := g.file.WriteAt(q.buf, g.size); err != nil {
		// A part of the frames may be in the file. Remove it: the next write
		// may be shorter, and the rest of this part would then follow the
		// frames of that write.
		return errors.Join(err, g.file.Truncate(g.size))
	}
	s.index.Lock()
	defer s.index.Unlock()
	at = 0
	hashes := q.hashes
	for i := range q.items {
		it := &q.items[i]
		g.add(it.index, it.clock, hashes[:it.hashes], g.size)
		if it.marked {
			s.noteFrame(q.buf[at+frameHeader : at+it.bytes])
		}
		hashes = hashes[it.hashes:]
		at += it.bytes
		g.size += int64(it.bytes)
	}
	s.size.Add(n)
	return nil
}

// noteFrame adds the marks of a frame that was written. The caller holds s.index.
func (s *Store) noteFrame(payload []byte) {
	f, err := decodeFrame(payload)
	if err != nil {
		panic("history of locks: cannot decode a frame of this store: " + err.Error())
	}
	s.note(&f)
	if f.events[0].Kind == kindGap {
		s.cfg.Gaps.Inc()
		s.cfg.Logger.Warn("history of locks has a gap", "from_index", f.events[0].gap.from, "to_index", f.index)
	}
}

// segmentFor returns the segment to which the next n bytes are written. It removes
// the oldest segments if the files would exceed Config.Bytes.
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
// the segment that is being written.
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
