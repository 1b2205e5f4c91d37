package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-kv/holdfast/acl"
	"github.com/holdfast-kv/holdfast/cluster/events"
	"github.com/holdfast-kv/holdfast/cluster/history"
	"github.com/holdfast-kv/holdfast/cluster/snapshot"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Listen sets the node's listener. It may be called once, before Want and Close.
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
// each change. The goroutine that applies the log calls f after a change, so f
// must not wait for that goroutine. A call after a change and the immediate call
// may run at the same time, so f may receive older users after newer ones.
func (n *Node) WatchUsers(f func(*fsm.Users)) { n.machine.WatchUsers(f) }

// WatchDenials sets the function that this node calls when it denies a command to
// a script that it runs. The client of the script may be connected to any node.
// There is one such function; a later call replaces it.
func (n *Node) WatchDenials(f func(user string, v acl.Verdict)) { n.scripts.OnDenied(f) }

// WatchExpiries sets the function that is called when the lease of a lock expires
// while this node leads. There is one such function; a later call replaces it. The
// goroutine that applies the log calls f, so f must not block.
func (n *Node) WatchExpiries(f func(fsm.LockEvent)) { n.expiries.Store(&f) }

// locksChanged handles the changes that an entry has made to locks. It informs
// the waits of this node. If this node leads, it also counts the changes and
// announces the leases that have expired. Because only the leader counts them,
// the counts of all nodes can be added up.
func (n *Node) locksChanged(term uint64, res *fsm.Result) {
	n.waits.granted(res.Locks)
	if !n.leaderships.leads(term) {
		return
	}
	n.stats.Locks.Applied(term, res)
	f := n.expiries.Load()
	if f == nil {
		return
	}
	for i := range res.Locks {
		if e := &res.Locks[i]; e.Kind == fsm.LockEnded && e.How == fsm.LockExpired {
			(*f)(*e)
		}
	}
}

// openHistory opens the history of locks. It returns nil if the node keeps no
// history or cannot open it, because a node can serve clients without a history.
func (n *Node) openHistory() *history.Store {
	if n.cfg.Options.LockHistory == 0 {
		return nil
	}
	s, err := history.Open(history.Config{
		Dir:    storage.HistoryDir(n.cfg.DataDir),
		Bytes:  n.cfg.Options.LockHistory,
		Gaps:   n.stats.LockHistoryGaps,
		Logger: n.log.Named("history"),
	})
	if err != nil {
		n.log.Error("node keeps no history of locks", "error", err)
		return nil
	}
	return s
}

// closeHistory closes the history of locks. The node calls it after the last entry
// has been applied.
func (n *Node) closeHistory() {
	if n.history != nil {
		n.history.Close()
	}
}

// lockHistoryBytes returns the size of the history of locks, in bytes.
func (n *Node) lockHistoryBytes() int64 {
	if n.history == nil {
		return 0
	}
	return n.history.Bytes()
}

const (
	// historyLeaderWait bounds how long a query for the history of locks waits for
	// a leader. It is longer than most elections.
	historyLeaderWait = time.Second
	// historyWait bounds how long such a query waits until this node has caught
	// up with the leader.
	historyWait = 5 * time.Second
)

// LockHistory answers a query from this node's history of locks. Unless local
// is set, the answer contains everything that was acknowledged before the call,
// as long as there is a leader and this node is not far behind it. Answer.Until
// says up to which time the answer is complete. LockHistory returns
// history.ErrOff if the node keeps no history.
func (n *Node) LockHistory(ctx context.Context, q history.Query, local bool) (history.Answer, error) {
	if n.history == nil {
		return history.Answer{}, history.ErrOff
	}
	led := false // whether there is a leader, so that the lease clock advances
	if !local && n.awaitLeader(ctx, historyLeaderWait) {
		ctx, cancel := context.WithTimeout(ctx, historyWait)
		err := n.catchUp(ctx)
		cancel()
		if err != nil { // a history up to some earlier time is better than none
			n.log.Debug("history of locks may be old: failed to catch up with the leader", "error", err)
		}
		if errors.Is(err, snapshot.ErrNodeStops) {
			return history.Answer{}, err
		}
		led = err == nil
	}
	var state history.State
	n.machine.View(func(m *fsm.Machine) {
		state = history.State{Index: m.Applied(), Clock: m.Clock(), Holders: m.LockHolders(q.DB, q.Key)}
	})
	if led {
		state.Clock.Lease = max(state.Clock.Lease, n.machine.Lease())
	}
	return n.history.Query(ctx, q, state)
}

// awaitLeader waits up to limit until this node knows the leader, and reports
// whether this node knows it.
func (n *Node) awaitLeader(ctx context.Context, limit time.Duration) bool {
	changed, stop := n.Watch()
	defer stop()
	t := time.NewTimer(limit)
	defer t.Stop()
	for {
		if _, known := n.Leader(); known {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-t.C:
			return false
		}
	}
}
