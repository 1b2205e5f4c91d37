package cluster

import (
	"context"
	"sync"
	"sync/atomic"
)

// leading is whom the gateway is linked to.
type leading struct {
	// now is the leader while its office is open and this node has a way to it,
	// else nil. Each link stores a pointer of its own: the same pointer at two
	// moments means that one link has lasted from the one to the other.
	now  atomic.Pointer[string]
	last atomic.Pointer[string] // the one before, or now
}

// lead notes a new link to the leader.
func (n *Node) lead(id string) {
	n.leading.last.Store(&id)
	n.leading.now.Store(&id)
	n.watchers.poke()
	poke(n.relearn) // the leader before may have died
}

// unlead notes that the link has ended.
func (n *Node) unlead() {
	n.leading.now.Store(nil)
	n.watchers.poke()
}

// Leader returns the id of the node that leads, as far as this node knows: its
// office is open and this node linked to it. While there is none it returns the
// last one ("" before the first) and false. A leader that was cut off may still
// be named for a moment, until its lease is over: see ConfirmLeader.
func (n *Node) Leader() (id string, ok bool) {
	now := n.leading.now.Load()
	if now != nil && *now == n.cfg.NodeID {
		return *now, true
	}
	// The others may be linked to this node's new office before it is itself, and
	// send clients here: it must not say then that it follows.
	if n.currentOffice() != nil {
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

// ConfirmLeader returns the id of the node that leads, after a majority of the
// voters has confirmed to it that it does, later than this call began: what a
// linearizable read asks for. It waits for a leader until ctx ends.
func (n *Node) ConfirmLeader(ctx context.Context) (id string, err error) {
	for {
		before := n.leading.now.Load()
		// A read of nothing. If ctx ends first it is left to itself: nobody waits
		// for it, and the link or the sweeper ends it.
		c := &call{gateway: n.gateway, body: noop, done: make(chan struct{}, 1)}
		n.gateway.read(c)
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

// AwaitLeader is Leader, but waits for one until ctx ends.
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

// watchers are told of changes.
type watchers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (w *watchers) poke() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.all {
		poke(ch)
	}
}

// Watch returns a channel that holds a token after the leader or what Contacts
// says has changed. Changes that follow fast may share a token. stop ends it.
func (n *Node) Watch() (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w := &n.watchers
	w.mu.Lock()
	if w.all == nil {
		w.all = make(map[chan struct{}]struct{})
	}
	w.all[ch] = struct{}{}
	w.mu.Unlock()
	return ch, func() {
		w.mu.Lock()
		delete(w.all, ch)
		w.mu.Unlock()
	}
}
