package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/execution"
	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// maxRepliesFrame is the size in bytes at which deliver closes a frame of
// replies and begins another.
const maxRepliesFrame = 1 << 20

// streamServer serves the streams over which other nodes send the groups of
// their clients to this node while it leads.
type streamServer struct {
	*environment
	machine     *machine.Machine
	forwarder   *forwarder
	leaderships *leaderships
}

// writeServer is the leader's end of another node's write stream. It is a result
// receiver of that node's session.
type writeServer struct {
	stream *rpc.Stream
	heard  atomic.Int64 // forwarder.recent at the time of the node's last message
}

// deliver implements resultReceiver.
func (w *writeServer) deliver(groups []fsm.GroupResult) {
	for len(groups) > 0 {
		// If the queue of a stream is full, the node does not read its stream.
		// Close the stream instead of waiting for the node. The node opens its
		// session again later and receives the replies that were kept.
		err := w.stream.TrySendFunc(frameReplies, func(dst []byte) []byte {
			start := len(dst)
			for len(groups) > 0 && len(dst)-start < maxRepliesFrame {
				dst = appendReply(dst, &groups[0])
				groups = groups[1:]
			}
			return dst
		})
		if err != nil {
			w.stream.Close()
			return
		}
	}
}

// served implements resultReceiver. The node would find the reply in its own
// state machine too, but only when a later message of raft tells it that the
// entry is committed.
func (w *writeServer) served(n fsm.Woken) {
	err := w.stream.TrySendFunc(frameServed, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, n.Origin())
		dst = binary.AppendUvarint(dst, uint64(n.Pos()))
		return append(dst, n.Reply()...)
	})
	if err != nil {
		w.stream.Close() // for the same reason as in deliver
	}
}

// serveWrite serves a node's write stream until the stream fails or this node's
// leadership ends.
func (ss *streamServer) serveWrite(s *rpc.Stream) {
	if err := ss.writeStream(s); err != nil {
		ss.log.Debug("write stream ended", "from", s.Peer().NodeID, "error", err)
	}
}

func (ss *streamServer) writeStream(s *rpc.Stream) error {
	typ, _, err := s.Recv()
	if err != nil {
		return err
	}
	if typ != frameOpen {
		return errFrame
	}
	id := sessionOf(s.Peer())
	ld := ss.leaderships.current()
	if ld == nil {
		return refuse(s, errNotLeader)
	}
	w := &writeServer{stream: s}
	w.heard.Store(ss.forwarder.recent())
	accepted, kept, err := ld.attach(id, w)
	if err != nil {
		return refuse(s, err)
	}
	defer ld.detach(id, w)
	defer closeWith(ld, s)()
	w.deliver(kept)
	opened := binary.AppendUvarint(nil, ld.term)
	if err := s.Send(frameOpened, binary.AppendUvarint(opened, accepted)); err != nil {
		return err
	}
	ld.endEarlier(id, s.Done())
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return err
		}
		w.heard.Store(ss.forwarder.recent())
		if typ == framePing {
			if err := pong(s, ""); err != nil {
				return err
			}
			continue
		}
		floor, k := binary.Uvarint(payload)
		seq, k2 := binary.Uvarint(payload[max(k, 0):])
		if typ != frameSubmit || k <= 0 || k2 <= 0 {
			return errFrame
		}
		body := payload[k+k2:]
		if err := ss.machine.Table().CheckAt(ss.machine.Features(), body, false); err != nil {
			// The client is not at fault: its node accepted the command, so the
			// node must run another version. An empty group takes the number of
			// the refused group, because after a gap in the numbers of a session,
			// the state machine executes no later group of that session. When the
			// node's forwarder gets the empty reply, it tells the client that the
			// group was refused.
			ss.log.Error("refused a group: the node that sent it probably runs another version",
				"from", id.NodeID, "error", err)
			body = noop
		} else {
			body = ss.marked(body)
		}
		if err := ld.submit(id, floor, seq, body); err != nil {
			return err
		}
	}
}

// marked marks a group that writes and has costly reads, if the group has no mark
// yet: see fsm.Table.Mark. Below fsm.FeatureBudget, the node that sent the group
// may run a program that does not mark groups.
func (ss *streamServer) marked(body []byte) []byte {
	if ss.machine.Features() >= fsm.FeatureBudget {
		return body
	}
	return ss.machine.Table().Mark(body)
}

func pong(s *rpc.Stream, payload string) error {
	err := s.TrySendFunc(framePong, func(dst []byte) []byte { return append(dst, payload...) })
	if errors.Is(err, rpc.ErrQueueFull) {
		return nil // the frames that fill the queue also show that this node is alive
	}
	return err
}

// refuse tells a node why its session cannot be opened here. It then waits
// until the node has closed the stream, so that the text is sent before the
// stream ends.
func refuse(s *rpc.Stream, why error) error {
	if err := s.Send(frameRefused, []byte(why.Error())); err != nil {
		return err
	}
	_, _, err := s.Recv()
	return fmt.Errorf("%w (%w)", why, err)
}

