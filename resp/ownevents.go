package resp

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/resp/output"
	"github.com/holdfast-kv/holdfast/resp/pubsub"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// A connection that tracks keys or has subscribed to channels receives the
// events of its own commands: for example the invalidation of a key that it
// changed, or a message that it published. As in Redis, such an event directly
// follows the reply of the command that caused it. A client that has read the
// reply therefore has the invalidation already, or reads it before the next
// reply.
//
// The reply comes from the leader. Invalidations and messages come from this
// node's state machine, which may be behind the leader. So the connection
// delays the replies of a group that writes until this node's hub has received
// the group's events (Cluster.OwnEventsDelivered), and inserts each event after the
// reply of its command. A group that was executed in pieces has a position in the
// log for each piece. Connections that neither track nor subscribe do not wait.

// maxEventWait bounds the wait for events. A node that loses the leader directly
// after the leader's reply may receive the entry much later.
const maxEventWait = 5 * time.Second

// mayCauseOwnEvents reports whether the group that the connection is about to run may cause
// events for the connection itself. The answer can change as soon as the group is
// executed, so batch.ownEvents keeps it for the group.
func (c *conn) mayCauseOwnEvents() bool {
	switch {
	case c.proto >= 3 && c.info.subscribed():
		return true
	case !c.tracking.On || c.proto < 3 && c.tracking.Redirect == 0:
		return false
	case c.tracking.BCast || c.tracking.Reads():
		return true
	default: // in mode OPTIN or OPTOUT, and this group is not tracked
		return c.srv.hub.HasReadings(c.id)
	}
}

// piece is a group that was executed as a whole through the log, or one part of
// a group that was executed in pieces. Each piece has its own position in the
// log.
type piece struct {
	op int // position of the piece's first operation in the whole group
	// at is the position of the piece in the log. Op is 0 in this Cause. at is
	// nil while the position is not known.
	at atomic.Pointer[pubsub.Cause]
}

// pieces are the pieces of one group, in their order.
type pieces []*piece

// end returns the last known position of the pieces. It is the zero Cause if no
// position is known.
func (ps pieces) end() pubsub.Cause {
	for _, p := range slices.Backward(ps) {
		if at := p.at.Load(); at != nil {
			return *at
		}
	}
	return pubsub.Cause{}
}

// repliesBefore returns how many replies of the group come before the message
// m, whose cause precedes the end of the pieces or belongs to one of them. A
// message that the group did not cause comes directly before the replies of the
// next piece. So such a message also follows the replies of the reads that were
// executed before that piece.
func (ps pieces) repliesBefore(m pubsub.Cause) int {
	for _, p := range ps {
		at := p.at.Load()
		if at == nil {
			continue
		}
		switch before, in := m.Relative(at.Index, at.Position); {
		case in:
			return p.op + m.Op + 1
		case before:
			return p.op
		}
	}
	return 0
}

// pieceExecuted is called for each piece of a group that is executed in pieces.
// It requests the position of the piece at once, because the node remembers
// only the positions of its last groups.
func (c *conn) pieceExecuted(group uint64, op int) {
	if !c.batch.ownEvents {
		return
	}
	p := &piece{op: op}
	c.pieces = append(c.pieces, p)
	c.srv.cluster.OwnEventsDelivered(group, p.locate)
}

// locate sets the position of the piece. The log index is 0 if the position is
// not known.
func (p *piece) locate(index uint64, position int) {
	if index != 0 {
		p.at.Store(&pubsub.Cause{Index: index, Position: position})
	}
}

// awaitOwnEvents waits until the hub has received the events of the executor's last
// group.
func (c *conn) awaitOwnEvents() {
	_, last := c.exec.Sent()
	if last == 0 {
		return
	}
	if len(c.pieces) == 0 { // the group was executed as a whole
		c.pieces = pieces{&piece{}}
	}
	p := c.pieces[len(c.pieces)-1]
	delivered := c.awaitDelivery(func(f func()) {
		c.srv.cluster.OwnEventsDelivered(last, func(index uint64, position int) {
			p.locate(index, position)
			f()
		})
	})
	if !delivered {
		c.srv.hub.InvalidateAll(c.id)
		c.pieces = nil
	}
}

// awaitCommittedEvents waits until the hub has received the events of every
// entry that was committed when awaitCommittedEvents was called. If the read of
// the current log index fails, for example because there is no leader,
// awaitCommittedEvents returns without waiting for events.
func (c *conn) awaitCommittedEvents() {
	position, err := c.position()
	if err != nil || position == 0 {
		return
	}
	c.awaitDelivery(func(f func()) { c.srv.cluster.EventsDelivered(position, f) })
}

// awaitDelivery calls the function delivered with a function f, and waits until f
// is called. It returns false if this takes longer than maxEventWait, or if the
// server stops.
func (c *conn) awaitDelivery(delivered func(f func())) bool {
	done := make(chan struct{})
	delivered(func() { close(done) })
	select {
	case <-done: // the usual case on the leader
		return true
	default:
	}
	t := time.NewTimer(c.srv.maxEventWait)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		c.srv.log.Warn("events were not delivered in time", "client", c.id, "waited", c.srv.maxEventWait)
	case <-c.srv.life.stopping:
	}
	return false
}

// writeGroup writes the replies of a group. It charges long replies to the
// memory for clients. If the connection has waited for the group's events
// (awaitOwnEvents), messages with a cause before the group come first. Messages
// with a cause in the group, or between its pieces, come between the replies. All
// other messages follow the replies.
func (c *conn) writeGroup(replies []byte) {
	if len(replies) > output.SliceBytes {
		// All replies stay in memory until the last one is sent, even while the
		// messages between them are being sent.
		c.mem.Add(int64(len(replies)))
		c.w.SetCharged(true)
		defer func() {
			c.w.SetCharged(false)
			c.mem.Add(-int64(len(replies)))
		}()
	}
	c.writeBetween(replies)
}

// writeBetween writes the replies of a group and the messages between them.
func (c *conn) writeBetween(replies []byte) {
	written := 0
	for _, m := range c.out.TakeUntil(c.pieces.end()) {
		for before := c.pieces.repliesBefore(m.Cause); written < before; written++ {
			n := wire.Len(replies)
			c.w.Write(replies[:n])
			replies = replies[n:]
		}
		c.w.Put(m.Bytes)
	}
	c.pieces = nil
	c.w.Write(replies)
}
