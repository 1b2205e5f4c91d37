package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failover"
	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Types of frames between a node and the leader. Numbers are encoded as
// uvarints.
const (
	// Write stream:
	frameOpen    = 'O' // node: ack floor
	frameOpened  = 'o' // leader: term | highest number accepted
	frameRefused = 'x' // leader: reason
	frameSubmit  = 'S' // node: ack floor | number | group
	frameReplies = 'R' // leader: (number | status | length | replies) …
	frameServed  = 'V' // leader: connection | waiter | reply
	// Read stream:
	frameRead      = 'Q' // node: id | kind, see readQuick | group
	frameVouched   = 'q' // node: id | kind | term | group; the node follows the leader in the term
	frameCancel    = 'X' // node: id; the leader ends the read and sends no answer
	frameAnswer    = 'A' // leader: id | answer | replies or error text
	frameConfirm   = 'C' // leader: term | nonce
	framePromise   = 'L' // leader: term | nonce | microseconds; also asks for a promise not to vote during that time
	frameConfirmed = 'c' // node: term | nonce | unconfirmed, confirmed or promised
	// Both streams:
	framePing = 'P' // node: empty
	framePong = 'p' // leader: on a read stream, pongVouched; otherwise empty
)

// pongVouched is the content of the pongs on a read stream, if the leader knows
// frameVouched.
const pongVouched = "v"

// pingsPerWait and maxPings let a node detect a dead connection. A connection
// can die silently, and TCP retransmits for about a quarter of an hour before
// it reports the failure. So a node sends pings on both streams, pingsPerWait
// in each LeaderWait. It replaces a link if one of the streams has received
// nothing while maxPings pings were sent.
const (
	pingsPerWait = 5
	maxPings     = 10
)

// Kinds of answers to a read.
const (
	answerOK    = 0
	answerRetry = 1 // the leadership ended: ask the next leader
	answerError = 2
	answerLog   = 3 // the group must go through the log: fsm.ErrUnlogged
	answerHere  = 4 // log index, lease clock: the node must run the read itself, once it has applied the index
)

// These are the answers that frameConfirmed contains.
const (
	unconfirmed = 0
	confirmed   = 1
	promised    = 2 // confirmed, and the node has given the promise that framePromise asks for
)

// longestPromise is the longest promise that a node gives. It is longer than
// every lease that Config.Validate permits with a usual HeartbeatTimeout, and
// bounds how long a damaged frame could keep this node from voting.
const longestPromise = time.Minute

// localLink is the link to a leadership on the same node. It needs no stream.
type localLink struct {
	ld *leadership
	fw *forwarder
	// broken makes the linker replace the link.
	broken func()
}

func (l *localLink) send(ackFloor, seq uint64, body []byte) error {
	return l.ld.submit(l.fw.id, ackFloor, seq, body)
}

func (l *localLink) deliver(groups []fsm.GroupResult) {
	if l.fw.deliver(groups) {
		l.broken()
	}
}

// served implements resultReceiver. It does nothing, because this node's own
// state machine wakes its clients.
func (l *localLink) served(fsm.Woken) {}

func (l *localLink) read(c *call) { l.ld.read(c) }

// forget implements readLink. It returns false, because a read of this node
// waits only for the leadership's confirmation. The read's session then runs
// it.
func (l *localLink) forget(*call) bool { return false }

// remoteLink is the link to a leader on another node. It has one stream for
// writes and one for reads, so that a leadership confirmation never waits
// behind large writes.
type remoteLink struct {
	fw     *forwarder
	waits  *waits
	writes *rpc.Stream
	reads  *rpc.Stream
	raft   *raft.Raft
	leader raft.ServerID
	term   uint64 // the term of the leadership
	// vouched says that the leader knows frameVouched.
	vouched atomic.Bool
	// pieces reports whether the leader knows readPiece, and cancels reports
	// whether it knows frameCancel.
	pieces, cancels func() bool
	promise         func(d time.Duration) error // raftlog.Log.Promise

	writesUnheard, readsUnheard atomic.Int32 // pings sent since the stream last received a frame

	mu    sync.Mutex
	ended bool
	next  uint64
	calls map[uint64]*call // reads that have been sent and not answered
}

