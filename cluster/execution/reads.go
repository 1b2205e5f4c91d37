package cluster

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// readHost runs groups that only read, on any node. Under the machine's read
// lock, where a group delays the entries of the log, it has a small budget. If
// the budget does not suffice, the result is discarded, and the group runs
// again as a slow read: on a copy-on-write clone, once it has a slot. If the
// last read of a connection was slow, the next one starts as a slow read.
type readHost struct {
	machine *machine.Machine
	clock   Clock
	opts    Options
	stats   *Counters
	slots   *fairshare.Slots
	quicks  sync.Pool    // contains *quickRead
	charged atomic.Int64 // bytes of memory that the slow reads are charged

	waiting, running atomic.Int64

	marked atomic.Int64 // len(slow), readable without mu
	mu     sync.Mutex
	slow   map[fairshare.Worker]struct{} // connections whose last read was slow
	// users is the number of slow reads that run or wait. They share clone if
	// it is new enough for them. Both are guarded by mu.
	users int
	clone *fsm.Machine
}

const (
	// inlineSteps limits a read on a goroutine that serves others, possibly the
	// one that applies the log. It corresponds to about 0.1 ms.
	inlineSteps = 8 << 10
	// quickSteps limits a read under the read lock, in addition to
	// Options.QuickRead. Work that is done in one piece, such as encoding a
	// reply, is charged in steps before the clock can measure it.
	quickSteps = 64 << 10
	// slowSlice is how long a slow read keeps its slot while others wait.
	slowSlice = 10 * time.Millisecond
	// maxSlowConns is the largest number of slow connections that are
	// remembered.
	maxSlowConns = 4096
)

// errSlow means that a read exceeds the budget of a quick read.
var errSlow = errors.New("read takes longer than it may under the lock of the machine")

// SlowReadSlots returns the number of slots for slow reads for a setting. If the
// setting is 0, it is the number of processors that the program uses minus one,
// but at least one.
func SlowReadSlots(setting int) int {
	if setting > 0 {
		return setting
	}
	return max(runtime.GOMAXPROCS(0)-1, 1)
}

func newReadHost(e *environment, m *machine.Machine) *readHost {
	h := &readHost{
		machine: m,
		clock:   e.clock,
		opts:    e.cfg.Options,
		stats:   e.stats,
		slow:    make(map[fairshare.Worker]struct{}),
		slots:   fairshare.New(SlowReadSlots(e.cfg.Options.SlowReads), slowSlice, e.clock.Mono),
	}
	h.quicks.New = func() any {
		q := &quickRead{h: h}
		q.budget.Stop = q.stop
		return q
	}
	return h
}

// readRun is one execution of a group that only reads.
type readRun struct {
	req fsm.ReadRequest
	who fairshare.Worker
	// index is the lowest log index that the state must include: see package
	// readindex.
	index uint64
	// done is closed when the replies are no longer needed. watch, unless nil,
	// watches whether the client leaves.
	done  <-chan struct{}
	watch WatchFunc
}

// workerOf returns the origin of a group.
func workerOf(node fsm.SessionID, body []byte) fairshare.Worker {
	conn, user := fsm.GroupOrigin(body)
	return fairshare.Worker{User: user, Node: node.NodeID, Conn: conn}
}

// quickRead is the budget of a read under the read lock. Its time begins at the
// first call of stop, so that short reads do not read the clock.
type quickRead struct {
	h      *readHost
	budget fsm.Budget
	begun  time.Duration
}

func (q *quickRead) stop() error {
	switch now := q.h.clock.Mono(); {
	case q.begun == 0:
		q.begun = now
	case now-q.begun > q.h.opts.QuickRead:
		return errSlow
	}
	return nil
}

// read executes a group, as a quick read if that suffices. It returns
// fairshare.ErrLost if done was closed first, and errClientLeft if the client left.
// Errors other than those of the state
// machine are converted to replies.
func (h *readHost) read(dst []byte, run readRun) (reply []byte, expiryPending bool, err error) {
	if !h.isSlow(&run) {
		reply, expiryPending, err = h.quick(dst, &run, quickSteps)
		if !errors.Is(err, errSlow) {
			return reply, expiryPending, err
		}
	}
	return h.runSlow(dst, run)
}

// quick executes a group under the read lock within a number of steps. It
// returns errSlow if the steps or the time do not suffice.
func (h *readHost) quick(dst []byte, run *readRun, steps uint64) (reply []byte, expiryPending bool, err error) {
	q := h.quicks.Get().(*quickRead)
	q.begun, q.budget.Steps = 0, steps
	req := run.req
	req.Budget = &q.budget
	reply, expiryPending, err = h.machine.Read(dst, req)
	h.quicks.Put(q)
	if errors.Is(err, fsm.ErrSteps) {
		err = errSlow
	}
	return reply, expiryPending, err
}

