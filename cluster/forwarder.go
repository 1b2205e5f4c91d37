package cluster

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/bytequeue"
	"github.com/holdfast-kv/holdfast/cluster/metrics"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/pulse"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// forwarder sends the groups of this node's clients to the current leader. In
// the log, its groups form one session, which is identified by the node id, the
// identity of the data directory and the start count: see sessionOf. The groups
// of a session are numbered. The forwarder keeps every group until it has the
// group's reply. After a change of leader, it resends the groups that the new
// leader does not have. The state machine executes no group twice.
type forwarder struct {
	id    fsm.SessionID
	clock Clock
	opts  Options
	stats *metrics.Counters

	// coarse is Clock.Mono at the last sweep, in nanoseconds: see recent.
	coarse atomic.Int64
	pulse  *pulse.Ticker // for Node.sweep

	mu      sync.Mutex
	closed  bool
	removed bool // this node is not a member: see expel
	writes  link // nil while there is no leader
	// pending[i] is the group with the number first+i. When the outcome of a
	// group is known, nil takes its place until all groups before it have an
	// outcome too.
	first   uint64
	pending []*call
	// unsent holds the groups that wait for a leader and have no number yet.
	unsent []*call
	// large contains the large groups that wait until earlier large groups have
	// an outcome. They have no number yet either.
	large bytequeue.Queue[*call]

	answering sync.WaitGroup // goroutines started by shareLocked

	readMu    sync.Mutex
	readsShut error    // error with which all further reads fail; nil while reads are accepted
	reads     readLink // nil while there is no leader
	readWait  []*call
}

// link sends groups to the leader.
type link interface {
	// send sends a group. It copies body and does not block for long. Neither
	// an error nor a missing reply says whether the group is executed. When the
	// link ends, its owner calls unlinked.
	send(ackFloor, seq uint64, body []byte) error
}

// readLink sends reads to the leader. It must end every call with a reply or an
// error, or pass the call back to the forwarder with requeue.
type readLink interface {
	read(c *call)
	// forget gives up a read. If it returns true, the link no longer ends the
	// read's call. If it returns false, the read ends as usual.
	forget(c *call) bool
}

func newForwarder(e *environment) *forwarder {
	fw := &forwarder{id: e.session, clock: e.clock, opts: e.cfg.Options, stats: e.stats, first: 1}
	fw.large = bytequeue.Queue[*call]{Room: largeRoom}
	fw.coarse.Store(int64(e.clock.Mono()))
	fw.pulse = pulse.New(sweepEvery, sweepRest)
	return fw
}

// recent returns a recent value of Clock.Mono, in nanoseconds. It is exact enough
// for timeouts of seconds, and usually saves the system call that reads the clock.
func (fw *forwarder) recent() int64 {
	if fw.pulse.Resting() {
		// While the ticker rests, coarse may be old. Renew it, because Touch
		// may end the rest before the next sweep, and later calls of recent
		// then load coarse.
		fw.coarse.Store(int64(fw.clock.Mono()))
	}
	return fw.coarse.Load()
}

// sessionOf returns the session of a node's current start. The session's name
// contains the identity of the data directory. A node that joins again with an
// empty directory counts its starts from 1 again, and its session must differ
// from its earlier sessions.
func sessionOf(h rpc.Hello) fsm.SessionID {
	return fsm.SessionID{NodeID: h.NodeID + "@" + h.Instance, Boot: h.Boot}
}

// memberOf returns the id of the member that owns a session.
func memberOf(id fsm.SessionID) string {
	return id.NodeID[:max(strings.LastIndexByte(id.NodeID, '@'), 0)]
}

// write sends a group that must go through the log. The call ends when the
// group's outcome is known, or when the node reports the outcome as unknown.
func (fw *forwarder) write(c *call) {
	c.since = fw.recent()
	fw.pulse.Touch()
	fw.mu.Lock()
	if fw.closed {
		fw.mu.Unlock()
		c.finish(nil, outcome.ErrClosed)
		return
	}
	if fw.removed {
		fw.mu.Unlock()
		c.finish(nil, outcome.ErrRemoved)
		return
	}
	if fw.writes == nil {
		fw.unsent = append(fw.unsent, c)
		fw.mu.Unlock()
		return
	}
	fw.admitLocked(c)
	fw.mu.Unlock()
}

// A leader writes and replicates the groups of all clients in order, so a group
// waits for all bytes before it. While ten clients set values of 1 MB, this
// wait had a median of a tenth of a second. So a node sends no more than
// largeRoom bytes of large groups at a time, or a single group if that group is
// larger. A group is large if it has more than largeGroup bytes. It is also
// large if the last reply that its connection received through the log had more
// than largeGroup bytes, because the next reply may be as large.
const (
	largeGroup = 16 << 10
	largeRoom  = 512 << 10
)

