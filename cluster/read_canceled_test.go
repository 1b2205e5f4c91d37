package cluster_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// leaving is a client that leaves when leave is closed. It counts the watches
// that its session begins and stops.
type leaving struct {
	leave   chan struct{}
	mu      sync.Mutex
	watched int // watches that were begun
	open    int // watches that were begun and not stopped
}

func (l *leaving) watch() (<-chan struct{}, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched++
	l.open++
	return l.leave, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open--
	}, nil
}

// TestClientWatch: when a client leaves, its slow read ends, whether the client
// was connected to the leader or to a follower. The session can then be used
// again.
func TestClientWatch(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.SlowReadWait = time.Hour })
	leader := c.leader()
	c.client(leader).must(t, "MSET", "a", strings.Repeat("x", 1600), "b", strings.Repeat("y", 1600))
	c.features(fsm.MaxFeatures)
	if err := c.node(leader).OccupySlowReads(); err != nil {
		t.Fatal(err)
	}
	for _, id := range c.ids() {
		on := c.client(id)
		l := &leaving{leave: make(chan struct{})}
		on.s.WatchClient(l.watch)
		ended := make(chan error, 1)
		go func() {
			_, err := on.do("LCS", "a", "b", "LEN")
			ended <- err
		}()
		eventually(t, "the read waits on the leader", func() bool { return c.node(leader).SlowReadsWaiting() == 1 })
		close(l.leave)
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "client has closed its connection") || outcome.Of(err) != outcome.NotExecuted {
			t.Errorf("%s: the read ended with %v, want an error that says that it was not executed", id, err)
		}
		if l.watched == 0 || l.open != 0 {
			t.Errorf("%s: the session began %d watches and did not stop %d of them, want at least one and none", id, l.watched, l.open)
		}
		eventually(t, "the leader has ended the read", func() bool { return c.node(leader).SlowReadsWaiting() == 0 })
		if got, err := on.do("STRLEN", "a"); err != nil || got != ":1600\r\n" {
			t.Errorf("%s: STRLEN after the read: %q, %v, want 1600", id, got, err)
		}
		if n := c.node(id).ReadsSent(); n != 0 {
			t.Errorf("%s: %d reads have no answer, want 0", id, n)
		}
	}
}

// TestClientWatch_StreamEnds: a slow read that a follower has sent ends on the
// leader when the follower stops.
func TestClientWatch_StreamEnds(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.SlowReadWait = time.Hour })
	leader := c.leader()
	c.client(leader).must(t, "MSET", "a", strings.Repeat("x", 1600), "b", strings.Repeat("y", 1600))
	if err := c.node(leader).OccupySlowReads(); err != nil {
		t.Fatal(err)
	}
	follower := c.others(leader)[0]
	on := c.client(follower)
	ended := make(chan error, 1)
	go func() {
		_, err := on.do("LCS", "a", "b", "LEN")
		ended <- err
	}()
	eventually(t, "the read waits on the leader", func() bool { return c.node(leader).SlowReadsWaiting() == 1 })
	c.stop(follower)
	eventually(t, "the leader has ended the read", func() bool { return c.node(leader).SlowReadsWaiting() == 0 })
	if err := <-ended; err == nil {
		t.Error("the read succeeded although its node has stopped")
	}
}