// runSlow executes a group on a clone, or returns replies that say why it does
// not.
func (h *readHost) runSlow(dst []byte, run readRun) (reply []byte, expiryPending bool, err error) {
	h.stats.SlowReads.Add(1)
	h.retainClone()
	defer h.releaseClone()
	var w *clientWatch
	if run.watch != nil {
		w = watchClient(run.watch, run.done)
		defer w.stop()
		run.done = w.ended
	}
	if r, ok := run.req.Runner.(hostedRunner); ok {
		run.req.Runner = r.h.runner(run.done)
	}
	s := &slowRead{h: h, run: &run, scripted: fsm.HasScripts(run.req.Body)}
	reply, expiryPending, err = s.read(dst)
	var refused refusal
	if errors.As(err, &refused) {
		h.stats.SlowReadsRefused.WithLabelValues(refused.reason).Add(1)
		run.req.Front.Reset() // the replies are those of the whole group
		return fsm.RefuseGroup(dst, run.req.Body, refused.text), false, nil
	}
	if w != nil {
		err = w.clientLeft(err)
	}
	return reply, expiryPending, err
}

// refusal is the reason why a slow read has no replies. reason is the label of
// the metric, text the error for the client.
type refusal struct{ reason, text string }

func (r refusal) Error() string { return r.text }

// slowRead is a slow read that waits or runs.
type slowRead struct {
	h   *readHost
	run *readRun
	// scripted reads have no slot of their own, because their scripts have
	// slots: see awaitSlot.
	scripted bool
	slot     *fairshare.Slot // nil for none
	begun    time.Duration
	// time that the read ran, without the time that others had the slot
	ran     time.Duration
	bytes   int64
	yielded time.Duration // monotonic time of the last yield
}

func (s *slowRead) read(dst []byte) (reply []byte, expiryPending bool, err error) {
	h := s.h
	if !s.scripted {
		h.waiting.Add(1)
		s.slot, err = h.slots.Enter(s.run.who, h.opts.SlowReadWait, s.run.done)
		h.waiting.Add(-1)
		if err != nil {
			return dst, false, s.noSlot(err)
		}
	}
	h.running.Add(1)
	defer func() {
		h.running.Add(-1)
		h.charged.Add(-s.bytes)
		if s.slot != nil {
			s.slot.Leave()
		}
	}()
	s.begun = h.clock.Mono()
	s.yielded = s.begun
	clone := h.cloned(s.run.index)
	req := s.run.req
	if r, ok := req.Runner.(hostedRunner); ok {
		r.waited = func(d time.Duration) { s.begun += d }
		req.Runner = r
	}
	req.Budget = &fsm.Budget{Stop: s.stop, Hold: s.charge}
	reply, expiryPending, err = clone.Read(dst, req)
	s.ran += h.clock.Mono() - s.begun
	h.stats.SlowReadSeconds.Observe(s.ran.Seconds())
	if !s.scripted {
		h.mark(s.run.who, s.ran > h.opts.QuickRead)
	} else if err == nil && closed(s.run.done) {
		err = fairshare.ErrLost // a script may have been ended, and its reply says so
	}
	return reply, expiryPending, err
}

// noSlot returns the error of a read that did not get a slot.
func (s *slowRead) noSlot(err error) error {
	if errors.Is(err, fairshare.ErrNoSlot) {
		return refusal{"no_place", fmt.Sprintf(
			"BUSY slow reads of other clients have occupied all slots for %v, try again later", s.h.opts.SlowReadWait)}
	}
	return err
}

// stop is called between the steps of the read. It yields the processor, which
// may be the only one, and the slot if another read goes first.
func (s *slowRead) stop() error {
	h := s.h
	now := h.clock.Mono()
	s.ran += now - s.begun
	took := now - s.begun
	switch {
	case closed(s.run.done):
		return fairshare.ErrLost
	case s.ran > h.opts.SlowReadTime:
		return refusal{"time", fmt.Sprintf(
			"BUSY read ran longer than %v and was ended, ask for less at a time", h.opts.SlowReadTime)}
	}
	if now-s.yielded < yield.Every {
		runtime.Gosched()
	} else {
		yield.Now()
		s.yielded = h.clock.Mono()
	}
	var err error
	if s.scripted {
		err = s.awaitSlot(took)
	} else if err = s.slot.Pause(now, s.run.done); err != nil {
		s.slot = nil
	}
	s.begun = h.clock.Mono()
	return err
}