// admitLocked sends a call if it is not large or there is room for it.
// Otherwise the call waits for the outcome of earlier large groups. The
// forwarder must have a link, and mu must be held.
func (fw *forwarder) admitLocked(c *call) {
	c.weight = max(len(c.body), c.logged)
	switch {
	case c.weight <= largeGroup:
		c.weight = 0
	case !fw.large.Enter(c, c.weight):
		c.queued = fw.recent()
		return
	}
	fw.sendLocked(c)
}

// sendLargeLocked sends the large groups for which there is room now. mu must
// be held.
func (fw *forwarder) sendLargeLocked() {
	for fw.writes != nil {
		c, ok := fw.large.Next()
		if !ok {
			return
		}
		c.since = fw.recent()
		fw.sendLocked(c)
	}
}

// sendLocked assigns the call its number and sends it. mu must be held.
func (fw *forwarder) sendLocked(c *call) {
	seq := fw.first + uint64(len(fw.pending))
	c.last = seq
	if c.first == 0 {
		c.first = seq
	}
	fw.pending = append(fw.pending, c)
	// If a send fails, the link ends. The next link sends the group again.
	_ = fw.writes.send(fw.first-1, seq, c.body)
}

// foreign reports whether the leader has accepted groups of this session that
// this process never sent. Then another process used the same session: an older
// copy of the data directory was restored, and its count of starts has reached
// the same number again.
func (fw *forwarder) foreign(accepted uint64) bool {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return accepted >= fw.first+uint64(len(fw.pending))
}

// floor returns the number up to which all groups have an outcome.
func (fw *forwarder) floor() uint64 {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return fw.first - 1
}

// linked makes l the link to the leader. accepted is the highest number among
// the groups that the leader has accepted. linked sends the groups with higher
// numbers again, and then the groups that have waited for a leader.
func (fw *forwarder) linked(l link, accepted uint64) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.writes = l
	for i, c := range fw.pending {
		if seq := fw.first + uint64(i); seq > accepted {
			var body []byte
			if c != nil {
				body = c.body
			} else {
				body = noop // the group has an outcome, but the numbers must have no gap
			}
			_ = l.send(fw.first-1, seq, body)
			fw.stats.Resent.Add(1)
		}
	}
	if fw.first == 1 && len(fw.pending) == 0 {
		// Every start writes a group into the log, even if no client ever
		// writes through this node. Otherwise the cluster could not recognize
		// an older copy of the data directory later.
		fw.pending = append(fw.pending, abandoned)
		_ = l.send(0, 1, abandoned.body)
	}
	waiting := fw.unsent
	fw.unsent = nil
	for _, c := range waiting {
		fw.admitLocked(c)
	}
	fw.sendLargeLocked()
}

// isLinked reports whether the forwarder has a link to a leader.
func (fw *forwarder) isLinked() bool {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	return fw.writes != nil
}

// unlinked removes the link.
func (fw *forwarder) unlinked(l link) {
	fw.mu.Lock()
	if fw.writes == l {
		fw.writes = nil
		// The wait for a leader begins now: see sweep.
		now := fw.recent()
		fw.large.Waiting(func(c *call) { c.since = now })
	}
	fw.mu.Unlock()
}

// noop is a group without commands: RESP2, origin 0.
var noop = []byte{0, 0}

// deliver receives results from a link. It ends the calls whose groups have an
// outcome, and ignores results that it received before. A group that the state
// machine refused (gap, fence, stale session) stays pending; deliver then returns
// true, so that the link ends and the next link sends the group again.
func (fw *forwarder) deliver(groups []fsm.GroupResult) (relink bool) {
	var buf [64]ended
	done := buf[:0]
	fw.mu.Lock()
	for i := range groups {
		r := &groups[i]
		if r.Status == fsm.StatusGap || r.Status == fsm.StatusFenced || r.Status == fsm.StatusStale {
			relink = true
			continue
		}
		if r.Seq < fw.first || r.Seq >= fw.first+uint64(len(fw.pending)) {
			continue
		}
		if c := fw.pending[r.Seq-fw.first]; c != nil {
			fw.pending[r.Seq-fw.first] = nil
			if c != abandoned {
				fw.large.Leave(c.weight)
				done = append(done, endedBy(c, r))
			}
		}
	}
	fw.advanceLocked()
	fw.sendLargeLocked()
	mine := fw.shareLocked(done)
	fw.mu.Unlock()
	answer(mine)
	return relink
}

