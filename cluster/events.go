package cluster

import (
	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Listen sets the node's listener. It must be called once, before Want and
// Close.
func (n *Node) Listen(l events.Listener) {
	n.wg.Go(func() {
		n.events.Deliver(n.ctx, l, func(index uint64, why string) {
			n.stats.EventsMissed.Inc()
			n.log.Warn("events were not delivered", "index", index, "reason", why)
		})
	})
}

// Want selects the kinds of events that the listener receives. The selection
// applies to all entries that are applied after Want has returned.
func (n *Node) Want(kinds fsm.EventKinds) { n.machine.Want(kinds) }

// EventsDelivered calls f once the listener has received all events up to the
// given log index. It also calls f when the node stops and delivers no more
// events. f must not block.
func (n *Node) EventsDelivered(index uint64, f func()) {
	n.machine.WhenApplied(index, func(bool) { n.events.Mark(f) })
}

// OwnEventsDelivered calls f once the listener has received the events of this
// node's groups up to group (see Session.Sent). It also calls f when the node
// stops and delivers no more events.
//
// f receives the log index of the group's entry and the group's position in
// Result.Groups. The index is 0 if the position is not known. A node that is
// cut off from the leader may apply the entry much later than the leader
// answered the group. f must not block.
func (n *Node) OwnEventsDelivered(group uint64, f func(index uint64, position int)) {
	n.events.MarkOwn(group, f)
}

// WatchUsers calls f with the users of this node's state, immediately and after
// each change. The goroutine that applies the log calls f, so f must not wait
// for that goroutine. Two goroutines may call f at the same time, and f may
// receive an older table after a newer one.
func (n *Node) WatchUsers(f func(*fsm.Users)) { n.machine.WatchUsers(f) }

// WatchDenials sets the function that is called when a script that this node
// runs, for a client of any node, is denied a command. There is one such
// function; a later call replaces it.
func (n *Node) WatchDenials(f func(user string, v acl.Verdict)) { n.scripts.OnDenied(f) }
