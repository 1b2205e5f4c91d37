package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// gateway is the way of this node's clients to whoever leads. To the log it is
// one session: (node id, boot count), with one number a group. It keeps every
// group until its reply is here, and after a change of leader sends again what
// the new leader has not got; the machine runs nothing twice.
type gateway struct {
	id    fsm.SessionID
	clock Clock
	opts  Options
	stats *Counters

	// coarse is Mono at the last sweep: good enough for deadlines of seconds,
	// and the real clock is a system call.
	coarse atomic.Int64

	mu     sync.Mutex
	closed bool
	writes link // nil while there is no leader
	// pending are the groups with numbers from first on, in order; resolved ones
	// are nil until those before them are resolved too.
	first   uint64
	pending []*call
	// unsent wait for a leader and have no number yet.
	unsent []*call

	answering sync.WaitGroup // goroutines that share answering: see shareLocked

	readMu    sync.Mutex
	readsShut bool
	reads     readLink // nil while there is no leader
	readWait  []*call
}

// link carries groups to the leader.
type link interface {
	// send passes a group on; it copies body and does not block for long. An
	// error, or silence, is no verdict: the link's end is told by unlink.
	send(ackFloor, seq uint64, body []byte) error
}

// readLink carries reads to the leader. It owes every call an end: a reply, or
// giving it back by retryRead.
type readLink interface {
	read(c *call)
}

func newGateway(n *Node) *gateway {
	g := &gateway{id: n.session, clock: n.clock, opts: n.cfg.Options, stats: &n.stats, first: 1}
	g.coarse.Store(int64(n.clock.Mono()))
	return g
}

// write takes a group that must go through the log; the call ends when its
// fate is known.
func (g *gateway) write(c *call) {
	c.since = g.coarse.Load()
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		c.finish(nil, ErrClosed)
		return
	}
	if g.writes == nil {
		g.unsent = append(g.unsent, c)
		g.mu.Unlock()
		return
	}
	g.sendLocked(c)
	g.mu.Unlock()
}

// sendLocked gives the call its number and sends it.
func (g *gateway) sendLocked(c *call) {
	seq := g.first + uint64(len(g.pending))
	c.last = seq
	if c.first == 0 {
		c.first = seq
	}
	g.pending = append(g.pending, c)
	// A send that fails ends the link, which resends after the next handshake.
	_ = g.writes.send(g.first-1, seq, c.body)
}

// foreign reports whether the leader has accepted groups of this session that
// this process never sent. Then another one has had the same session: the data
// directory was copied back, and the count of starts in it has come to the same
// number once more.
func (g *gateway) foreign(accepted uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return accepted >= g.first+uint64(len(g.pending))
}

// floor is the number up to which all replies are here.
func (g *gateway) floor() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first - 1
}

// linked makes l the way to the leader, which has accepted groups up to
// accepted, and sends it the rest.
func (g *gateway) linked(l link, accepted uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes = l
	for i, c := range g.pending {
		if seq := g.first + uint64(i); seq > accepted {
			var body []byte
			if c != nil {
				body = c.body
			} else {
				body = noop // resolved or given up, but its number must not be missing
			}
			_ = l.send(g.first-1, seq, body)
			g.stats.Resent.Add(1)
		}
	}
	if g.first == 1 && len(g.pending) == 0 {
		// The start itself goes into the log, whether or not a client ever writes
		// here: else nobody could tell later that an older directory came back.
		g.pending = append(g.pending, abandoned)
		_ = l.send(0, 1, abandoned.body)
	}
	waiting := g.unsent
	g.unsent = nil
	for _, c := range waiting {
		g.sendLocked(c)
	}
}

// unlinked takes the link away.
func (g *gateway) unlinked(l link) {
	g.mu.Lock()
	if g.writes == l {
		g.writes = nil
	}
	g.mu.Unlock()
}

// noop is a group without operations: RESP2, origin 0.
var noop = []byte{0, 0}

// deliver implements sink: it ends the calls whose groups have an outcome. A
// result may come twice. A group that the log refused (gap, fence) stays
// pending: the link ends and the next handshake sends it again.
func (g *gateway) deliver(groups []fsm.GroupResult) (relink bool) {
	var buf [64]ended
	done := buf[:0]
	g.mu.Lock()
	for i := range groups {
		r := &groups[i]
		if r.Status == fsm.StatusGap || r.Status == fsm.StatusFenced || r.Status == fsm.StatusStale {
			relink = true
			continue
		}
		if r.Seq < g.first || r.Seq >= g.first+uint64(len(g.pending)) {
			continue
		}
		if c := g.pending[r.Seq-g.first]; c != nil {
			g.pending[r.Seq-g.first] = nil
			if c != abandoned {
				done = append(done, endedBy(c, r))
			}
		}
	}
	g.advanceLocked()
	mine := g.shareLocked(done)
	g.mu.Unlock()
	answer(mine)
	return relink
}