// abandoned replaces a call whose client received outcome.ErrUnknown. The state
// machine executes no group after a missing number, so the number must still be
// used: the next link sends a group without commands under this number. If the
// session has no group yet, the method linked sends one, and abandoned stands
// for that group too.
var abandoned = &call{body: noop}

func (fw *forwarder) advanceLocked() {
	n := 0
	for n < len(fw.pending) && fw.pending[n] == nil {
		n++
	}
	if n == 0 {
		return
	}
	fw.first += uint64(n)
	rest := copy(fw.pending, fw.pending[n:])
	clear(fw.pending[rest:])
	fw.pending = fw.pending[:rest]
}

// read sends a group without writes, or lets it wait for a link.
func (fw *forwarder) read(c *call) {
	c.since = fw.recent()
	fw.pulse.Touch()
	fw.readMu.Lock()
	if err := fw.readsShut; err != nil {
		fw.readMu.Unlock()
		c.finish(nil, err)
		return
	}
	l := fw.reads
	if l == nil {
		fw.readWait = append(fw.readWait, c)
	}
	fw.readMu.Unlock()
	if l != nil {
		l.read(c)
	}
}

// requeue takes back a read that its link could not answer. The read waits for
// the next link, or until sweep ends it.
func (fw *forwarder) requeue(c *call) {
	fw.readMu.Lock()
	if err := fw.readsShut; err != nil {
		fw.readMu.Unlock()
		c.finish(nil, err)
		return
	}
	// The read may have been under way for longer than LeaderWait on a link
	// that died silently. So its wait for a leader begins now.
	c.since = fw.recent()
	fw.readWait = append(fw.readWait, c)
	fw.readMu.Unlock()
	fw.pulse.Touch()
}

// forget gives up a read. If it returns false, the read ends as usual.
func (fw *forwarder) forget(c *call) bool {
	fw.readMu.Lock()
	defer fw.readMu.Unlock()
	if i := slices.Index(fw.readWait, c); i >= 0 {
		fw.readWait = slices.Delete(fw.readWait, i, i+1)
		return true
	}
	return fw.reads != nil && fw.reads.forget(c)
}

// confirmed implements reader for a call of this node. The call's owner runs
// the read.
func (c *call) confirmed(ld *leadership, now int64, index uint64) {
	c.ready, c.now, c.index = ld, now, index
	c.done <- struct{}{}
}

// setLeased implements reader. A read that may take long gets a round, because
// the lease would often end before the read does, and the read would then be
// executed again.
func (c *call) setLeased(leased bool) bool {
	c.leased = leased
	return !c.unleased && !c.slow && !c.dryRun && !c.lengthy
}

// Lost implements reader. It passes the read back to the forwarder.
func (c *call) Lost() { c.forwarder.requeue(c) }

// readLinked makes l the link for reads and sends the waiting reads. A nil l
// removes the link.
func (fw *forwarder) readLinked(l readLink) {
	fw.readMu.Lock()
	fw.reads = l
	var waiting []*call
	if l != nil {
		waiting, fw.readWait = fw.readWait, nil
	}
	fw.readMu.Unlock()
	for _, c := range waiting {
		l.read(c)
	}
}

// sweep ends the calls that have waited too long. A call that waits for a leader
// ends after LeaderWait as not executed. A write that waits for earlier large
// groups ends after ResolveWait as not executed. A write that was sent ends after
// ResolveWait as unknown. sweep reports whether writes without an outcome, or
// reads without a link, are left.
func (fw *forwarder) sweep() (left bool) {
	mono := fw.clock.Mono()
	fw.coarse.Store(int64(mono))
	now := int64(mono)
	var refused []*call
	fw.mu.Lock()
	keep := fw.unsent[:0]
	for _, c := range fw.unsent {
		if now-c.since > int64(fw.opts.LeaderWait) {
			refused = append(refused, c)
		} else {
			keep = append(keep, c)
		}
	}
	fw.unsent = keep
	if fw.writes == nil {
		refused = append(refused, fw.large.Remove(func(c *call) bool {
			return now-c.since > int64(fw.opts.LeaderWait)
		})...)
	}
	crowded := fw.large.Remove(func(c *call) bool { return now-c.queued > int64(fw.opts.ResolveWait) })
	unknown := fw.abandonLocked(func(c *call) bool { return now-c.since > int64(fw.opts.ResolveWait) })
	left = len(fw.unsent)+len(fw.pending)+fw.large.Len() > 0
	fw.mu.Unlock()
	fw.readMu.Lock()
	keepReads := fw.readWait[:0]
	for _, c := range fw.readWait {
		if now-c.since > int64(fw.opts.LeaderWait) {
			refused = append(refused, c)
		} else {
			keepReads = append(keepReads, c)
		}
	}
	fw.readWait = keepReads
	left = left || len(fw.readWait) > 0
	l := fw.reads
	var again []*call
	if l != nil { // a link put these reads back, and there is a link again
		again, fw.readWait = fw.readWait, nil
	}
	fw.readMu.Unlock()
	for _, c := range again {
		l.read(c)
	}
	for _, c := range refused {
		c.finish(nil, outcome.ErrNoLeader)
	}
	for _, c := range crowded {
		c.finish(nil, outcome.ErrCrowded)
	}
	fw.endUnknown(unknown)
	return left
}

