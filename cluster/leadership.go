package cluster

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/commitwait"
	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/metrics"
	"github.com/holdfast-kv/holdfast/cluster/pulse"
	"github.com/holdfast-kv/holdfast/cluster/readindex"
	"github.com/holdfast-kv/holdfast/cluster/trace"
	"github.com/holdfast-kv/holdfast/fsm"
)

// leadership exists on a node from the moment its own state machine has applied
// the TermStart of a term until the node stops being leader. It contains the parts
// that only a leader has: the clock, the proposer, the result receivers of the
// sessions, and the ReadIndex rounds.
//
// Only the goroutine that runs propose passes groups to raft. Groups that arrive
// while an entry is in flight go into the next entry; see package commitwait for
// how long that entry stays open.
type leadership struct {
	term uint64
	// start is the log index of the TermStart. Entries before it do not belong
	// to this leadership, although they may be of the same term.
	start uint64
	leaderParts

	// time is the starting point of the leadership's clock: see now. floor is
	// the lowest lease clock that the next entry may have: see rebase.
	time  atomic.Pointer[timeBase]
	floor atomic.Int64

	reads   *readindex.Rounds[reader]
	scripts fsm.ScriptRunner // runs scripts with leaderParts.host until the leadership ends

	suspender suspender     // used only by keepTime
	pulse     *pulse.Ticker // the ticker of keepTime
	links     chan struct{} // capacity 1: a link has begun or ended
	deferred  chan struct{} // capacity 1: waiters remain that the next entry must serve
	// partNumbers is held while a group of partSession gets its number.
	partNumbers sync.Mutex

	mu             sync.Mutex // guards the fields from closed to commitWait
	closed         bool
	batches        batches
	pipeline       pipeline
	clockWaits     []func() // functions of awaitClockEntry that wait for the next entry
	accepted       map[fsm.SessionID]uint64
	receivers      map[fsm.SessionID][]resultReceiver
	commitWait     commitwait.Wait
	lastEntryStamp int64 // stamp of the last entry, in lease clock nanoseconds; used only by propose

	work chan struct{} // capacity 1: there is something to propose, or the leadership ended
	slot chan struct{} // capacity 1: there is room in the window, or the leadership ended
	done chan struct{} // closed by close
	wg   sync.WaitGroup
}

// leaderParts are the parts of a node that its leadership uses.
type leaderParts struct {
	log       hclog.Logger
	self      raft.ServerID
	raft      *raft.Raft
	committed func() uint64
	changes   func() uint64 // raftlog.Log.Changes
	machine   *machine.Machine
	forwarder *forwarder // forwarder of this node: see checkWaiters
	readers   *execution.Reads
	host      *execution.Scripts
	clock     Clock
	opts      Options
	stats     *metrics.Counters
	traces    *trace.Slot
	fatal     func(error)
}

// proposal is an entry that has been proposed and not applied yet.
type proposal struct {
	clockWaits []func()
	stamped    time.Duration
}

// servedWait is a wait that has ended with a reply, and the receivers of its
// session.
type servedWait struct {
	fsm.Woken
	receivers []resultReceiver
}

// resultReceiver receives the results of one session's groups. Its methods are
// called in log order and must not block.
type resultReceiver interface {
	deliver(groups []fsm.GroupResult)
	// served reports that a client's wait has ended with a reply.
	served(w fsm.Woken)
}

