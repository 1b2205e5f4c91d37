package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// leading says which leader the forwarder is linked to.
type leading struct {
	// now is the id of the leader while this node has a link to its open
	// leadership, and nil otherwise. Each link stores its own pointer: if the
	// pointer is the same at two moments, one link has lasted from the first to
	// the second.
	now  atomic.Pointer[string]
	last atomic.Pointer[string] // the leader to which this node was linked last

	watchers watchers // watchers of Node.Watch
}

// linked records a new link to the leader.
func (l *leading) linked(id string) {
	l.last.Store(&id)
	l.now.Store(&id)
	l.watchers.signal()
}

// unlinked records that the link has ended.
func (l *leading) unlinked() {
	l.now.Store(nil)
	l.watchers.signal()
}

// Leader returns the id of the leader, as far as this node knows it, and true.
// This node knows a leader while it is linked to the leader's open leadership,
// or while its own leadership is open. Otherwise, Leader returns the id of the
// last leader ("" before the first) and false. The leader may have lost its
// majority without this node's knowledge: see ConfirmLeader.
func (n *Node) Leader() (id string, ok bool) {
	now := n.leading.now.Load()
	if now != nil && *now == n.cfg.NodeID {
		return *now, true
	}
	// Other nodes may be linked to this node's new leadership before this node
	// is, and may send clients here. So this node must already report that it
	// leads.
	if n.leaderships.current() != nil {
		return n.cfg.NodeID, true
	}
	if now != nil {
		return *now, true
	}
	if last := n.leading.last.Load(); last != nil {
		return *last, false
	}
	return "", false
}

// ConfirmLeader returns the id of the leader after a majority of the voters has
// confirmed that it still leads. The voters confirm this after the call has
// begun, as a linearizable read requires. If another node leads and has a
// lease, the lease takes the place of the confirmation. ConfirmLeader waits for
// a leader until ctx ends, at most Options.LeaderWait.
func (n *Node) ConfirmLeader(ctx context.Context) (id string, err error) {
	for {
		before := n.leading.now.Load()
		// The call is an empty read. If ctx ends first, no goroutine waits for
		// the call any longer; the link or sweep ends it.
		c := &call{forwarder: n.forwarder, body: noop, done: make(chan struct{}, 1), unleased: true}
		n.forwarder.read(c)
		select {
		case <-c.done:
		case <-ctx.Done():
			return "", ctx.Err()
		}
		if c.err != nil {
			return "", c.err
		}
		if before != nil && n.leading.now.Load() == before {
			return *before, nil
		}
	}
}

// AwaitLeader does what Leader does, but waits for a leader until ctx ends.
func (n *Node) AwaitLeader(ctx context.Context) (id string, ok bool) {
	changed, stop := n.Watch()
	defer stop()
	for {
		if id, ok = n.Leader(); ok {
			return id, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return id, false
		}
	}
}

// Ready waits until the node has a link to a leader, so that it can serve
// clients.
func (n *Node) Ready(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !n.Linked() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w", ctx.Err())
		case <-n.ctx.Done():
			return outcome.ErrClosed
		case <-t.C:
		}
	}
	return nil
}

// Linked reports whether the node currently has a link to a leader.
func (n *Node) Linked() bool { return n.forwarder.isLinked() }

// NotReady returns why this node should get no clients, or "". A node that
// cannot catch up is not ready even if it has a link to the leader, because its
// own state falls further behind.
func (n *Node) NotReady() string {
	if behind := n.snapshots.Behind(); behind != "" {
		return behind
	}
	if n.Linked() {
		return ""
	}
	return cmp.Or(n.founder.waitsFor(), "no leader")
}

// Watch returns a channel that receives a token after the leader or the result
// of PeerHealth has changed. Changes of the fields Applied, Heard and Disk do not
// count. Changes in quick succession may share a token. stop removes the channel.
func (n *Node) Watch() (changed <-chan struct{}, stop func()) { return n.leading.watchers.add() }

// watchers are the channels that Watch returned.
type watchers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (w *watchers) signal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.all {
		signal(ch)
	}
}

// add returns a new channel of capacity 1. stop removes it.
func (w *watchers) add() (ch chan struct{}, stop func()) {
	ch = make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[chan struct{}]struct{})
	}
	w.all[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		delete(w.all, ch)
		w.mu.Unlock()
	}
}