// linker connects the forwarder to the leader. It owns the link, and ends it
// before it makes the next one.
type linker struct {
	*environment
	raft        *raftInstance
	machine     *machine.Machine
	mux         *rpc.Mux
	peers       *peers
	forwarder   *forwarder
	waits       *waits
	leaderships *leaderships
	leading     *leading
	health      *health.Book
	promise     func(d time.Duration) error // raftlog.Log.Promise
	failover    *failover.Campaigner
	removal     *removalWatch
}

// dialLeader opens both streams to the leader. It returns the highest number
// among this node's groups that the leadership has accepted, as the leader
// reports it on the write stream.
func (k *linker) dialLeader(
	ctx context.Context, addr raft.ServerAddress, id raft.ServerID,
) (*remoteLink, uint64, error) {
	writes, err := k.mux.Dial(ctx, string(addr), rpc.ServiceWrite, string(id))
	if err != nil {
		return nil, 0, err
	}
	stop := context.AfterFunc(ctx, func() { writes.Close() })
	defer stop()
	term, accepted, err := k.openSession(writes)
	if err != nil {
		writes.Close()
		return nil, 0, err
	}
	reads, err := k.mux.Dial(ctx, string(addr), rpc.ServiceRead, string(id))
	if err != nil {
		writes.Close()
		return nil, 0, err
	}
	l := &remoteLink{
		fw: k.forwarder, waits: k.waits, writes: writes, reads: reads,
		raft: k.raft.running(), leader: id, term: term, calls: make(map[uint64]*call),
		pieces:  func() bool { return k.machine.Features() >= fsm.FeatureBudget },
		cancels: func() bool { return k.machine.Features() >= fsm.FeatureBudget },
		promise: k.promise,
	}
	return l, accepted, nil
}

func (k *linker) openSession(s *rpc.Stream) (term, accepted uint64, err error) {
	if err := s.Send(frameOpen, binary.AppendUvarint(nil, k.forwarder.floor())); err != nil {
		return 0, 0, err
	}
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return 0, 0, err
		}
		switch typ {
		case frameReplies: // replies that the state machine has kept
			if err := k.forwarder.takeReplies(payload); err != nil {
				return 0, 0, err
			}
		case frameRefused:
			if string(payload) == ErrStaleSession.Error() {
				return 0, 0, ErrStaleSession
			}
			return 0, 0, fmt.Errorf("%w: %s", errRefused, payload)
		case frameOpened:
			term, k := binary.Uvarint(payload)
			accepted, k2 := binary.Uvarint(payload[max(k, 0):])
			if k <= 0 || k2 <= 0 {
				return 0, 0, errFrame
			}
			return term, accepted, nil
		default:
			return 0, 0, errFrame
		}
	}
}

var (
	errRefused = errors.New("leader refused the session")
	errFrame   = errors.New("peer sent a malformed frame")
	errRelink  = errors.New("leader did not execute a group: opening the session again")
	errSilent  = errors.New("leader does not answer pings")
	// errLeaderless differs from outcome.ErrNoLeader, which is the outcome of a
	// group.
	errLeaderless = errors.New("no leader is known")
	errRemoved    = errors.New("this node was removed from the cluster")
)

// run serves the link until one of its streams ends. It then closes the link
// and passes its reads back to the forwarder.
func (l *remoteLink) run() error {
	var wg sync.WaitGroup
	wg.Add(1)
	var readErr error
	go func() {
		defer wg.Done()
		defer l.writes.Close()
		readErr = l.serveReads()
	}()
	err := l.serveWrites()
	l.close()
	wg.Wait()
	if err == nil {
		err = readErr
	}
	l.mu.Lock()
	l.ended = true
	calls := l.calls
	l.calls = nil
	l.mu.Unlock()
	for _, c := range calls {
		l.fw.requeue(c)
	}
	return err
}

func (l *remoteLink) close() {
	l.writes.Close()
	l.reads.Close()
}

// ping sends a ping on both streams. It fails if one of them has received
// nothing for maxPings pings.
func (l *remoteLink) ping() error {
	if l.writesUnheard.Add(1) > maxPings || l.readsUnheard.Add(1) > maxPings {
		return errSilent
	}
	nothing := func(dst []byte) []byte { return dst }
	return errors.Join(l.writes.TrySendFunc(framePing, nothing), l.reads.TrySendFunc(framePing, nothing))
}