func newLeadership(parts leaderParts, term, start uint64, lease int64) *leadership {
	ld := &leadership{
		term:           term,
		start:          start,
		leaderParts:    parts,
		suspender:      suspender{gone: make(map[fsm.SessionID]absence)},
		links:          make(chan struct{}, 1),
		deferred:       make(chan struct{}, 1),
		batches:        batches{filling: &fsm.BatchBuilder{}},
		pipeline:       pipeline{arrivals: trace.Arrivals{Slot: parts.traces}},
		accepted:       make(map[fsm.SessionID]uint64),
		receivers:      make(map[fsm.SessionID][]resultReceiver),
		lastEntryStamp: lease,
		work:           make(chan struct{}, 1),
		slot:           make(chan struct{}, 1),
		done:           make(chan struct{}),
		pulse:          pulse.New(parts.opts.ExpireEvery, expireRest),
	}
	ld.scripts = ld.host.Runner(ld.done)
	ld.time.Store(&timeBase{lease, ld.clock.Mono()})
	ld.reads = readindex.New(readindex.Config[reader]{
		Term: term, Self: ld.self, Raft: ld.raft, Committed: ld.committed,
		WhenApplied: ld.machine.WhenApplied, Confirmed: ld.confirm,
		Mono: ld.clock.Mono, Retry: ld.opts.ConfirmRetry,
		Rounds: ld.stats.ReadIndexRounds, Reads: ld.stats.ReadGroups, Leased: ld.stats.ReadsLeased,
		Lease: ld.leaseLength, Changes: ld.changes,
	})
	ld.wg.Add(2)
	go ld.propose()
	go ld.keepTime()
	return ld
}

// close ends the leadership. It does not wait for the goroutines: see join.
func (ld *leadership) close() {
	ld.mu.Lock()
	if ld.closed {
		ld.mu.Unlock()
		return
	}
	ld.closed = true
	close(ld.done)
	clockWaits := ld.clockWaits
	for _, p := range ld.pipeline.inflight {
		clockWaits = append(clockWaits, p.clockWaits...)
	}
	ld.clockWaits, ld.pipeline.inflight, ld.receivers = nil, nil, nil
	ld.mu.Unlock()
	signal(ld.work)
	signal(ld.slot)
	for _, f := range clockWaits {
		f()
	}
	ld.reads.Close()
}

// join waits for the leadership's goroutines to end.
func (ld *leadership) join() { ld.wg.Wait() }

// attach adds s to the result receivers of a session. It returns the highest
// number among the session's groups that the leadership has accepted, and the
// session's replies that the state machine has kept. From the call on, s
// receives the results of the groups in flight. It may receive a result twice.
//
// A session may have several result receivers, and each receives every result.
// Over a slow link, a stream that a node gave up can arrive after the stream
// that the node opened next, and the leadership cannot tell which of them the
// node still reads.
func (ld *leadership) attach(
	id fsm.SessionID, s resultReceiver,
) (accepted uint64, kept []fsm.GroupResult, err error) {
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.closed {
		return 0, nil, errNotLeader
	}
	var st fsm.SessionState
	ld.machine.View(func(m *fsm.Machine) { st = m.Session(id) })
	if st.Stale {
		return 0, nil, ErrStaleSession
	}
	ld.receivers[id] = with(ld.receivers[id], s)
	ld.accepted[id] = max(ld.accepted[id], st.LastSeq)
	signal(ld.links)
	return ld.accepted[id], st.Replies, nil
}

// detach removes s from the result receivers of the session.
func (ld *leadership) detach(id fsm.SessionID, s resultReceiver) {
	ld.mu.Lock()
	if left := without(ld.receivers[id], s); len(left) > 0 {
		ld.receivers[id] = left
	} else {
		delete(ld.receivers, id)
	}
	ld.mu.Unlock()
	signal(ld.links)
}

// with returns a copy of s with v appended. The lists of result receivers are
// read after the lock has been released, so they must never be modified in
// place.
func with[T any](s []T, v T) []T { return append(slices.Clip(s), v) }

// without returns a copy of s without v.
func without[T comparable](s []T, v T) []T {
	return slices.DeleteFunc(slices.Clone(s), func(x T) bool { return x == v })
}

