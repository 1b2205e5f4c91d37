package resp

import (
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp/wire"
)

// A connection that tracks keys or has subscribed to channels receives the
// events of its own commands: the invalidation of a key that it changed, the
// message that it published. As in Redis, such an event directly follows the
// reply of the command that caused it. A client that has read the reply
// therefore has the invalidation already, or reads it before the next reply.
//
// The reply comes from the leader. Invalidations and messages come from this
// node's state machine, which may be behind the leader. So the connection
// delays the replies of a group that writes until this node's hub has received
// the group's events (Cluster.OwnEventsDelivered), and inserts each event
// behind the reply of its command. Connections that neither track nor subscribe
// do not wait.

// maxHear bounds the wait for events. A node that loses the leader directly
// after the leader's reply may receive the entry much later.
const maxHear = 5 * time.Second

// cause identifies the operation in the log that caused a message.
type cause struct {
	// The operation is operation op of the group at position in the entry at
	// index, a log index. index is 0 if the cause is not known.
	index    uint64
	position int
	op       int
	// wait is the connection's own blocking command, if the operation is that
	// command when it was served; otherwise it is 0.
	wait fsm.Pos
}

// causeFor returns the cause of an event of the entry at a log index, from the
// point of view of connection id.
func causeFor(index uint64, e *fsm.Event, id uint64) cause {
	if e == nil {
		return cause{}
	}
	why := cause{index: index, position: e.Group, op: e.Op}
	if e.Waiter != nil && e.Waiter.Origin == id {
		why.wait = e.Waiter.Pos
	}
	return why
}

// relative compares the cause with the group at a position of the entry at
// index. before means that the cause precedes the group in the log, in that the
// cause belongs to the group.
func (w *cause) relative(index uint64, position int) (before, in bool) {
	switch {
	case w.index == 0 || index == 0:
		return false, false
	case w.index == index && w.position == position:
		return false, true
	}
	return w.index < index || w.index == index && w.position < position, false
}

// hears reports whether the group that the connection is about to run may cause
// events for the connection itself.
func (c *conn) hears() bool {
	switch {
	case c.proto >= 3 && c.info.subscribed():
		return true
	case !c.tracking.on || c.proto < 3 && c.tracking.redirect == 0:
		return false
	case c.tracking.bcast || c.tracking.reads():
		return true
	default: // OPTIN or OPTOUT, and this group is not tracked
		return c.srv.hub.holds(c.id)
	}
}

// holds reports whether a connection has read keys whose invalidation it may
// still receive.
func (h *hub) holds(id uint64) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.track.held[id] > 0
}

// hear waits until the hub has received the events of the executor's last
// group.
func (c *conn) hear() {
	first, last := c.exec.Sent()
	if last == 0 {
		return
	}
	var at cause
	delivered := c.hearUntil(func(f func()) {
		c.srv.cluster.OwnEventsDelivered(last, func(index uint64, position int) {
			at = cause{index: index, position: position}
			f()
		})
	})
	switch {
	case !delivered:
		c.srv.hub.doubt(c.id)
	case first == last: // a group run in pieces counts operations per piece
		c.heard = at
	}
}

// hearAll waits until the hub has received the events of every entry that was
// committed when hearAll was called. Without a leader that log index is not
// known, and hearAll returns.
func (c *conn) hearAll() {
	position, err := c.position()
	if err != nil || position == 0 {
		return
	}
	c.hearUntil(func(f func()) { c.srv.cluster.EventsDelivered(position, f) })
}

// hearUntil waits until delivered has called its argument. It returns false if
// that takes longer than maxHear or the server stops.
func (c *conn) hearUntil(delivered func(f func())) bool {
	done := make(chan struct{})
	delivered(func() { close(done) })
	select {
	case <-done: // the usual case on the leader
		return true
	default:
	}
	t := time.NewTimer(c.srv.maxHear)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		c.srv.log.Warn("events of a write were not delivered in time", "client", c.id, "waited", c.srv.maxHear)
	case <-c.srv.stopping:
	}
	return false
}

// doubt sends a connection that tracks an invalidation of all keys. The
// connection is about to receive the reply of a write whose invalidations have
// not reached this node.
func (h *hub) doubt(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.send(id, allKeys, cause{})
}

// writeGroup writes the replies of a group and charges them. If the connection has waited for
// the group's events (hear), messages with a cause before the group come first,
// and messages that the group's operations caused come between the replies. All
// other messages follow the replies.
func (c *conn) writeGroup(replies []byte) {
	if len(replies) > sliceBytes {
		// All of them stay in memory until the last one is sent: also while a
		// message is being sent, and while the messages between them are.
		c.mem.Add(int64(len(replies)))
		c.charged = true
		defer func() {
			c.charged = false
			c.mem.Add(-int64(len(replies)))
		}()
	}
	c.writeBetween(replies)
}

// writeBetween writes the replies of a group and the messages between them.
func (c *conn) writeBetween(replies []byte) {
	op := 0
	for _, m := range c.out.takeUntil(c.heard) {
		_, in := m.cause.relative(c.heard.index, c.heard.position)
		for ; in && op <= m.cause.op; op++ {
			n := wire.Len(replies)
			c.write(replies[:n])
			replies = replies[n:]
		}
		c.put(m.b)
	}
	c.heard = cause{}
	c.write(replies)
}
