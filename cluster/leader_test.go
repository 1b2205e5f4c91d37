package cluster_test

import (
	"context"
	"testing"
	"time"
)

// confirm asks a node for the confirmed leader, with a time limit.
func (c *testCluster) confirm(id string, limit time.Duration) (leader string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.node(id).ConfirmLeader(ctx)
}

func TestConfirmLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	old := c.leader()
	for _, id := range c.ids() {
		if got, err := c.confirm(id, waitLimit); err != nil || got != old {
			t.Errorf("%s says that %q leads, %v; want %s", id, got, err, old)
		}
	}
	rest := c.others(old)
	for _, id := range rest {
		c.net.hold(old, id)
		c.net.hold(id, old)
	}
	// LeaseTimeout may not be over yet for the node that was cut off. So the node
	// may believe that it leads, but it must not confirm this.
	if got, err := c.confirm(old, 200*time.Millisecond); err == nil {
		t.Errorf("a leader without a majority confirmed that %s leads", got)
	}
	next := c.leader(rest...)
	for _, id := range rest {
		if got, err := c.confirm(id, waitLimit); err != nil || got != next {
			t.Errorf("%s says that %q leads, %v; want %s", id, got, err, next)
		}
	}
	eventually(t, "the old leader to notice", func() bool { _, ok := c.node(old).Leader(); return !ok })
	if got, ok := c.node(old).Leader(); got != old || ok {
		t.Errorf("without a leader, Leader returned %q, %v, want %s, false", got, ok, old)
	}
	c.net.heal()
	if got, err := c.confirm(old, waitLimit); err != nil || got == old {
		t.Errorf("after the cut, %s says that %q leads, %v; want another leader", old, got, err)
	}
}

func TestWatch_LeadersAndPeerHealth(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	old := c.leader()
	watcher := c.node(c.others(old)[0])
	changed, stop := watcher.Watch()
	defer stop()
	until := func(what string, cond func() bool) {
		t.Helper()
		timeout := time.After(waitLimit)
		for !cond() {
			select {
			case <-changed:
			case <-timeout:
				t.Fatalf("no token after: %s", what)
			}
		}
	}
	known := func(id string, alive bool) func() bool {
		return func() bool {
			for _, m := range watcher.PeerHealth() {
				if m.ID == id {
					return m.Alive == alive && (m.RunID == "run-"+id || !alive)
				}
			}
			return false
		}
	}
	for _, id := range c.ids() {
		until(id+" answers", known(id, true))
	}
	c.stop(old)
	until("another leader", func() bool { leader, ok := watcher.Leader(); return ok && leader != old })
	until(old+" is gone", known(old, false))
	if got, want := len(watcher.Acknowledging()), 1; got != want {
		t.Errorf("Acknowledging returned %d nodes, want %d, no matter which nodes are up", got, want)
	}
	c.open(old)
	until(old+" is back", known(old, true))
}
