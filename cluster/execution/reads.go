package execution

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/yield"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Reads runs groups that only read, on any node. A group first runs under the
// machine's read lock. There it delays the entries of the log, so it has a
// small budget. If the budget does not suffice, the result is discarded, and
// the group runs again as a slow read: on a copy-on-write clone, once it has a
// slot. A group starts as a slow read if it has scripts, or if the last read of
// its connection was slow.
//
// The methods of Reads are safe for concurrent use.
type Reads struct {
	cfg     ReadConfig
	slots   *fairshare.Slots
	quicks  sync.Pool    // contains *quickRead
	charged atomic.Int64 // memory that is charged to the slow reads, in bytes
	pages   lockPages

	waiting, running atomic.Int64

	marked atomic.Int64 // len(slow), readable without mu
	mu     sync.Mutex
	slow   map[fairshare.Worker]struct{} // connections whose last read was slow
	// users is the number of slow reads that run or wait. These reads share
	// clone if it is new enough for them. mu guards users and clone.
	users int
	clone *fsm.Machine
}

// ReadConfig contains the settings and functions that Reads needs from its
// node.
type ReadConfig struct {
	Machine *machine.Machine
	Mono    func() time.Duration // monotonic time
	Slots   int                  // number of slow reads that run at a time
	// Quick bounds the time of a read under the machine's read lock. Time
	// bounds the time of a slow read, and Wait bounds its wait for a slot.
	// Memory bounds the memory, in bytes, that is charged to all slow reads
	// together.
	Quick, Time, Wait time.Duration
	Memory            int64
	Metrics           ReadMetrics
}

// ReadMetrics are the metrics of Reads.
type ReadMetrics struct {
	Slow    prometheus.Counter
	Refused *prometheus.CounterVec // by reason: see ReadRefusals
	Seconds prometheus.Histogram
}

// The reasons why a slow read has no replies, as labels of the metric.
const (
	refusedSlot   = "no_slot"
	refusedTime   = "time"
	refusedMemory = "memory"
)

// ReadRefusals returns the values of the label of ReadMetrics.Refused.
func ReadRefusals() []string { return []string{refusedSlot, refusedTime, refusedMemory} }

const (
	// inlineSteps limits a read on a goroutine that also serves other reads.
	// This goroutine may be the one that applies the log. The limit corresponds
	// to about 0.1 ms.
	inlineSteps = 8 << 10
	// quickSteps limits a read under the read lock, in addition to
	// ReadConfig.Quick. Work that is done in one piece, such as encoding a
	// reply, is charged in steps before the clock can measure it.
	quickSteps = 64 << 10
	// slowSlice is how long a slow read keeps its slot while other reads wait.
	slowSlice = 10 * time.Millisecond
	// maxSlowConns is the maximum number of connections that are recorded
	// because their last read was slow.
	maxSlowConns = 4096
)

// ErrSlow means that a read exceeds the budget of a quick read.
var ErrSlow = errors.New("read exceeds the budget of a quick read")

// NewReads returns the Reads of a node.
func NewReads(cfg ReadConfig) *Reads {
	h := &Reads{
		cfg:   cfg,
		slow:  make(map[fairshare.Worker]struct{}),
		slots: fairshare.New(cfg.Slots, slowSlice, cfg.Mono),
	}
	h.quicks.New = func() any {
		q := &quickRead{h: h}
		q.budget.Stop = q.stop
		return q
	}
	return h
}

// Slots returns the slots for slow reads.
func (h *Reads) Slots() *fairshare.Slots { return h.slots }

// Waiting returns how many slow reads wait for their first slot.
func (h *Reads) Waiting() int64 { return h.waiting.Load() }

// Running returns how many slow reads have begun and have not ended.
func (h *Reads) Running() int64 { return h.running.Load() }

// Charged returns the memory that is charged to the slow reads, in bytes.
func (h *Reads) Charged() int64 { return h.charged.Load() }

// Run is one execution of a group that only reads.
type Run struct {
	Request fsm.ReadRequest
	Who     fairshare.Worker
	// Index is the lowest log index that the state must include: see package
	// readindex.
	Index uint64
	// Done is closed when the replies are no longer needed. Watch, unless nil,
	// watches whether the client leaves.
	Done  <-chan struct{}
	Watch WatchFunc
}

// WorkerOf returns the Worker that identifies the origin of a group: a client
// of the given node.
func WorkerOf(node string, body []byte) fairshare.Worker {
	conn, user := fsm.GroupOrigin(body)
	return fairshare.Worker{User: user, Node: node, Conn: conn}
}

