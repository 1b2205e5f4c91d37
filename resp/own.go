package resp

import (
	"time"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// A connection that tracks keys or has subscribed to channels is told of what its
// own commands did: the invalidation of a key that it has changed, the message that
// it has published. As in Redis that comes directly behind the reply of the command,
// so that a client that has seen the reply has also seen the invalidation, or sees
// it before the next reply. The reply comes from the leader, and invalidations and
// messages come from this node's own machine, which may be behind the leader. So
// such a connection holds the replies of a group that writes until this node's hub
// has been told of the group's events (Cluster.ToldOwn), and puts each event behind
// the reply of the command that caused it. Other connections wait for nothing.

// maxHear bounds the wait for events. A node that has lost the leader directly
// after the leader answered may learn of the entry much later.
const maxHear = 5 * time.Second

// cause says which operation of the log caused a message to a connection.
type cause struct {
	// The operation is the op-th of the group at a position of the entry at a log
	// index. The index is 0 if the cause is not known.
	index    uint64
	position int
	op       int
	// wait names the connection's own blocking command that did it when it was
	// served, 0 for none.
	wait fsm.Pos
}

// causeFor returns the cause of an event of the entry at a log index, as connection
// id sees it.
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

// relative reports whether the cause stands in the log before the group at a position
// of the entry at index, or in that group.
func (w *cause) relative(index uint64, position int) (before, in bool) {
	switch {
	case w.index == 0 || index == 0:
		return false, false
	case w.index == index && w.position == position:
		return false, true
	}
	return w.index < index || w.index == index && w.position < position, false
}

// hears reports whether the connection may be told of what the group that it is
// about to run does.
func (c *conn) hears() bool {
	switch {
	case seeded.On(seeded.OwnLate):
		return false
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

// holds reports whether a connection has read keys that it is still to be told of.
func (h *hub) holds(id uint64) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.track.held[id] > 0
}

// hear waits until the hub has been told of all that the executor's last group did.
func (c *conn) hear() {
	first, last := c.exec.Sent()
	if last == 0 {
		return
	}
	var at cause
	told := c.hearUntil(func(f func()) {
		c.srv.cluster.ToldOwn(last, func(index uint64, position int) {
			at = cause{index: index, position: position}
			f()
		})
	})
	switch {
	case !told:
		c.srv.hub.doubt(c.id)
	case first == last: // else it was run in pieces, each of which counts its own operations
		c.heard = at
	}
}

// hearAll waits until the hub has been told of everything that the log held a
// moment ago. Without a leader that is not known, and it waits for nothing more.
func (c *conn) hearAll() {
	position, err := c.position()
	if err != nil || position == 0 {
		return
	}
	c.hearUntil(func(f func()) { c.srv.cluster.Told(position, f) })
}

// hearUntil waits until told has called its argument. It returns false if that
// takes longer than maxHear or the server stops.
func (c *conn) hearUntil(told func(f func())) bool {
	done := make(chan struct{})
	told(func() { close(done) })
	select {
	case <-done: // as nearly always on the leader
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

// doubt tells a connection that tracks to drop all that it has cached: it is about
// to get the reply of a write whose invalidations are not here yet.
func (h *hub) doubt(id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.track.send(id, allKeys, cause{})
}

// writeGroup writes the replies of a group. If the connection has waited for it
// (hear), messages that were caused before the group come first, and those that its
// operations caused come between the replies. All others go behind the replies.
func (c *conn) writeGroup(replies []byte) {
	op := 0
	for _, m := range c.out.takeUntil(c.heard) {
		_, in := m.cause.relative(c.heard.index, c.heard.position)
		for ; in && op <= m.cause.op; op++ {
			n := replyLen(replies)
			c.write(replies[:n])
			replies = replies[n:]
		}
		c.sent += len(m.b)
		c.rc.WriteRaw(m.b)
	}
	c.heard = cause{}
	c.write(replies)
}