// awaitSlot makes a read with scripts wait until a slot is free, and frees the
// slot at once. The read must not keep it: its script waits for a slot for
// scripts, and reads that have such a slot may wait for this one.
func (s *slowRead) awaitSlot(took time.Duration) error {
	l, err := s.h.slots.Enter(s.run.who, s.h.opts.SlowReadWait, s.run.done)
	if err != nil {
		return s.noSlot(err)
	}
	l.Charge(took)
	l.Leave()
	return nil
}

// charge charges the read for memory.
func (s *slowRead) charge(bytes int) error {
	h := s.h
	s.bytes += int64(bytes)
	if h.charged.Add(int64(bytes)) > h.opts.SlowReadMemory && s.bytes > fsm.HoldLot {
		return refusal{"memory", fmt.Sprintf("OOM slow reads need more than %d bytes of memory together "+
			"(--max-slow-read-memory), ask for less at a time or try again later", h.opts.SlowReadMemory)}
	}
	return nil
}

// retainClone counts a slow read, which may use the shared clone until it calls
// releaseClone.
func (h *readHost) retainClone() {
	h.mu.Lock()
	h.users++
	h.mu.Unlock()
}

// releaseClone drops the shared clone when no slow read is left.
func (h *readHost) releaseClone() {
	h.mu.Lock()
	if h.users--; h.users == 0 {
		h.clone = nil // otherwise the old versions of changed data would accumulate
	}
	h.mu.Unlock()
}

// cloned returns a clone that includes the log up to index. A clone makes the
// next writes copy what they change, so reads share a clone if it is new
// enough. For a read that has waited for its slot, a clone that was made since
// the read was confirmed is new enough.
func (h *readHost) cloned(index uint64) *fsm.Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clone == nil || h.clone.Applied() < index {
		h.clone = h.machine.Clone()
	}
	return h.clone
}

// isSlow reports whether a read must start as a slow read: it has scripts,
// which may run for long without a step, or the last read of its connection was
// slow.
func (h *readHost) isSlow(run *readRun) bool {
	if fsm.HasScripts(run.req.Body) {
		return true
	}
	if h.marked.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, slow := h.slow[run.who]
	return slow
}

// mark records whether the last read of a connection was slow.
func (h *readHost) mark(who fairshare.Worker, slow bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slow {
		delete(h.slow, who)
	} else {
		if len(h.slow) >= maxSlowConns {
			clear(h.slow) // slow connections are soon recorded again
		}
		h.slow[who] = struct{}{}
	}
	h.marked.Store(int64(len(h.slow)))
}

// WatchFunc begins to watch the connection of a client. left is closed when the
// client has closed its connection. stop ends the watch and must be called.
type WatchFunc = func() (left <-chan struct{}, stop func(), err error)

// watchAfter is how long a read runs, or waits, before its client is watched.
// Most reads end earlier, and watching costs a goroutine and system calls. The
// delay also lets a client that has closed only its sending direction (such as
// nc -N) receive the replies of reads that do not take long. A node cannot
// distinguish such a client from one that has left.
const watchAfter = 100 * time.Millisecond

// clientWatch ends a slow read when its replies are no longer needed: when done
// is closed or when its client has left.
type clientWatch struct {
	ended    chan struct{} // closed when the replies are no longer needed
	left     bool          // the client has left; valid once ended is closed
	finished chan struct{} // closed by stop
	exited   chan struct{} // closed when the goroutine has ended
}

func watchClient(watch WatchFunc, done <-chan struct{}) *clientWatch {
	w := &clientWatch{ended: make(chan struct{}), finished: make(chan struct{}), exited: make(chan struct{})}
	go w.run(watch, done)
	return w
}

func (w *clientWatch) run(watch WatchFunc, done <-chan struct{}) {
	defer close(w.exited)
	t := time.NewTimer(watchAfter)
	defer t.Stop()
	select {
	case <-w.finished:
		return
	case <-done:
		close(w.ended)
		return
	case <-t.C:
	}
	left, stop, err := watch()
	if err != nil { // the connection is closed
		w.left = true
		close(w.ended)
		return
	}
	defer stop()
	select {
	case <-w.finished:
	case <-done:
		close(w.ended)
	case <-left:
		w.left = true
		close(w.ended)
	}
}

// stop ends the watch. The connection may be read again when it returns.
func (w *clientWatch) stop() {
	close(w.finished)
	<-w.exited
}

// clientLeft returns errClientLeft in place of fairshare.ErrLost if the client
// has left.
func (w *clientWatch) clientLeft(err error) error {
	if errors.Is(err, fairshare.ErrLost) && w.left {
		return errClientLeft
	}
	return err
}

// lengthy reports whether a group that only reads may take long, so that it is
// worth watching its client while another node executes it.
func lengthy(g *fsm.Group) bool { return g.Slow || g.Costly || fsm.HasScripts(g.Bytes()) }
