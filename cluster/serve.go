package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// maxRepliesFrame is where a frame of replies is closed and another begun.
const maxRepliesFrame = 1 << 20

// writeServer is the leader's end of another node's write stream: the sink of
// that node's session.
type writeServer struct {
	stream *rpc.Stream
	heard  atomic.Int64 // gateway.coarse when the node spoke last
}

// deliver implements sink.
func (w *writeServer) deliver(groups []fsm.GroupResult) {
	for len(groups) > 0 {
		// A stream whose queue is full belongs to a node that does not read: it
		// is closed rather than waited for, and asks again when it is back.
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

// served implements sink. The node would see it in its own machine too, when it
// learns with a later message of raft that the entry is committed.
func (w *writeServer) served(n *fsm.Woken) {
	err := w.stream.TrySendFunc(frameServed, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, n.Origin)
		dst = binary.AppendUvarint(dst, uint64(n.Pos))
		return append(dst, n.Reply...)
	})
	if err != nil {
		w.stream.Close() // as deliver does
	}
}

// serveWrite serves a node's write stream as long as this node's office lasts.
func (n *Node) serveWrite(s *rpc.Stream) {
	if err := n.writeStream(s); err != nil {
		n.log.Debug("write stream ended", "from", s.Peer().NodeID, "error", err)
	}
}

func (n *Node) writeStream(s *rpc.Stream) error {
	typ, _, err := s.Recv()
	if err != nil {
		return err
	}
	if typ != frameOpen {
		return errFrame
	}
	id := sessionOf(s.Peer())
	o := n.currentOffice()
	if o == nil {
		return refuse(s, errNotLeader)
	}
	w := &writeServer{stream: s}
	w.heard.Store(n.gateway.coarse.Load())
	accepted, kept, err := o.attach(id, w)
	if err != nil {
		return refuse(s, err)
	}
	defer o.detach(id, w)
	defer closeWith(o, s)()
	w.deliver(kept)
	opened := binary.AppendUvarint(nil, o.term)
	if err := s.Send(frameOpened, binary.AppendUvarint(opened, accepted)); err != nil {
		return err
	}
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return err
		}
		w.heard.Store(n.gateway.coarse.Load())
		if typ == framePing {
			if err := pong(s); err != nil {
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
		if err := n.machine.table.CheckAt(n.Features(), body, false); err != nil {
			// Not the client's doing: its node has understood the command, so it runs
			// another version. The number must not be missing from the session, or
			// nothing of that node would run any more: an empty group takes it, and
			// the gateway knows what an empty reply means.
			n.log.Error("group refused, the node must run another version", "from", id.NodeID, "error", err)
			body = noop
		}
		if err := o.submit(id, floor, seq, body); err != nil {
			return err
		}
	}
}

func pong(s *rpc.Stream) error {
	err := s.TrySendFunc(framePong, func(dst []byte) []byte { return dst })
	if errors.Is(err, rpc.ErrQueueFull) {
		return nil // what fills the queue is a sign of life as well
	}
	return err
}

// refuse tells a node why its session cannot be opened here, and waits until
// the text is out and the node has hung up.
func refuse(s *rpc.Stream, why error) error {
	if err := s.Send(frameRefused, []byte(why.Error())); err != nil {
		return err
	}
	_, _, err := s.Recv()
	return fmt.Errorf("%w (%w)", why, err)
}

// closeWith ends the stream when the office ends; the function that it returns
// stops the watch.
func closeWith(o *office, s *rpc.Stream) (stop func()) {
	finished := make(chan struct{})
	go func() {
		select {
		case <-o.done:
			s.Close()
		case <-finished:
		}
	}()
	return func() { close(finished) }
}

// readServer is the leader's end of another node's read stream.
type readServer struct {
	n      *Node
	o      *office
	stream *rpc.Stream
}

// confirm asks the node whether it follows.
func (r *readServer) confirm(term, nonce uint64) {
	_ = r.stream.SendNow(frameConfirm, func(dst []byte) []byte { // no answer is no confirmation
		dst = binary.AppendUvarint(dst, term)
		return binary.AppendUvarint(dst, nonce)
	})
}

// serveRead serves a node's read stream as long as this node's office lasts.
func (n *Node) serveRead(s *rpc.Stream) {
	if err := n.readStream(s); err != nil {
		n.log.Debug("read stream ended", "from", s.Peer().NodeID, "error", err)
	}
}

func (n *Node) readStream(s *rpc.Stream) error {
	o := n.currentOffice()
	if o == nil {
		return errNotLeader
	}
	id := raft.ServerID(s.Peer().NodeID)
	r := &readServer{n: n, o: o, stream: s}
	o.reads.attach(id, r)
	defer o.reads.detach(id, r)
	defer closeWith(o, s)()
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return err
		}
		if typ == framePing {
			if err := pong(s); err != nil {
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
			o.reads.ack(id, first, nonce, rest[k] == 1)
		case frameRead:
			if len(rest) == 0 || rest[0] > readTrial {
				return errFrame
			}
			trial := rest[0] == readTrial
			if err := n.machine.table.Check(rest[1:], !trial); err != nil {
				n.log.Error("read refused, the node must run another version", "from", id, "error", err)
				return err
			}
			c := &call{body: slices.Clone(rest[1:]), slow: rest[0] != readQuick, trial: trial}
			o.reads.add(&remoteRead{server: r, id: first, call: c})
		default:
			return errFrame
		}
	}
}

// remoteRead is a read of another node's client.
type remoteRead struct {
	server *readServer
	id     uint64
	call   *call
}

// confirmed implements reader.
func (r *remoteRead) confirmed(o *office, now int64) {
	if r.call.slow { // may take long: not on the goroutine that serves the others
		go r.run(o, now)
		return
	}
	r.run(o, now)
}

func (r *remoteRead) run(o *office, now int64) {
	reply, overdue, err := o.runRead(nil, r.call, now)
	switch {
	case errors.Is(err, fsm.ErrUnlogged):
		r.answer(answerLog, nil)
	case err != nil:
		r.answer(answerError, []byte(err.Error()))
	case overdue:
		o.tick(func() { o.reads.add(r) })
	default:
		r.answer(answerOK, reply)
	}
}

// lost implements reader.
func (r *remoteRead) lost() { r.answer(answerRetry, nil) }

func (r *remoteRead) answer(kind byte, reply []byte) {
	s := r.server.stream
	err := s.TrySendFunc(frameAnswer, func(dst []byte) []byte {
		dst = binary.AppendUvarint(dst, r.id)
		dst = append(dst, kind)
		return append(dst, reply...)
	})
	if errors.Is(err, rpc.ErrQueueFull) {
		// Large answers, faster than the network. To keep this one as well would
		// cost memory without a limit, and to close the stream would only bring
		// all of them back: it is read again when there is room.
		go func() {
			if s.Flush() == nil {
				r.server.o.reads.add(r)
			}
		}()
	} else if err != nil {
		s.Close()
	}
}