// applied handles an applied entry of this term. leaderships.applied calls it for
// every such entry except a TermStart, in log order.
func (ld *leadership) applied(res *fsm.Result, began, ended time.Duration) {
	block := blocked(res.Groups)
	ld.mu.Lock()
	if ld.closed || res.Index <= ld.start || len(ld.pipeline.inflight) == 0 {
		ld.mu.Unlock()
		return
	}
	p := ld.pipeline.inflight[0]
	ld.pipeline.inflight = ld.pipeline.inflight[1:]
	took := ld.clock.Mono() - p.stamped
	if len(ld.pipeline.inflight) == 0 {
		waiting, _ := ld.batches.filling.Len()
		ld.commitWait.Applied(waiting, block, took)
	}
	traced := ld.pipeline.arrivals.Take(res)
	ld.checkQuietLocked()
	if res.Deferred {
		signal(ld.deferred)
	}
	if ld.pipeline.waitSlot {
		ld.pipeline.waitSlot = false
		signal(ld.slot)
	}
	receivers := make([][]resultReceiver, len(res.Sessions))
	for i, id := range res.Sessions {
		receivers[i] = ld.receivers[id]
	}
	var woken []servedWait
	for _, w := range res.Woken {
		if reply := w.Reply(); reply == nil || len(reply) > maxRepliesFrame {
			continue
		}
		if all := ld.receivers[w.Session()]; len(all) > 0 {
			woken = append(woken, servedWait{w, all})
		}
	}
	ld.mu.Unlock()
	if len(res.Groups) > 0 {
		failpoint.Hit(failpoint.EntryApplied)
	}
	ld.stats.CommitSeconds.Observe(took.Seconds())
	if traced != nil {
		now, mono := time.Now(), ld.clock.Mono()
		at := func(t time.Duration) time.Time { return now.Add(t - mono) }
		ld.pipeline.arrivals.Applied(traced, at(p.stamped), at(max(began, p.stamped)), at(max(ended, p.stamped)))
	}
	for i, all := range receivers {
		if len(all) == 0 {
			continue
		}
		groups := groupsOf(res, i)
		for _, s := range all {
			s.deliver(groups)
		}
	}
	for _, w := range woken {
		for _, s := range w.receivers {
			s.served(w.Woken)
		}
	}
	for _, f := range p.clockWaits {
		f()
	}
}

// blocked returns the number of groups whose command blocks.
func blocked(groups []fsm.GroupResult) (n int) {
	for i := range groups {
		if _, _, waits := fsm.Waiting(groups[i].Reply); waits {
			n++
		}
	}
	return n
}

// groupsOf returns the results of one session. It scans all results of the
// entry, because most entries contain the groups of few sessions.
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

// ExpireEvery divided by expireAgain is the pause between two clock entries
// while expired keys are left: see keepTime. During most of this pause, the
// leader can execute the writes of clients.
const expireAgain = 5

// expireRest is the interval of keepTime's checks while clients send nothing to the
// leader, no client waits in a blocking command, and no clock entry is about to be
// due.
const expireRest = 500 * time.Millisecond

// keepTime suspends and removes the waiters of nodes without a link, and commits
// clock entries while the state has a deadline, such as the TTL of a key: see
// fsm.Machine.NextDeadline. When a key has expired, it commits a clock entry, so
// that the key is removed and its events are delivered. One entry removes a
// bounded number of keys (see fsm.FeatureBudget), so keepTime soon commits
// another clock entry if expired keys are left. If waiters are left that the
// next entry must serve (see fsm.FeatureDeferred), it commits a clock entry at
// once. While the state has a deadline, keepTime also commits a clock entry when
// the last entry is ClockEntryEvery old. This bounds how much elapsed time a
// failover loses.
func (ld *leadership) keepTime() {
	defer ld.wg.Done()
	defer ld.pulse.Stop()
	again := time.NewTimer(ld.opts.ExpireEvery)
	defer again.Stop()
	pending := false // set while a clock entry that keepTime has requested is not applied
	applied := make(chan struct{}, 1)
	for {
		select {
		case <-ld.done:
			return
		case <-ld.links:
			ld.checkWaiters()
			ld.pulse.Touch()
			continue
		case <-ld.suspender.partDone():
			if ld.suspender.ended() {
				ld.checkWaiters()
			}
			continue
		case <-applied:
			pending = false
			if !ld.hasDeferred() {
				if due := ld.machine.Deadline(); due != 0 && due <= ld.machineLease() {
					again.Reset(ld.opts.ExpireEvery / expireAgain)
				}
				continue
			}
		case <-ld.deferred:
		case <-again.C:
		case <-ld.pulse.C():
			waiters := ld.checkWaiters()
			ld.reads.Watch()
			ld.pulse.Next(pending || waiters || ld.clockEntryDue(ld.now()+int64(expireRest)))
		case <-ld.pulse.Woken():
			ld.pulse.Next(true)
		}
		if pending || !ld.clockEntryDue(ld.now()) {
			continue
		}
		pending = true
		ld.awaitClockEntry(func() { applied <- struct{}{} })
	}
}

