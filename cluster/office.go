package cluster

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// office is one term of leadership, from the moment this node's own machine has
// applied the TermStart of the term until leadership ends. It holds what only a
// leader has: the clock, the proposer, the sinks of the sessions, the read
// rounds.
//
// One goroutine, propose, owns the only raft.Apply of the product. What arrives
// while an entry is on its way goes into the next one; see turn for how long that
// one is left open.
type office struct {
	term uint64
	// start is the log index of the TermStart: what the log holds before it is
	// not of this office, though it may be of the same term.
	start uint64
	log   hclog.Logger
	self  raft.ServerID

	raft      *raft.Raft
	committed func() uint64
	machine   *machine
	gateway   *gateway // of this node: see tend
	clock     Clock
	opts      Options

	// time is where the office's clock counts from: see now.
	time atomic.Pointer[timeBase]

	reads   readRounds
	host    *scriptHost
	scripts fsm.ScriptRunner // of host, as long as the office lasts
	fatal   func(error)

	holder holder        // belongs to keepTime
	links  chan struct{} // capacity 1: a link has begun or ended

	mu       sync.Mutex
	closed   bool
	filling  *fsm.BatchBuilder   // what arrives now
	full     []*fsm.BatchBuilder // closed because of their size, in order
	spare    []*fsm.BatchBuilder
	ticks    []func() // callers that wait for an entry with a newer stamp
	accepted map[fsm.SessionID]uint64
	sinks    map[fsm.SessionID][]sink
	inflight []proposal    // dispatched, in order
	waitSlot bool          // propose waits for a place in the window
	taken    bool          // propose has an entry that is not in inflight yet
	paused   bool          // nothing is proposed: see pause
	quiet    chan struct{} // of pause: closed when no entry is in flight; nil if nobody waits
	turn     turn
	lastTick int64 // stamp of the last entry

	work chan struct{} // capacity 1: there is something to propose, or the office closed
	slot chan struct{} // capacity 1: a place in the window is free, or the office closed
	done chan struct{} // closed by close
	wg   sync.WaitGroup

	stats *Counters
}

// proposal is one entry on its way through the log.
type proposal struct {
	ticks   []func()
	stamped time.Duration
}

// sink takes the results of one session's groups. It is called in log order
// and must not block.
type sink interface {
	deliver(groups []fsm.GroupResult)
	// served tells of a client whose wait has ended with a reply.
	served(w *fsm.Woken)
}

// drift is the part of elapsed time that the office does not count: NTP slews a
// clock by up to 500 ppm, quartz is off by up to 100. A TTL may run long by it,
// never short.
const driftPPM = 1000

// maxAdvance bounds one step of the lease clock. Ticks come every few seconds
// while keys have a TTL; a larger step means that the clock source went mad.
const maxAdvance = int64(10 * time.Minute)

func newOffice(n *Node, term, start uint64, lease int64) *office {
	o := &office{
		term:      term,
		start:     start,
		log:       n.log.Named("office"),
		self:      n.self,
		raft:      n.raft,
		committed: n.committed,
		machine:   n.machine,
		gateway:   n.gateway,
		holder:    holder{gone: make(map[fsm.SessionID]time.Duration)},
		links:     make(chan struct{}, 1),
		clock:     n.clock,
		opts:      n.cfg.Options,
		host:      n.scripts,
		fatal:     n.fatal,
		filling:   &fsm.BatchBuilder{},
		accepted:  make(map[fsm.SessionID]uint64),
		sinks:     make(map[fsm.SessionID][]sink),
		lastTick:  lease,
		work:      make(chan struct{}, 1),
		slot:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		stats:     &n.stats,
	}
	o.scripts = o.host.until(o.done)
	if seeded.On(seeded.WallExpiry) {
		o.clock = seededClock(o.clock)
	}
	if seeded.On(seeded.EarlyExpiry) {
		lease += int64(2 * time.Second)
	}
	o.time.Store(&timeBase{lease, o.clock.Mono()})
	o.reads.init(o)
	o.wg.Add(2)
	go o.propose()
	go o.keepTime()
	return o
}