// closeWith closes the stream when the leadership ends. The caller must call
// stop when it has finished with the stream; otherwise the goroutine remains
// until the leadership ends.
func closeWith(ld *leadership, s *rpc.Stream) (stop func()) {
	finished := make(chan struct{})
	go func() {
		select {
		case <-ld.done:
			s.Close()
		case <-finished:
		}
	}()
	return func() { close(finished) }
}

// readServer is the leader's end of another node's read stream.
type readServer struct {
	ld     *leadership
	stream *rpc.Stream

	// more receives a token when vouched is no longer empty. Its capacity is 1.
	more chan struct{}

	mu    sync.Mutex
	asked map[uint64]*remoteRead // by id: reads that have no answer yet
	// vouched are reads that a vouch has confirmed and that confirmVouched has not
	// taken yet.
	vouched []reader
}

// addVouched leaves a read to confirmVouched.
func (r *readServer) addVouched(rd reader) {
	r.mu.Lock()
	r.vouched = append(r.vouched, rd)
	r.mu.Unlock()
	signal(r.more)
}

// confirmVouched executes the vouched reads until done is closed. Each stream has
// one goroutine for this. When the reads that it has taken are done, it takes all
// reads that have arrived meanwhile, as one batch. So one stream never has more
// than one batch on the goroutine that applies the log, and reads do not delay
// other frames of the stream.
func (r *readServer) confirmVouched(done <-chan struct{}) {
	confirmed := make(chan struct{}, 1)
	for {
		select {
		case <-r.more:
		case <-done:
			return
		}
		r.mu.Lock()
		readers := r.vouched
		r.vouched = nil
		r.mu.Unlock()
		if len(readers) == 0 { // the reads were already taken with an earlier token
			continue
		}
		r.ld.reads.Confirm(readers, func() { confirmed <- struct{}{} })
		select {
		case <-confirmed:
		case <-done:
			return
		}
	}
}

// Confirm implements readindex.Voter.
func (r *readServer) Confirm(term, nonce uint64, promise time.Duration) {
	typ := byte(frameConfirm)
	if promise > 0 {
		typ = framePromise
	}
	// a lost question counts as no confirmation
	_ = r.stream.SendNow(typ, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, term)
		dst = binary.AppendUvarint(dst, nonce)
		if promise > 0 {
			dst = binary.AppendUvarint(dst, uint64(promise.Microseconds()))
		}
		return dst
	})
}

// begin records a read that the stream's node has sent.
func (r *readServer) begin(rd *remoteRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[rd.id] = rd
}

// answered removes a read. It returns false if the read was canceled.
func (r *readServer) answered(rd *remoteRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, rd.id)
	return !rd.canceled
}

// cancel ends a read whose client has left its node.
func (r *readServer) cancel(id uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd := r.asked[id]; rd != nil {
		r.cancelLocked(rd)
	}
}

// cancelAll ends all reads of the stream, because the stream has ended.
func (r *readServer) cancelAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rd := range r.asked {
		r.cancelLocked(rd)
	}
}

func (r *readServer) cancelLocked(rd *remoteRead) {
	delete(r.asked, rd.id)
	rd.canceled = true
	if rd.gone != nil {
		close(rd.gone)
	}
}

// ended returns a channel that is closed when the read is canceled. Nothing
// waits for the replies to a canceled read, so its execution can stop. When the
// leadership ends, the stream ends too, and all reads of the stream are canceled.
func (r *readServer) ended(rd *remoteRead) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rd.gone == nil {
		rd.gone = make(chan struct{})
		if rd.canceled {
			close(rd.gone)
		}
	}
	return rd.gone
}

// isCanceled reports whether the read was canceled.
func (r *readServer) isCanceled(rd *remoteRead) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rd.canceled
}

// serveRead serves a node's read stream until the stream fails or this node's
// leadership ends.
func (ss *streamServer) serveRead(s *rpc.Stream) {
	if err := ss.readStream(s); err != nil {
		ss.log.Debug("read stream ended", "from", s.Peer().NodeID, "error", err)
	}
}