// expel makes the forwarder refuse new groups and reads, because this node is no
// longer a member. Groups that were sent keep waiting for their replies until
// the link ends: see giveUp.
func (fw *forwarder) expel() {
	fw.mu.Lock()
	fw.removed = true
	refused := append(fw.unsent, fw.large.Remove(anyCall)...)
	fw.unsent = nil
	fw.mu.Unlock()
	fw.readMu.Lock()
	if fw.readsShut == nil {
		fw.readsShut = outcome.ErrRemoved
	}
	refused = append(refused, fw.readWait...)
	fw.readWait = nil
	fw.readMu.Unlock()
	for _, c := range refused {
		c.finish(nil, outcome.ErrRemoved)
	}
}

// readmit undoes expel.
func (fw *forwarder) readmit() {
	fw.mu.Lock()
	fw.removed = false
	fw.mu.Unlock()
	fw.readMu.Lock()
	if fw.readsShut == outcome.ErrRemoved {
		fw.readsShut = nil
	}
	fw.readMu.Unlock()
}

// giveUp ends all groups that were sent, with an unknown outcome, if this node
// is not a member and has no link. No leader will report the outcome of these
// groups.
func (fw *forwarder) giveUp() {
	fw.mu.Lock()
	var unknown []*call
	if fw.removed && fw.writes == nil {
		unknown = fw.abandonLocked(func(*call) bool { return true })
	}
	fw.mu.Unlock()
	fw.endUnknown(unknown)
}

// abandonLocked puts the call abandoned in place of each sent group for which
// match returns true, and returns the groups that it has replaced. mu must be
// held.
func (fw *forwarder) abandonLocked(match func(*call) bool) (unknown []*call) {
	for i, c := range fw.pending {
		if c != nil && c != abandoned && match(c) {
			unknown = append(unknown, c)
			fw.pending[i] = abandoned
			fw.large.Leave(c.weight)
		}
	}
	fw.sendLargeLocked()
	return unknown
}

// endUnknown ends calls whose outcome this node cannot learn.
func (fw *forwarder) endUnknown(calls []*call) {
	for _, c := range calls {
		c.finish(nil, outcome.ErrUnknown)
	}
	fw.stats.Unknown.Add(float64(len(calls)))
}

// drained reports whether no group of a client waits for its outcome. An
// abandoned group still counts, unless this node was removed: no leader accepts
// groups from a removed node.
func (fw *forwarder) drained() bool {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	waits := func(c *call) bool {
		switch c {
		case nil:
			return false
		case abandoned:
			return !fw.removed
		}
		return !c.housekeeping
	}
	return !slices.ContainsFunc(fw.pending, waits) && !slices.ContainsFunc(fw.unsent, waits) && fw.large.Len() == 0
}

func anyCall(*call) bool { return true }

// close refuses new calls, and ends all calls except the reads that a link has.
// Such a read ends when the link answers it or passes it back. Writes that were
// sent end as unknown, the other calls as not executed. close waits for the
// goroutines that are answering calls.
func (fw *forwarder) close() {
	fw.mu.Lock()
	fw.closed = true
	unsent, pending := append(fw.unsent, fw.large.Remove(anyCall)...), fw.pending
	fw.unsent, fw.pending = nil, nil
	fw.mu.Unlock()
	fw.readMu.Lock()
	fw.readsShut = outcome.ErrClosed
	unsent = append(unsent, fw.readWait...)
	fw.readWait = nil
	fw.readMu.Unlock()
	for _, c := range unsent {
		c.finish(nil, outcome.ErrClosed)
	}
	for _, c := range pending {
		if c != nil && c != abandoned {
			c.finish(nil, outcome.ErrUnknown)
		}
	}
	fw.answering.Wait()
}

// sweepEvery is the time between two sweeps. sweepRest is the time between two
// sweeps while no calls and no waiters of this node wait: see pulse.Ticker.
const (
	sweepEvery = 100 * time.Millisecond
	sweepRest  = 500 * time.Millisecond
)
