package cluster

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/trace"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Session executes the groups of one client connection, one group at a time. It
// is not safe for concurrent use.
type Session struct {
	node *Node
	call call
	buf  []byte

	watch execution.WatchFunc        // nil for none: see WatchClient
	piece func(group uint64, op int) // nil for none: see OnPiece

	// reading is set if the last attempt to execute a script as a read has
	// succeeded. logging is set if the reply to the last operation with a dry
	// run went through the log and was large: see single.
	reading, logging bool

	wait   *wait     // the current wait: see Block
	origin uint64    // id of the connection that waits
	lock   ownedLock // see WaitsFor
}

// call is a group that is being executed. Its owner is the goroutine of its
// Session. Once the owner has passed the call to the forwarder, it must not
// change the call, or read a field that other goroutines set, until it has
// received a token from done.
type call struct {
	forwarder *forwarder

	body []byte
	slow bool
	// housekeeping says that no client waits for the outcome.
	housekeeping bool
	// reads is set while Do executes a group that only reads. lengthy is set if
	// such a group may take long.
	reads, lengthy bool
	// dryRun requests a dry run of the group instead of a read: see
	// script_dryrun.go.
	dryRun bool
	done   chan struct{} // capacity 1: a token returns the call to its owner

	// logged is the size in bytes of the connection's last reply that went
	// through the log. weight is the number of bytes that the call occupies in
	// forwarder.large, 0 if the group is not large: see forwarder.admitLocked.
	logged, weight int

	reply []byte
	err   error
	// early, if not nil, is called with the replies before the owner is woken:
	// see answer.
	early func(replies []byte)
	// ready, if not nil, asks the owner to run the read itself, on this
	// leadership. The field now is the lease clock for the read.
	ready *leadership

	// first and last are the first and the last number that the forwarder has
	// assigned to the group since Do began. A group that is executed in pieces
	// gets several numbers. Both fields are 0 if the group has none.
	first, last uint64

	// leased is set if the leader answers the read under its lease: see
	// reader.setLeased. unleased is set if the read must have a ReadIndex
	// round.
	leased, unleased bool

	now   int64  // lease clock for the read; valid with ready or at
	index uint64 // lowest log index that the read must include; valid with ready
	// front, if not nil, allows a read to return only the first part of its
	// replies.
	front *fsm.Front
	// at, if not 0, asks the owner to run the read on this node's state
	// machine, once it has applied this log index: see readHere.
	at    uint64
	since int64 // forwarder.recent when the call's current wait began
	// queued is forwarder.recent when the call began to wait in
	// forwarder.large.
	queued int64
}

func (c *call) finish(reply []byte, err error) {
	c.reply, c.err = reply, err
	c.done <- struct{}{}
}

// NewSession returns a session for a connection.
func (n *Node) NewSession() *Session {
	return &Session{node: n, call: call{forwarder: n.forwarder, done: make(chan struct{}, 1)}}
}