// close ends the office. It does not wait: see join.
func (o *office) close() {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	o.closed = true
	close(o.done)
	ticks := o.ticks
	for _, p := range o.inflight {
		ticks = append(ticks, p.ticks...)
	}
	o.ticks, o.inflight, o.sinks = nil, nil, nil
	o.mu.Unlock()
	poke(o.work)
	poke(o.slot)
	for _, f := range ticks {
		f()
	}
	o.reads.close()
}

// join waits for the office's goroutines.
func (o *office) join() { o.wg.Wait() }

// timeBase ties the lease clock to the node's own: at Mono t0 it was base. base
// is the lease clock at the TermStart, so time without a leader, and time that
// an earlier office measured but never logged, does not count.
type timeBase struct {
	base int64
	t0   time.Duration
}

// now is the office's lease clock: elapsed time, slowed by the drift allowance.
func (o *office) now() int64 {
	t := o.time.Load()
	d := int64(o.clock.Mono() - t.t0)
	if seeded.On(seeded.LateExpiry) {
		d /= 2
	}
	return t.base + d - d/(1e6/driftPPM)
}

// wall is the wall clock as entries carry it, in microseconds.
func (o *office) wall() int64 { return o.clock.Wall().UnixMicro() }

// attach makes s a sink of a session and returns the highest number that the
// office has accepted of it, and the replies that the machine keeps. Results of
// groups in flight go to s from now on; a result may reach it twice.
//
// A session may have several sinks, and each gets every result: a stream that a
// node gave up can arrive, over a slow link, behind the one that it opened next.
// Which of them the node still hears is not known here.
func (o *office) attach(id fsm.SessionID, s sink) (accepted uint64, kept []fsm.GroupResult, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, nil, errNotLeader
	}
	var st fsm.SessionState
	o.machine.view(func(m *fsm.Machine) { st = m.Session(id) })
	if st.Stale {
		return 0, nil, ErrStaleSession
	}
	o.sinks[id] = with(o.sinks[id], s)
	o.accepted[id] = max(o.accepted[id], st.LastSeq)
	poke(o.links)
	if seeded.On(seeded.DoubleApply) {
		return 0, st.Replies, nil // what is under way is sent again
	}
	return o.accepted[id], st.Replies, nil
}

// detach removes s from the sinks of the session.
func (o *office) detach(id fsm.SessionID, s sink) {
	o.mu.Lock()
	if left := without(o.sinks[id], s); len(left) > 0 {
		o.sinks[id] = left
	} else {
		delete(o.sinks, id)
	}
	o.mu.Unlock()
	poke(o.links)
}

// with returns a list that is read without the lock that guards its place, so it
// is never written to: s with v behind.
func with[T any](s []T, v T) []T { return append(slices.Clip(s), v) }

// without returns a list as with does: s without v.
func without[T comparable](s []T, v T) []T {
	return slices.DeleteFunc(slices.Clone(s), func(x T) bool { return x == v })
}

// submit takes a group for the next entry. body is copied.
func (o *office) submit(id fsm.SessionID, ackFloor, seq uint64, body []byte) error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return errNotLeader
	}
	groups, bytes := o.filling.Len()
	if groups > 0 && (bytes+len(body) > o.opts.MaxEntryBytes || groups >= o.opts.MaxEntryGroups) {
		o.full = append(o.full, o.filling)
		o.filling = o.spareBuilder()
	}
	o.filling.Add(id, ackFloor, seq, body)
	o.accepted[id] = max(o.accepted[id], seq)
	wake := groups+1 >= o.turn.enough
	o.mu.Unlock()
	if wake {
		poke(o.work)
	}
	return nil
}