// quickRead is the budget of a read under the read lock. Its time begins at the
// first call of stop, so a read that ends before that does not read the clock.
type quickRead struct {
	h      *Reads
	budget fsm.Budget
	begun  time.Duration
}

func (q *quickRead) stop() error {
	switch now := q.h.cfg.Mono(); {
	case q.begun == 0:
		q.begun = now
	case now-q.begun > q.h.cfg.Quick:
		return ErrSlow
	}
	return nil
}

// Read executes a group, as a quick read if that suffices. It returns
// fairshare.ErrLost if Done was closed before the read ended, and ErrClientLeft
// if the client left. If a slow read gets no slot, or exceeds its budget of
// time or memory, Read returns no error, but replies that contain one.
func (h *Reads) Read(dst []byte, run Run) (reply []byte, expiryPending bool, err error) {
	run.Request.Pages = &h.pages
	if !h.isSlow(&run) {
		reply, expiryPending, err = h.quick(dst, &run, quickSteps)
		if !errors.Is(err, ErrSlow) {
			return reply, expiryPending, err
		}
	}
	return h.runSlow(dst, run)
}

// ReadInline executes a group under the read lock, on a goroutine that also
// serves other reads. It returns ErrSlow if the group may take long, or has
// taken too long.
func (h *Reads) ReadInline(run *Run) (reply []byte, expiryPending bool, err error) {
	if h.isSlow(run) {
		return nil, false, ErrSlow
	}
	return h.quick(nil, run, inlineSteps)
}

// quick executes a group under the read lock within a number of steps. It
// returns ErrSlow if the steps or the time do not suffice.
func (h *Reads) quick(dst []byte, run *Run, steps uint64) (reply []byte, expiryPending bool, err error) {
	q := h.quicks.Get().(*quickRead)
	q.begun, q.budget.Steps = 0, steps
	req := run.Request
	req.Budget = &q.budget
	reply, expiryPending, err = h.cfg.Machine.Read(dst, req)
	h.quicks.Put(q)
	if errors.Is(err, fsm.ErrSteps) {
		err = ErrSlow
	}
	return reply, expiryPending, err
}

// runSlow executes a group on a clone, or returns replies that say why it does
// not.
func (h *Reads) runSlow(dst []byte, run Run) (reply []byte, expiryPending bool, err error) {
	h.cfg.Metrics.Slow.Add(1)
	h.retainClone()
	defer h.releaseClone()
	var w *clientWatch
	if run.Watch != nil {
		w = watchClient(run.Watch, run.Done)
		defer w.stop()
		run.Done = w.ended
	}
	if r, ok := run.Request.Runner.(hostedRunner); ok {
		run.Request.Runner = r.h.Runner(run.Done)
	}
	s := &slowRead{h: h, run: &run, scripted: fsm.HasScripts(run.Request.Body)}
	reply, expiryPending, err = s.read(dst)
	var refused readRefusal
	if errors.As(err, &refused) {
		h.cfg.Metrics.Refused.WithLabelValues(refused.reason).Add(1)
		run.Request.Front.Reset() // RefuseGroup appends replies for the whole group
		return fsm.RefuseGroup(dst, run.Request.Body, refused.text), false, nil
	}
	if w != nil {
		err = w.clientLeft(err)
	}
	return reply, expiryPending, err
}

// readRefusal is the reason why a slow read has no replies. reason is the label
// of the metric, and text is the error for the client.
type readRefusal struct{ reason, text string }

func (r readRefusal) Error() string { return r.text }

// slowRead is a slow read that waits or runs.
type slowRead struct {
	h   *Reads
	run *Run
	// scripted says that the group has scripts. Such a read has no slot of its
	// own, because its scripts have slots: see awaitSlot.
	scripted bool
	slot     *fairshare.Slot // nil if the read has no slot
	begun    time.Duration
	// ran is the time for which the read ran. It does not include the time for
	// which other reads had the slot.
	ran     time.Duration
	bytes   int64
	yielded time.Duration // monotonic time of the last yield
}