// Do executes a group and returns its replies, which are valid until the next
// Do. It blocks until the outcome is known, or until it is clear that the
// outcome stays unknown. A non-nil error is an outcome.Error. The group must not
// change until Do returns. Reads are linearizable, unless local is set: then they
// see this node's state, which may be old.
//
// If g.Front is not nil and a reply is large, Do may leave the reply, or the last
// replies, in g.Front: see fsm.Front. It does so for groups of reads, and for a
// group whose only command is a script, if it has executed the script as a read.
//
// If early is not nil, Do calls it at most once, with the replies of a group
// that writes, before it returns the same replies without an error. early runs
// on a goroutine that then answers other connections, so it must not block.
func (s *Session) Do(g *fsm.Group, local bool, early func(replies []byte)) ([]byte, error) {
	c := &s.call
	c.body, c.slow, c.reply, c.err, c.ready, c.early = g.Bytes(), g.Slow, nil, nil, nil, nil
	c.first, c.last, c.front, c.at, c.unleased = 0, 0, g.Front, 0, false
	if g.Front != nil {
		*g.Front = fsm.Front{Most: g.Front.Most}
	}
	if g.Feature > 0 && s.node.FeatureVersion(g.Feature) < g.Feature {
		return nil, outcome.ErrFeature
	}
	if g.Grow > 0 && g.Grow == g.Ops() {
		// The leader would refuse the whole group too. A refusal here takes no
		// space in the log.
		if refusal := s.node.growthRefusal(); refusal != "" {
			if refusal == fsm.MsgOOM {
				s.node.stats.MemoryRefused.Add(float64(g.Ops()))
			}
			reply := fsm.RefuseGrowth(s.buf[:0], c.body, refusal)
			s.keep(reply)
			return reply, nil
		}
	}
	if !g.Write {
		c.reads, c.lengthy = true, execution.Lengthy(g)
		reply, err := s.read(local)
		c.reads = false
		if !errors.Is(err, fsm.ErrUnlogged) {
			return reply, readFailed(err)
		}
		c.reply, c.err, c.front = nil, nil, nil
	}
	if s.reading {
		if reply, read, err := s.scriptAsRead(); read || err != nil {
			return reply, err
		}
		c.reply, c.err, c.first, c.last = nil, nil, 0, 0
	}
	if g.Write {
		c.early = early
	}
	s.log()
	if c.err == nil && (fsm.TooLong(c.reply) || fsm.TooLarge(c.reply)) {
		return s.inPieces()
	}
	return c.reply, c.err
}

// log sends the group of the call through the log and waits for its outcome.
func (s *Session) log() {
	c := &s.call
	s.node.forwarder.write(c)
	<-c.done
	if c.err == nil && !fsm.TooLong(c.reply) && !fsm.TooLarge(c.reply) {
		c.logged = len(c.reply)
	}
}

// memoryRefused reports whether this node, as leader, refuses commands that add
// data because the data set is larger than maxmemory. On a follower, it returns
// false: the follower's state may be older than a deletion that the leader has
// acknowledged.
func (n *Node) memoryRefused() bool { return n.machine.TooLarge() && n.raft.leads() }

// RefuseQueued reports whether this node, as leader, refuses to queue a command of
// a transaction that adds data, because the data set is larger than maxmemory. If
// so, it counts the refusal.
func (n *Node) RefuseQueued() bool {
	if !n.memoryRefused() {
		return false
	}
	n.stats.MemoryRefused.Inc()
	return true
}

// growthRefusal returns the error with which the cluster refuses commands that
// add data, or "" if this node knows of none. It does not ask the leader.
func (n *Node) growthRefusal() string {
	if n.memoryRefused() {
		return fsm.MsgOOM
	}
	return n.disk.Full()
}

// noRoom returns the error with which this node, as leader, refuses commands
// that add data, or "". The leader calls it before it proposes an entry.
func (n *Node) noRoom() string {
	if n.machine.TooLarge() {
		return fsm.MsgOOM
	}
	return n.disk.Full()
}

// Sent returns the numbers of the first and the last group that the last Do
// sent through the log. They differ if Do executed its group in pieces. Both
// are 0 if Do sent no group.
func (s *Session) Sent() (first, last uint64) { return s.call.first, s.call.last }

// Traced reports whether the group with this number, as Sent returned it, is
// traced. The number is 0 for a group that was not sent through the log.
func (s *Session) Traced(number uint64) bool {
	r := s.node.traces.Get()
	return r != nil && r.Sampled(trace.Group{Session: s.node.session, Number: number})
}

// Trace records the stages of a group for which Traced has returned true.
// command is the name of the group's first command. begun is the time at which
// Do was called, replied is the time at which it returned, and sent is the time
// at which the replies were passed to the socket of the client.
func (s *Session) Trace(number uint64, command string, begun, replied, sent time.Time) {
	middle := trace.Forward
	if number == 0 {
		middle = trace.Read
	}
	s.node.traces.Get().Record(trace.Group{Session: s.node.session, Number: number}, command,
		trace.Span{Name: trace.Command, Start: begun, End: sent},
		trace.Span{Name: middle, Start: begun, End: replied},
		trace.Span{Name: trace.Reply, Start: replied, End: sent})
}