// tick calls f once an entry with a stamp from after this call has been
// applied, or the office has closed.
func (o *office) tick(f func()) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		f()
		return
	}
	o.ticks = append(o.ticks, f)
	o.mu.Unlock()
	poke(o.work)
}

// propose builds entries and hands them to raft, with at most opts.Window of
// them on their way at a time.
func (o *office) propose() {
	defer o.wg.Done()
	for {
		b, p, ok := o.next()
		if !ok {
			return
		}
		header := fsm.Header{Term: o.term, Stamp: o.stamp(), Wall: o.wall(), Seed: rand.Uint64()}
		o.machine.view(func(m *fsm.Machine) { header.HashIndex, header.Hash = m.Hash() })
		if b.Scripts() {
			var err error
			if b, err = o.rehearse(b, header); err != nil {
				o.fatal(err)
				for _, f := range p.ticks {
					f()
				}
				return
			}
		}
		entry := b.Encode(header)
		groups, _ := b.Len()
		b.Reset(2 * o.opts.MaxEntryBytes)
		p.stamped = o.clock.Mono()

		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			for _, f := range p.ticks {
				f()
			}
			return
		}
		o.inflight, o.taken = append(o.inflight, p), false
		o.spare = append(o.spare, b)
		o.mu.Unlock()
		o.stats.Entries.Add(1)
		o.stats.EntryGroups.Observe(float64(groups))
		o.stats.EntryBytes.Observe(float64(len(entry)))
		// The future is not awaited: results come from the machine, in log order,
		// and a future that fails means that leadership has ended, which closes
		// the office. Apply returns when raft's main loop has taken the entry.
		o.raft.Apply(entry, 0)
		if groups > 0 {
			failpoint.Hit(failpoint.EntryProposed)
		}
	}
}

// next waits until there is work and a place in the window, and takes the work:
// as late as possible, so that the entry holds all that has arrived.
func (o *office) next() (*fsm.BatchBuilder, proposal, bool) {
	for {
		o.mu.Lock()
		groups, _ := o.filling.Len()
		work := groups > 0 || len(o.full) > 0 || len(o.ticks) > 0
		switch {
		case o.closed:
			o.mu.Unlock()
			return nil, proposal{}, false
		case o.paused:
			o.mu.Unlock()
			<-o.work
		case work && len(o.inflight) < o.windowLocked():
			if len(o.full) == 0 && len(o.ticks) == 0 && len(o.inflight) == 0 {
				if wait := o.turn.begin(groups); wait > 0 {
					o.takeTurnLocked(wait)
					continue
				}
			}
			o.turn.proposed(groups)
			p := proposal{ticks: o.ticks}
			o.ticks = nil
			var b *fsm.BatchBuilder
			if len(o.full) > 0 {
				b = o.full[0]
				o.full = o.full[1:]
			} else {
				b, o.filling = o.filling, o.spareBuilder()
			}
			o.taken = true
			o.mu.Unlock()
			return b, p, true
		case work:
			o.waitSlot = true
			o.mu.Unlock()
			<-o.slot
		default:
			o.mu.Unlock()
			<-o.work
		}
	}
}

// takeTurnLocked waits until as many groups are there as are expected, and
// unlocks. Whatever else there is to do ends the wait too.
func (o *office) takeTurnLocked(wait time.Duration) {
	select { // what was there before
	case <-o.work:
	default:
	}
	o.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-o.work:
	case <-t.C:
	}
	o.mu.Lock()
	groups, _ := o.filling.Len()
	o.turn.waited(groups)
	o.mu.Unlock()
}

func (o *office) spareBuilder() *fsm.BatchBuilder {
	if n := len(o.spare); n > 0 {
		b := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return b
	}
	return &fsm.BatchBuilder{}
}