func (s *slowRead) read(dst []byte) (reply []byte, expiryPending bool, err error) {
	h := s.h
	if !s.scripted {
		h.waiting.Add(1)
		s.slot, err = h.slots.Enter(s.run.Who, h.cfg.Wait, s.run.Done)
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
	s.begun = h.cfg.Mono()
	s.yielded = s.begun
	clone := h.cloned(s.run.Index)
	req := s.run.Request
	if r, ok := req.Runner.(hostedRunner); ok {
		r.waited = func(d time.Duration) { s.begun += d }
		req.Runner = r
	}
	req.Budget = &fsm.Budget{Stop: s.stop, Hold: s.charge}
	reply, expiryPending, err = clone.Read(dst, req)
	s.ran += h.cfg.Mono() - s.begun
	h.cfg.Metrics.Seconds.Observe(s.ran.Seconds())
	if !s.scripted {
		h.mark(s.run.Who, s.ran > h.cfg.Quick)
	} else if err == nil && closed(s.run.Done) {
		err = fairshare.ErrLost // the reply may contain the error of a script that was ended
	}
	return reply, expiryPending, err
}

// noSlot returns the error of a read that did not get a slot.
func (s *slowRead) noSlot(err error) error {
	if errors.Is(err, fairshare.ErrNoSlot) {
		return readRefusal{refusedSlot, fmt.Sprintf(
			"BUSY slow reads of other clients have occupied all slots for %v, try again later", s.h.cfg.Wait)}
	}
	return err
}

// stop is called between the steps of the read. It yields the processor,
// because the node may have only one processor. It also yields the slot if
// another read goes first.
func (s *slowRead) stop() error {
	h := s.h
	now := h.cfg.Mono()
	s.ran += now - s.begun
	took := now - s.begun
	switch {
	case closed(s.run.Done):
		return fairshare.ErrLost
	case s.ran > h.cfg.Time:
		return readRefusal{refusedTime, fmt.Sprintf(
			"BUSY read ran longer than %v and was ended, ask for less at a time", h.cfg.Time)}
	}
	if now-s.yielded < yield.Every {
		runtime.Gosched()
	} else {
		yield.Now()
		s.yielded = h.cfg.Mono()
	}
	var err error
	if s.scripted {
		err = s.awaitSlot(took)
	} else if err = s.slot.Pause(now, s.run.Done); err != nil {
		s.slot = nil
	}
	s.begun = h.cfg.Mono()
	return err
}

// awaitSlot makes a read with scripts wait until a slot is free, and frees the
// slot at once. The read must not keep the slot while its script waits for a
// slot for scripts: reads that have a slot for scripts could wait for the slot
// that this read keeps, and none of the reads would continue.
func (s *slowRead) awaitSlot(took time.Duration) error {
	l, err := s.h.slots.Enter(s.run.Who, s.h.cfg.Wait, s.run.Done)
	if err != nil {
		return s.noSlot(err)
	}
	l.Charge(took)
	l.Leave()
	return nil
}

// charge charges the read for memory. If the slow reads together exceed
// ReadConfig.Memory, it returns an error, unless this read was charged for at
// most fsm.HoldLot bytes.
func (s *slowRead) charge(bytes int) error {
	h := s.h
	s.bytes += int64(bytes)
	if h.charged.Add(int64(bytes)) > h.cfg.Memory && s.bytes > fsm.HoldLot {
		return readRefusal{refusedMemory, fmt.Sprintf("OOM slow reads need more than %d bytes of memory together "+
			"(--max-slow-read-memory), ask for less at a time or try again later", h.cfg.Memory)}
	}
	return nil
}

// retainClone counts a slow read. The read may use the shared clone until it
// calls releaseClone.
func (h *Reads) retainClone() {
	h.mu.Lock()
	h.users++
	h.mu.Unlock()
}

// releaseClone drops the shared clone when no slow read is left.
func (h *Reads) releaseClone() {
	h.mu.Lock()
	if h.users--; h.users == 0 {
		h.clone = nil // otherwise the old versions of changed data would accumulate
	}
	h.mu.Unlock()
}

// cloned returns a clone that includes the log up to index. Every clone makes
// later writes copy the data that they change, so reads share a clone if it is
// new enough. A clone is new enough for a read if it includes index, even if it
// was made before the read got its slot.
func (h *Reads) cloned(index uint64) *fsm.Machine {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clone == nil || h.clone.Applied() < index {
		h.clone = h.cfg.Machine.Clone()
	}
	return h.clone
}

// isSlow reports whether a read must start as a slow read: it has scripts,
// which may run for a long time without a step, or the last read of its
// connection was slow.
func (h *Reads) isSlow(run *Run) bool {
	if fsm.HasScripts(run.Request.Body) {
		return true
	}
	if h.marked.Load() == 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, slow := h.slow[run.Who]
	return slow
}

// mark records whether the last read of a connection was slow.
func (h *Reads) mark(who fairshare.Worker, slow bool) {
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

// Lengthy reports whether a group that only reads may take long. If another
// node executes such a group, the client's node watches the client meanwhile.
func Lengthy(g *fsm.Group) bool { return g.Slow || g.Costly || fsm.HasScripts(g.Bytes()) }