// OnPiece sets the function that reports the pieces of a group to the caller.
// If Do executes its group in pieces, it calls f, on its own goroutine, after
// each executed piece that may write. group is the number of the piece, as in
// Sent. For a script that was executed as a read, group is the number of an
// earlier piece, or 0. op is the position of the piece's first operation in the
// whole group. A nil function, the initial value, is not called.
func (s *Session) OnPiece(f func(group uint64, op int)) { s.piece = f }

// read executes the call's group as a read.
func (s *Session) read(local bool) ([]byte, error) {
	c := &s.call
	if local {
		n := s.node
		if n.status.removal.removed.Load() { // the state of a removed node no longer changes
			return nil, outcome.ErrRemoved
		}
		// The read must see everything that this connection has seen before.
		run := execution.Run{
			Request: fsm.ReadRequest{
				Body: c.body, Seed: rand.Uint64(),
				Runner: n.scripts.Runner(n.ctx.Done()), Scripts: n.scripts, Front: c.front,
			},
			Index: n.machine.Applied(), Done: n.ctx.Done(), Watch: s.watching(),
			Who: execution.WorkerOf(n.session.NodeID, c.body),
		}
		reply, _, err := n.reads.Read(s.buf[:0], run)
		if errors.Is(err, fairshare.ErrLost) {
			err = outcome.ErrClosed
		}
		s.keep(reply)
		return reply, err
	}
	for {
		c.front.Reset() // discard the state of an earlier attempt: this reply may be complete
		s.node.forwarder.read(c)
		if !s.awaitRead() {
			return nil, execution.ErrClientLeft
		}
		if c.at > 0 && c.err == nil {
			reply, expiryPending, err := s.readHere()
			if err == nil && expiryPending {
				continue // the leader commits a clock entry
			}
			return reply, err
		}
		if c.err != nil || c.ready == nil {
			return c.reply, c.err
		}
		ld := c.ready
		c.ready = nil
		reply, expiryPending, err := s.readThere(ld)
		s.keep(reply)
		// The leadership has closed, so ask the next leader.
		if errors.Is(err, fairshare.ErrLost) {
			continue
		}
		if err != nil || !expiryPending {
			if err == nil && c.leased && !ld.reads.Holds() {
				c.unleased = true
				continue
			}
			return reply, err
		}
		// The reply depends on an expired key whose expiry is not committed
		// yet. Commit a clock entry, then read again. If the leadership closes
		// meanwhile, the read starts over at the next leader.
		ld.awaitClockEntry(func() { c.done <- struct{}{} })
		<-c.done
	}
}

// WatchClient sets the function that watches the session's client. A slow read
// then ends when the client leaves, and so does a costly pipeline with large
// replies: see inPieces. A nil function, the initial value, watches no client.
// The session calls watch while Do runs. Before Do returns, the session calls
// the function stop that watch has returned.
func (s *Session) WatchClient(watch execution.WatchFunc) { s.watch = watch }

// watching returns the watch function for the group of the call, nil for none.
// It returns nil for a group that writes, because such a group is executed,
// with its reads, even if the client has left. inPieces watches the client
// itself.
func (s *Session) watching() execution.WatchFunc {
	if s.call.reads {
		return s.watch
	}
	return nil
}

// awaitRead waits until the forwarder has ended the read of the call. It
// returns false if the client has left first and the read was given up.
func (s *Session) awaitRead() bool {
	c := &s.call
	watch := s.watching()
	if watch == nil || !c.lengthy {
		<-c.done
		return true
	}
	t := time.NewTimer(execution.WatchAfter)
	defer t.Stop()
	select {
	case <-c.done:
		return true
	case <-t.C:
	}
	left, stop, err := watch()
	if err == nil {
		defer stop()
		select {
		case <-c.done:
			return true
		case <-left:
		}
	}
	for !s.node.forwarder.forget(c) {
		t.Reset(execution.WatchAfter)
		select {
		case <-c.done:
			return true
		case <-t.C: // the leader may be running the read now
		}
	}
	return false
}