// stamp is now, kept from running backwards and from running away.
func (o *office) stamp() int64 {
	now := max(o.now(), o.lastTick)
	if now-o.lastTick > maxAdvance {
		if o.machine.deadline.Load() != 0 { // without a TTL there are no ticks, and nothing that time could do
			o.log.Error("lease clock jumped, step cut", "step", time.Duration(now-o.lastTick), "cut_to", time.Duration(maxAdvance))
		}
		now = o.lastTick + maxAdvance
		o.time.Store(&timeBase{now, o.clock.Mono()})
	}
	o.lastTick = now
	return now
}

// applied is called by the machine, in log order, for every entry of this term.
func (o *office) applied(res *fsm.Result) {
	o.mu.Lock()
	if o.closed || res.Index <= o.start || len(o.inflight) == 0 {
		o.mu.Unlock()
		return
	}
	p := o.inflight[0]
	o.inflight = o.inflight[1:]
	took := o.clock.Mono() - p.stamped
	if len(o.inflight) == 0 {
		waiting, _ := o.filling.Len()
		o.turn.applied(waiting, took)
	}
	o.checkQuietLocked()
	if o.waitSlot {
		o.waitSlot = false
		poke(o.slot)
	}
	sinks := make([][]sink, len(res.Sessions))
	for i, id := range res.Sessions {
		sinks[i] = o.sinks[id]
	}
	woken := make([][]sink, len(res.Woken))
	for i := range res.Woken {
		woken[i] = o.sinks[res.Woken[i].Session]
	}
	o.mu.Unlock()
	if len(res.Groups) > 0 {
		failpoint.Hit(failpoint.EntryApplied)
	}
	o.stats.CommitSeconds.Observe(took.Seconds())
	for i, all := range sinks {
		if len(all) == 0 {
			continue
		}
		groups := groupsOf(res, i)
		for _, s := range all {
			s.deliver(groups)
		}
	}
	for i, all := range woken {
		w := &res.Woken[i]
		if w.Reply == nil || len(w.Reply) > maxRepliesFrame {
			continue
		}
		for _, s := range all {
			s.served(w)
		}
	}
	for _, f := range p.ticks {
		f()
	}
}

// groupsOf picks the results of one session; nearly always an entry holds the
// groups of few sessions.
func groupsOf(res *fsm.Result, session int) []fsm.GroupResult {
	if len(res.Sessions) == 1 {
		return res.Groups
	}
	groups := make([]fsm.GroupResult, 0, len(res.Groups))
	for _, g := range res.Groups {
		if g.Session == session {
			groups = append(groups, g)
		}
	}
	return groups
}

// keepTime tends the waiters, and commits ticks while keys have a TTL: when one is due, so that it
// goes and its going is told, and every TickEvery at the latest, which bounds
// what a failover forgets of the time that has passed.
func (o *office) keepTime() {
	defer o.wg.Done()
	t := time.NewTicker(o.opts.ExpireEvery)
	defer t.Stop()
	pending := make(chan struct{}, 1)
	pending <- struct{}{}
	for {
		select {
		case <-o.done:
			return
		case <-o.links:
			o.tend()
			continue
		case <-t.C:
		}
		o.tend()
		o.reads.watch()
		due := o.machine.deadline.Load()
		now := o.now()
		if due == 0 || (due > now && now-o.machineLease() < int64(o.opts.TickEvery)) {
			continue
		}
		select {
		case <-pending: // one tick of ours at a time
			o.tick(func() { pending <- struct{}{} })
		default:
		}
	}
}

func (o *office) machineLease() int64 {
	var lease int64
	o.machine.view(func(m *fsm.Machine) { lease = m.Clock().Lease })
	return lease
}

// runRead runs a read whose round is confirmed.
func (o *office) runRead(dst []byte, c *call, now int64) (reply []byte, overdue bool, err error) {
	if c.trial {
		reply, err = o.try(c.body)
		return reply, false, err
	}
	return o.machine.read(dst, c.slow, fsm.ReadRequest{Body: c.body, Now: now, Wall: o.wall(), Seed: rand.Uint64(), Runner: o.scripts, Scripts: o.host})
}

// poke puts a token into a channel of capacity 1 unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