func (l *remoteLink) serveWrites() error {
	for {
		typ, payload, err := l.writes.Recv()
		if err != nil {
			return err
		}
		l.writesUnheard.Store(0)
		switch typ {
		case frameReplies:
			err = l.fw.takeReplies(payload)
		case frameServed:
			err = l.waits.takeServed(payload)
		case framePong:
		default:
			err = errFrame
		}
		if err != nil {
			return err
		}
	}
}

// takeReplies decodes a frame of replies and delivers them.
func (fw *forwarder) takeReplies(payload []byte) error {
	var groups []fsm.GroupResult
	// The owners of the calls read their replies after the frame's buffer has
	// been reused. So copy the frame, once for all of them.
	b := slices.Clone(payload)
	for len(b) > 0 {
		seq, k := binary.Uvarint(b)
		if k <= 0 || k >= len(b) {
			return errFrame
		}
		status := fsm.Status(b[k])
		n, k2 := binary.Uvarint(b[k+1:])
		b = b[k+1+max(k2, 0):]
		if k2 <= 0 || n > uint64(len(b)) {
			return errFrame
		}
		groups = append(groups, fsm.GroupResult{Seq: seq, Status: status, Reply: b[:n:n]})
		b = b[n:]
	}
	failpoint.Hit(failpoint.ReplyReceived)
	if fw.deliver(groups) {
		return errRelink
	}
	return nil
}

func appendReply(dst []byte, r *fsm.GroupResult) []byte {
	dst = binary.AppendUvarint(dst, r.Seq)
	dst = append(dst, byte(r.Status))
	dst = binary.AppendUvarint(dst, uint64(len(r.Reply)))
	return append(dst, r.Reply...)
}

func (l *remoteLink) send(ackFloor, seq uint64, body []byte) error {
	err := l.writes.TrySendFunc(frameSubmit, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, ackFloor)
		dst = binary.AppendUvarint(dst, seq)
		return append(dst, body...)
	})
	if err != nil {
		l.writes.Close() // the queue is full or the stream has ended; the next link sends lost groups again
		return err
	}
	failpoint.HitAfter(failpoint.GroupSent, func() {
		_ = l.writes.Flush() // fails if the stream has ended, and then the group may not have been sent
	})
	return nil
}

func (l *remoteLink) read(c *call) {
	l.mu.Lock()
	if l.ended {
		l.mu.Unlock()
		l.fw.requeue(c)
		return
	}
	l.next++
	id := l.next
	l.calls[id] = c
	l.mu.Unlock()
	kind := byte(readQuick)
	switch {
	case c.dryRun:
		kind = readDryRun
	case c.slow:
		kind = readSlow
	}
	if c.front != nil && !c.dryRun && l.pieces() {
		kind |= readPiece
	}
	typ := byte(frameRead)
	if l.vouched.Load() && l.follows(l.term) {
		typ = frameVouched
	}
	err := l.reads.TrySendFunc(typ, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, id)
		dst = append(dst, kind)
		if typ == frameVouched {
			dst = binary.AppendUvarint(dst, l.term)
		}
		return append(dst, c.body...)
	})
	// If the stream does not accept the read, close it. run then passes the
	// call back to the forwarder.
	if err != nil {
		l.reads.Close()
	}
}

func (l *remoteLink) serveReads() error {
	for {
		typ, payload, err := l.reads.Recv()
		if err != nil {
			return err
		}
		l.readsUnheard.Store(0)
		switch typ {
		case frameAnswer:
			err = l.answer(payload)
		case frameConfirm, framePromise:
			err = l.confirm(payload, typ == framePromise)
		case framePong:
			l.vouched.Store(string(payload) == pongVouched)
		default:
			err = errFrame
		}
		if err != nil {
			return err
		}
	}
}