// abandoned stands for a call whose client was told that the outcome is not
// known. Its number is still owed to the session: it is sent as a no-op.
var abandoned = &call{body: noop}

func (g *gateway) advanceLocked() {
	n := 0
	for n < len(g.pending) && g.pending[n] == nil {
		n++
	}
	if n == 0 {
		return
	}
	g.first += uint64(n)
	rest := copy(g.pending, g.pending[n:])
	clear(g.pending[rest:])
	g.pending = g.pending[:rest]
}

// read takes a group without writes.
func (g *gateway) read(c *call) {
	c.since = g.coarse.Load()
	g.readMu.Lock()
	l := g.reads
	if l == nil {
		if g.readsShut {
			g.readMu.Unlock()
			c.finish(nil, ErrClosed)
			return
		}
		g.readWait = append(g.readWait, c)
	}
	g.readMu.Unlock()
	if l != nil {
		l.read(c)
	}
}

// requeue takes back a read that its link could not answer. It waits for the
// next link, or for the sweeper if there is none to come.
func (g *gateway) requeue(c *call) {
	g.readMu.Lock()
	if g.readsShut {
		g.readMu.Unlock()
		c.finish(nil, ErrClosed)
		return
	}
	// It may have been under way for longer than LeaderWait, on a link that had
	// died without a word: the wait for a leader begins now.
	c.since = g.coarse.Load()
	g.readWait = append(g.readWait, c)
	g.readMu.Unlock()
}

// confirmed implements reader for a call of this node: its owner reads.
func (c *call) confirmed(o *office, now int64) {
	c.ready, c.now = o, now
	c.done <- struct{}{}
}

// lost implements reader.
func (c *call) lost() { c.gateway.requeue(c) }

// readLinked makes l the way for reads and passes on those that wait; nil takes
// the way away.
func (g *gateway) readLinked(l readLink) {
	g.readMu.Lock()
	g.reads = l
	var waiting []*call
	if l != nil {
		waiting, g.readWait = g.readWait, nil
	}
	g.readMu.Unlock()
	for _, c := range waiting {
		l.read(c)
	}
}

// sweep ends the calls that have waited too long: those never sent, of which
// it is certain that they did not run, after LeaderWait; those sent, whose fate
// is open, after ResolveWait.
func (g *gateway) sweep() {
	mono := g.clock.Mono()
	g.coarse.Store(int64(mono))
	now := int64(mono)
	var refused, unknown []*call
	g.mu.Lock()
	keep := g.unsent[:0]
	for _, c := range g.unsent {
		if now-c.since > int64(g.opts.LeaderWait) {
			refused = append(refused, c)
		} else {
			keep = append(keep, c)
		}
	}
	g.unsent = keep
	for i, c := range g.pending {
		if c != nil && c != abandoned && now-c.since > int64(g.opts.ResolveWait) {
			unknown = append(unknown, c)
			g.pending[i] = abandoned
		}
	}
	g.mu.Unlock()
	g.readMu.Lock()
	keepReads := g.readWait[:0]
	for _, c := range g.readWait {
		if now-c.since > int64(g.opts.LeaderWait) {
			refused = append(refused, c)
		} else {
			keepReads = append(keepReads, c)
		}
	}
	g.readWait = keepReads
	l := g.reads
	var again []*call
	if l != nil { // given back by a link that is still there
		again, g.readWait = g.readWait, nil
	}
	g.readMu.Unlock()
	for _, c := range again {
		l.read(c)
	}
	for _, c := range refused {
		c.finish(nil, ErrNoLeader)
	}
	for _, c := range unknown {
		if seeded.On(seeded.UnknownRefused) {
			c.finish(nil, ErrNoLeader)
			continue
		}
		c.finish(nil, ErrUnknown)
	}
	g.stats.Unknown.Add(float64(len(unknown)))
}

// drained reports whether no group waits for its outcome.
func (g *gateway) drained() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.pending) == 0 && len(g.unsent) == 0
}

// close ends all calls: those never sent as not executed, the others as unknown,
// and those that are being answered as they are.
func (g *gateway) close() {
	g.mu.Lock()
	g.closed = true
	unsent, pending := g.unsent, g.pending
	g.unsent, g.pending = nil, nil
	g.mu.Unlock()
	g.readMu.Lock()
	g.readsShut = true
	unsent = append(unsent, g.readWait...)
	g.readWait = nil
	g.readMu.Unlock()
	for _, c := range unsent {
		c.finish(nil, ErrClosed)
	}
	for _, c := range pending {
		if c != nil && c != abandoned {
			c.finish(nil, ErrUnknown)
		}
	}
	g.answering.Wait()
}

// sweepEvery is how often waiting calls are looked at.
const sweepEvery = 100 * time.Millisecond