// clockEntryDue reports whether a clock entry is due at the given time of the
// lease clock. A clock entry is due if the earliest deadline of the state has
// passed at that time, or if the state has a deadline and the last entry is at
// least ClockEntryEvery old.
func (ld *leadership) clockEntryDue(at int64) bool {
	due := ld.machine.Deadline()
	return due != 0 && (due <= at || at-ld.machineLease() >= int64(ld.opts.ClockEntryEvery))
}

// read executes a read under the leader's lease if the leader has one and the
// read permits it. Otherwise, the read waits for its ReadIndex round.
func (ld *leadership) read(r reader) {
	ld.pulse.Touch()
	if r.setLeased(true) && ld.reads.Leased(r) {
		return
	}
	r.setLeased(false)
	ld.reads.Add(r)
}

// leaseLength returns the time for which voters promise not to vote, or 0 if
// the leader must not have a lease. Below fsm.FeatureLease, a member may not
// know the frame that asks for a promise, or may not keep the promise after a
// restart.
func (ld *leadership) leaseLength() time.Duration {
	if ld.machine.Features() < fsm.FeatureLease {
		return 0
	}
	return ld.opts.LeaderLease
}

// hasDeferred reports whether the next entry must serve waiters.
func (ld *leadership) hasDeferred() (has bool) {
	ld.machine.View(func(m *fsm.Machine) { has = m.Deferred() > 0 })
	return has
}

func (ld *leadership) machineLease() int64 {
	var lease int64
	ld.machine.View(func(m *fsm.Machine) { lease = m.Clock().Lease })
	return lease
}

// reader is a read at the leader. It runs under the leader's lease, or waits
// for its ReadIndex round.
type reader interface {
	// confirmed is called when the read may run on the current state of the
	// machine. now is the lease clock that decides expiry. index is the lowest
	// log index that the read must include; the machine has applied it.
	// confirmed must return quickly, because its caller may be the goroutine
	// that applies the log.
	confirmed(ld *leadership, now int64, index uint64)
	// setLeased records whether the read runs under the leader's lease. Such a
	// read must call readindex.Rounds.Holds when it has its result. If Holds
	// returns false, the read must discard the result and run again, in a
	// ReadIndex round. setLeased returns false if the read must have a round
	// from the start.
	setLeased(leased bool) (may bool)
	// Lost is called when the leadership ended before the read ran.
	Lost()
}

// maxInline is how many remote reads confirm runs on the goroutine of its
// caller. Each of them may take as long as execution.Reads.ReadInline permits.
const maxInline = 16

// confirm calls the method confirmed of each read. After maxInline remote reads,
// it passes the rest to another goroutine, which calls confirm again.
func (ld *leadership) confirm(readers []reader, index uint64) {
	now, inline := ld.now(), 0
	for i, reader := range readers {
		if _, remote := reader.(*remoteRead); remote {
			if inline++; inline > maxInline {
				go ld.confirm(readers[i:], index)
				return
			}
		}
		reader.confirmed(ld, now, index)
	}
}

// readRun returns the run that executes the read of a call on this leadership.
// now is the lease clock for the read. from is the session of the node whose
// client sent the read. The run fails with fairshare.ErrLost if the leadership
// ends first.
func (ld *leadership) readRun(c *call, now int64, from fsm.SessionID) execution.Run {
	req := fsm.ReadRequest{
		Body: c.body, Now: now, Wall: ld.wall(), Seed: rand.Uint64(),
		Runner: ld.scripts, Scripts: ld.host, Front: c.front,
	}
	return execution.Run{Request: req, Who: execution.WorkerOf(from.NodeID, c.body), Index: c.index, Done: ld.done}
}

// signal puts a token into a channel of capacity 1, unless it contains one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ended reports whether the leadership has ended.
func (ld *leadership) ended() bool {
	select {
	case <-ld.done:
		return true
	default:
		return false
	}
}