func (l *remoteLink) answer(payload []byte) error {
	id, k := binary.Uvarint(payload)
	if k <= 0 || k >= len(payload) {
		return errFrame
	}
	kind, rest := payload[k], payload[k+1:]
	l.mu.Lock()
	c, sent := l.calls[id], id <= l.next
	delete(l.calls, id)
	l.mu.Unlock()
	if c == nil && sent {
		return nil // given up: see forget
	}
	if c == nil {
		return fmt.Errorf("answer to read %d, which this node has not sent: %w", id, errFrame)
	}
	switch kind {
	case answerOK:
		c.finish(slices.Clone(rest), nil)
	case answerRetry:
		l.fw.requeue(c)
	case answerLog:
		c.finish(nil, fsm.ErrUnlogged)
	case answerHere:
		var err error
		if c.at, c.now, err = fsm.CutPosition(rest); err != nil || c.at == 0 {
			c.finish(nil, readFailed(errFrame))
			return errFrame
		}
		c.finish(nil, nil)
	default:
		c.finish(nil, readFailed(errors.New(string(rest))))
	}
	return nil
}

// forget implements readLink. It tells the leader that no client waits for the
// reply, so that the leader ends the read.
func (l *remoteLink) forget(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, other := range l.calls {
		if other != c {
			continue
		}
		delete(l.calls, id)
		if l.cancels() {
			err := l.reads.TrySendFunc(frameCancel, func(dst []byte) []byte { return binary.AppendUvarint(dst, id) })
			if err != nil {
				l.reads.Close()
			}
		}
		return true
	}
	return false
}

// follows reports whether this node follows the leader in a term. It reads the
// term once before it reads the leader and once after, because raft may change the
// term in between.
func (l *remoteLink) follows(term uint64) bool {
	if l.raft.CurrentTerm() != term || l.raft.State() != raft.Follower {
		return false
	}
	_, leader := l.raft.LeaderWithID()
	return leader == l.leader && l.raft.CurrentTerm() == term
}

// confirm answers the leader's question whether this node follows it in the
// leader's term. If the question asks for a promise, confirm gives the promise
// before the check that decides the answer: package readindex needs this order.
// Another check, before the promise, only avoids promises to a leader that this
// node no longer follows. Such a promise would delay the node's next vote and
// give the leader no lease.
func (l *remoteLink) confirm(payload []byte, promises bool) error {
	term, k := binary.Uvarint(payload)
	nonce, k2 := binary.Uvarint(payload[max(k, 0):])
	if k <= 0 || k2 <= 0 {
		return errFrame
	}
	yes := byte(confirmed)
	if promises && l.follows(term) {
		micros, k3 := binary.Uvarint(payload[k+k2:])
		if k3 <= 0 {
			return errFrame
		}
		d := time.Duration(min(micros, uint64(longestPromise/time.Microsecond)+1)) * time.Microsecond
		if d <= longestPromise && l.promise(d) == nil { // storage reports the errors of the disk
			yes = promised
		}
	}
	answer := byte(unconfirmed)
	if l.follows(term) {
		answer = yes
	}
	err := l.reads.SendNow(frameConfirmed, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, term)
		dst = binary.AppendUvarint(dst, nonce)
		return append(dst, answer)
	})
	if errors.Is(err, rpc.ErrQueueFull) {
		return nil // no confirmation is sent, so the leader asks again
	}
	return err
}

// keep keeps the forwarder linked to the current leader until the node stops.
func (k *linker) keep() {
	var last failover.Leader
	refusals := 0 // number of refusals in succession because this node is not a member
	for k.ctx.Err() == nil {
		err := k.linkOnce(&last)
		if k.removal.removed.Load() {
			k.forwarder.giveUp()
			k.waits.giveUp()
		}
		if errors.Is(err, ErrStaleSession) {
			k.fatal(err)
			return
		}
		if err != nil && k.ctx.Err() == nil {
			k.log.Debug("failed to link to the leader", "error", err)
		}
		pause := k.cfg.Options.RelinkEvery
		if errors.Is(err, rpc.ErrNotMember) {
			signal(k.removal.now)
			pause = min(pause<<min(refusals, 10), maxRefusedPause)
			refusals++
		} else {
			refusals = 0
		}
		select {
		case <-k.ctx.Done():
		case <-k.leaderships.changed: // try again at once
		case <-time.After(pause):
		}
	}
}

// maxRefusedPause bounds the pause between two attempts to link to a leader
// that refuses this node because it is not a member. The node continues its
// attempts, because an operator may add it again, or the leader may not have
// applied this node's addition yet.
const maxRefusedPause = time.Second