func (ss *streamServer) readStream(s *rpc.Stream) error {
	ld := ss.leaderships.current()
	if ld == nil {
		return errNotLeader
	}
	id := raft.ServerID(s.Peer().NodeID)
	r := &readServer{ld: ld, stream: s, more: make(chan struct{}, 1), asked: make(map[uint64]*remoteRead)}
	defer r.cancelAll()
	var confirming sync.WaitGroup
	ended := make(chan struct{})
	confirming.Go(func() { r.confirmVouched(ended) })
	defer func() {
		close(ended)
		confirming.Wait()
	}()
	ld.reads.Attach(id, r)
	defer ld.reads.Detach(id, r)
	defer closeWith(ld, s)()
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return err
		}
		if typ == framePing {
			if err := pong(s, pongVouched); err != nil {
				return err
			}
			continue
		}
		first, k := binary.Uvarint(payload)
		if k <= 0 {
			return errFrame
		}
		rest := payload[k:]
		switch typ {
		case frameConfirmed:
			nonce, k := binary.Uvarint(rest)
			if k <= 0 || k+1 != len(rest) {
				return errFrame
			}
			ld.reads.Ack(id, first, nonce, rest[k] == confirmed || rest[k] == promised, rest[k] == promised)
		case frameRead, frameVouched:
			if len(rest) == 0 || rest[0]&^readPiece > readDryRun {
				return errFrame
			}
			kind, body := rest[0], rest[1:]
			var term uint64
			if typ == frameVouched {
				if term, k = binary.Uvarint(body); k <= 0 {
					return errFrame
				}
				body = body[k:]
			}
			c, err := ss.readCall(kind, body)
			if err != nil {
				ss.log.Error("refused a read: the node that sent it probably runs another version",
					"from", id, "error", err)
				return err
			}
			rd := &remoteRead{server: r, id: first, call: c, from: sessionOf(s.Peer())}
			r.begin(rd)
			if typ == frameVouched && ld.reads.Suffices(id, term) {
				ld.pulse.Touch()
				r.addVouched(rd)
			} else {
				ld.read(rd)
			}
		case frameCancel:
			r.cancel(first)
		default:
			return errFrame
		}
	}
}

// readCall returns the call for a read of another node. It copies body.
func (ss *streamServer) readCall(kind byte, body []byte) (*call, error) {
	pieces := kind&readPiece != 0
	kind &^= readPiece
	dryRun := kind == readDryRun
	if err := ss.machine.Table().Check(body, !dryRun); err != nil {
		return nil, err
	}
	body = slices.Clone(body)
	if dryRun {
		body = ss.marked(body) // otherwise the group's costly reads would get no dry run
	}
	c := &call{body: body, slow: kind != readQuick, dryRun: dryRun}
	if pieces {
		c.front = &fsm.Front{Most: remotePiece}
	}
	return c, nil
}

// remoteRead is a read of another node's client. It implements reader.
type remoteRead struct {
	server *readServer
	id     uint64
	call   *call
	from   fsm.SessionID // session of the node whose client sent the read

	leased, unleased bool // see call.leased

	canceled bool          // guarded by server.mu
	gone     chan struct{} // see ended; nil until it is needed, guarded by server.mu
}

// confirmed implements reader.
func (r *remoteRead) confirmed(ld *leadership, now int64, index uint64) {
	r.call.index, r.call.now = index, now
	if r.server.isCanceled(r) {
		return
	}
	if !r.call.dryRun && !r.call.slow {
		run := ld.readRun(r.call, now, r.from)
		reply, expiryPending, err := ld.readers.ReadInline(&run)
		if !errors.Is(err, execution.ErrSlow) {
			r.finish(ld, reply, expiryPending, err)
			return
		}
	}
	// The read may take long, so it must not run on the goroutine that serves
	// the other reads.
	go r.run(ld, now)
}

// setLeased implements reader.
func (r *remoteRead) setLeased(leased bool) bool {
	r.leased = leased
	return !r.unleased && !r.call.slow && !r.call.dryRun
}

func (r *remoteRead) run(ld *leadership, now int64) {
	if r.call.dryRun {
		reply, err := ld.runDry(r.call.body)
		r.finish(ld, reply, false, err)
		return
	}
	run := ld.readRun(r.call, now, r.from)
	run.Done = r.server.ended(r)
	reply, expiryPending, err := ld.readers.Read(nil, run)
	r.finish(ld, reply, expiryPending, err)
}

func (r *remoteRead) finish(ld *leadership, reply []byte, expiryPending bool, err error) {
	switch {
	case errors.Is(err, fairshare.ErrLost):
		r.Lost()
	case errors.Is(err, fsm.ErrUnlogged):
		r.answer(answerLog, nil)
	case err != nil:
		r.answer(answerError, []byte(err.Error()))
	case expiryPending:
		ld.awaitClockEntry(func() { ld.read(r) })
	case r.leased && !ld.reads.Holds():
		r.unleased = true
		r.call.front.Reset()
		ld.read(r)
	case r.call.front.Cut():
		r.answer(answerHere, fsm.AppendPosition(nil, ld.machine.Applied(), r.call.now))
	default:
		r.answer(answerOK, reply)
	}
}

// Lost implements reader.
func (r *remoteRead) Lost() { r.answer(answerRetry, nil) }

func (r *remoteRead) answer(kind byte, reply []byte) {
	if !r.server.answered(r) {
		return
	}
	s := r.server.stream
	err := s.TrySendFunc(frameAnswer, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, r.id)
		dst = append(dst, kind)
		return append(dst, reply...)
	})
	if errors.Is(err, rpc.ErrQueueFull) {
		// The answers are large and arrive faster than the network sends them.
		// Keeping this answer too would need memory without a limit. Closing
		// the stream would only cause all reads to be sent again. So execute
		// this read again when the queue has room.
		go func() {
			if s.Flush() == nil {
				r.server.begin(r)
				r.server.ld.read(r)
			}
		}()
	} else if err != nil {
		s.Close()
	}
}