// readThere runs the call on a leadership of this node.
func (s *Session) readThere(ld *leadership) (reply []byte, expiryPending bool, err error) {
	c := &s.call
	if c.dryRun {
		reply, err = ld.runDry(c.body)
		return reply, false, err
	}
	run := ld.readRun(c, c.now, s.node.session)
	run.Watch = s.watching()
	return ld.readers.Read(s.buf[:0], run)
}

// readHere runs a read with large replies on this node's state machine, once it
// has applied the log index that the leader had when it confirmed the read.
// This way the leader does not send large replies for the clients of other
// nodes, and those nodes need not hold replies that their clients are slow to
// receive.
func (s *Session) readHere() (reply []byte, expiryPending bool, err error) {
	c, n := &s.call, s.node
	at := c.at
	c.at = 0
	ready := make(chan bool, 1)
	n.machine.WhenApplied(at, func(ok bool) { ready <- ok })
	t := time.NewTimer(n.cfg.Options.ResolveWait)
	defer t.Stop()
	select {
	case ok := <-ready:
		if !ok {
			return nil, false, outcome.ErrClosed
		}
	case <-t.C:
		return nil, false, outcome.ErrBehind
	}
	req := fsm.ReadRequest{
		Body: c.body, Now: c.now, Wall: n.clock.Wall().UnixMicro(), Seed: rand.Uint64(),
		Runner: n.scripts.Runner(n.ctx.Done()), Scripts: n.scripts, Front: c.front,
	}
	run := execution.Run{
		Request: req, Index: at, Done: n.ctx.Done(), Watch: s.watching(),
		Who: execution.WorkerOf(n.session.NodeID, c.body),
	}
	reply, expiryPending, err = n.reads.Read(s.buf[:0], run)
	if errors.Is(err, fairshare.ErrLost) {
		err = outcome.ErrClosed
	}
	s.keep(reply)
	return reply, expiryPending, err
}

// keep stores a reply buffer of up to 16 KiB for the next read.
func (s *Session) keep(buf []byte) {
	if cap(buf) <= 16<<10 {
		s.buf = buf
	} else {
		s.buf = nil
	}
}

// ended is a call with its outcome.
type ended struct {
	c     *call
	reply []byte
	err   error
}

func endedBy(c *call, r *fsm.GroupResult) ended {
	switch {
	case r.Status == fsm.StatusReplyLost:
		return ended{c: c, err: outcome.ErrReplyLost}
	// An empty reply means that the leader does not know a command, because
	// every command has a reply: see writeStream.
	case len(r.Reply) == 0:
		return ended{c: c, err: outcome.ErrRefused}
	default:
		return ended{c: c, reply: r.Reply}
	}
}

// minShare is the smallest number of calls that is worth its own goroutine.
const minShare = 8

// shareLocked divides the calls that an entry has ended. If there are many, it
// starts goroutines that answer parts of them, so that several processors share
// the work. It returns the calls that the caller must answer. mu must be held.
func (fw *forwarder) shareLocked(done []ended) []ended {
	procs := runtime.GOMAXPROCS(0)
	share := max(minShare, (len(done)+procs-1)/procs)
	for len(done) > share {
		part := slices.Clone(done[:share])
		done = done[share:]
		fw.answering.Go(func() { answer(part) })
	}
	return done
}

// answer ends calls. For calls with an early function, it first sends all
// replies, one after another, and only then wakes the goroutines that wait for
// the calls.
//
// If each waiting goroutine sent its own reply, it would then read its next
// command, so the goroutines would alternate with the clients and wake a client
// for every reply. Most clients use one thread for many connections, and such a
// client is woken once for all replies that are sent together. On two
// processors this reduced the kernel's time for a write by a third.
func answer(done []ended) {
	for i := range done {
		if e := &done[i]; e.err == nil && e.c.early != nil && !fsm.TooLong(e.reply) && !fsm.TooLarge(e.reply) {
			e.c.early(e.reply)
		}
	}
	for i := range done {
		done[i].c.finish(done[i].reply, done[i].err)
	}
}