// linkOnce links to the current leader and returns when that link has ended. It
// stores the leader in last.
func (k *linker) linkOnce(last *failover.Leader) error {
	if k.removal.removed.Load() {
		return errRemoved
	}
	addr, id := k.raft.running().LeaderWithID()
	if id == "" {
		if err := k.failover.SeekLast(k.ctx, last); err != nil {
			return err
		}
		return errLeaderless
	}
	*last = failover.Leader{ID: id, Addr: addr}
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	if id == k.self {
		ld := k.leaderships.current()
		if ld == nil {
			return errNotLeader
		}
		return k.linkLocal(ctx, ld)
	}
	dialCtx, stop := context.WithTimeout(ctx, k.cfg.Options.DialTimeout)
	l, accepted, err := k.dialLeader(dialCtx, k.peers.addressOf(id, addr), id)
	stop()
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			k.health.Silent(string(id))
			k.failover.Campaign(k.ctx, last, 0)
		}
		return fmt.Errorf("link to leader %s at %s: %w", id, addr, err)
	}
	if k.forwarder.foreign(accepted) {
		l.close()
		return ErrStaleSession
	}
	ended := make(chan error, 1)
	go func() { ended <- l.run() }()
	k.forwarder.linked(l, accepted)
	k.forwarder.readLinked(l)
	k.leading.linked(string(id))
	_ = l.ping()      // asks for pongVouched; fails if a stream has ended, and then the loop below ends
	k.health.AskNow() // the previous leader may have died
	k.log.Info("linked to leader", "leader", id, "address", addr)
	defer func() {
		k.leading.unlinked()
		k.forwarder.unlinked(l)
		k.forwarder.readLinked(nil)
	}()
	ping := time.NewTicker(max(k.cfg.Options.LeaderWait/pingsPerWait, time.Millisecond))
	defer ping.Stop()
	silence := time.NewTimer(k.silencePause(id))
	defer silence.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-silence.C:
			silence.Reset(k.watchSilence(id, addr))
		case <-ping.C:
			if err := l.ping(); err != nil {
				l.close()
				return errors.Join(err, <-ended)
			}
		case <-k.leaderships.changed:
			_, now := k.raft.running().LeaderWithID()
			if done := k.removal.removed.Load() && k.forwarder.drained(); now == id && !done {
				continue
			}
			l.close()
			return <-ended
		case <-k.ctx.Done():
			l.close()
			return <-ended
		}
	}
}

// silencePause returns how long to wait before the next check whether the leader
// is silent.
func (k *linker) silencePause(leader raft.ServerID) time.Duration {
	left, known := k.raft.messages().Silence().Left(string(leader))
	if !known {
		return k.cfg.Options.HeartbeatTimeout
	}
	return max(left, minSilencePause)
}

// minSilencePause is the shortest pause between two checks whether the leader is
// silent.
const minSilencePause = 5 * time.Millisecond

// watchSilence calls CampaignSilent if the leader is silent. It returns how long to
// wait before the next check.
func (k *linker) watchSilence(id raft.ServerID, addr raft.ServerAddress) time.Duration {
	if left, known := k.raft.messages().Silence().Left(string(id)); known && left <= 0 {
		k.failover.CampaignSilent(k.ctx, failover.Leader{ID: id, Addr: addr})
		signal(k.leaderships.changed) // CampaignSilent may have received the token of a change
		return max(k.silencePause(id), 2*minSilencePause)
	}
	return k.silencePause(id)
}

func (k *linker) linkLocal(ctx context.Context, ld *leadership) error {
	broken := make(chan struct{}, 1)
	l := &localLink{ld: ld, fw: k.forwarder, broken: func() { signal(broken) }}
	accepted, kept, err := ld.attach(k.session, l)
	if err != nil {
		return err
	}
	defer ld.detach(k.session, l)
	if k.forwarder.foreign(accepted) {
		return ErrStaleSession
	}
	if k.forwarder.deliver(kept) {
		return errRelink
	}
	ld.endEarlier(k.session, ctx.Done())
	k.forwarder.linked(l, accepted)
	k.forwarder.readLinked(l)
	k.leading.linked(k.cfg.NodeID)
	k.health.AskNow()
	defer func() {
		k.leading.unlinked()
		k.forwarder.unlinked(l)
		k.forwarder.readLinked(nil)
	}()
	select {
	case <-ld.done:
	case <-broken:
		return errRelink
	case <-ctx.Done():
	}
	return nil
}
