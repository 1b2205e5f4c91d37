package cluster_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// When a leader hands over, every group gets its outcome: no outcome is unknown.
func TestHandOver(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	l := c.load("n", 4, c.ids()...)
	for range 3 {
		l.progress(50)
		leader := c.leader()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		// After take, the clients of this node begin no further groups. Their
		// groups in flight must get an outcome.
		n := c.members[leader].take()
		term := n.Status().Term
		n.HandOver(ctx)
		if ctx.Err() != nil {
			t.Error("groups of the old leader had no outcome")
		}
		cancel()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("handing over took %v, want at most 5s", took)
		} else {
			t.Logf("handed over in %v", took)
		}
		if st := n.Status(); st.Role == "leader" && st.Term == term { // it may have been elected again
			t.Error("the node still leads after HandOver")
		}
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		c.open(leader)
		c.ready(leader)
	}
	l.check("n1")
	if l.unknown.Load() > 0 {
		t.Errorf("%d unknown outcomes, want 0", l.unknown.Load())
	}
	c.caughtUp()
}

// HandOver returns when its context ends, even if no other node can take over.
func TestHandOver_NobodyThere(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	for _, id := range c.others(leader) {
		c.crash(id)
	}
	waits := c.client(leader).start("SET", "k", "v")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	c.node(leader).HandOver(ctx)
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("HandOver took %v, although its context ended after 300 ms", took)
	}
	c.stop(leader)
	r := awaitResult(t, "group at a node that stops", waits)
	if !errors.Is(r.err, outcome.ErrUnknown) && !errors.Is(r.err, outcome.ErrClosed) && !errors.Is(r.err, outcome.ErrNoLeader) {
		t.Errorf("group at a node that stops: %q, %v, want the error unknown, closed or no leader", r.reply, r.err)
	}
}

// Close may be called at any time: while the cluster forms, while a leadership
// opens, under load. It returns, and every request ends.
func TestClose_AnyTime(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		c := prepare(t, n)
		var wg sync.WaitGroup
		for round := range 8 {
			c.open(c.ids()...)
			if round%3 == 2 {
				c.ready(c.ids()...)
			}
			for _, id := range c.ids() {
				for range 4 {
					cl := c.client(id)
					wg.Go(func() {
						for i := 0; ; i++ {
							cmd := []string{"INCR", "n"}
							if i%2 == 0 {
								cmd = []string{"GET", "n"}
							}
							_, err := cl.do(cmd...)
							if errors.Is(err, outcome.ErrClosed) {
								return
							}
							if err != nil && !errors.Is(err, outcome.ErrUnknown) && !errors.Is(err, outcome.ErrNoLeader) {
								t.Errorf("%v: %v, want no error, or the error closed, unknown or no leader", cmd, err)
								return
							}
						}
					})
				}
			}
			during(time.Duration(round*round) * 8 * time.Millisecond)
			for _, id := range c.ids() {
				c.stop(id)
			}
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(waitLimit):
			t.Fatal("requests to closed nodes do not end")
		}
	}
}

// Close does not wait for answers from nodes that cannot be reached.
func TestClose_Partitioned(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	c.isolate(leader)
	c.client(leader).start("SET", "k", "v")
	eventually(t, "raft to wait for an answer", func() bool { return c.net.held.Load() > 0 })
	begun := time.Now()
	c.stop(leader)
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("Close took %v, want at most 2s: it must not wait for calls without an answer", took)
	}
}

// TestClose_AppliesNothingMore checks that a node applies no entry after it has
// begun to shut raft down. From then on, raft may skip entries, and the state would
// differ from the leader's.
func TestClose_AppliesNothingMore(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	id := c.others(leader)[0]
	c.caughtUp()
	n := c.members[id].take()
	locked, release, unlocked := make(chan uint64), make(chan struct{}), make(chan struct{})
	go n.View(func(m *fsm.Machine) { // no entry can be applied meanwhile
		defer close(unlocked)
		locked <- m.Applied()
		<-release
	})
	before := <-locked
	c.client(leader).want(t, ok, "SET", "k", "v")
	eventually(t, "an entry that the node is about to apply", func() bool {
		_, commit := n.Raft()
		return commit > before
	})
	closed := make(chan error, 1)
	go func() { closed <- n.Close() }()
	eventually(t, "raft to shut down", func() bool {
		state, _ := n.Raft()
		return state == raft.Shutdown
	})
	close(release)
	<-unlocked
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	n.View(func(m *fsm.Machine) {
		if m.Applied() != before {
			t.Errorf("the node applied entries %d to %d while it closed, want none", before+1, m.Applied())
		}
	})
}
