package process_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// stopLimit is how long a node may take from SIGTERM to its end.
const stopLimit = 5 * time.Second

// stopNode stops a node with SIGTERM, as an operator does.
func stopNode(t *testing.T, n *process.Node) {
	t.Helper()
	begun := time.Now()
	code, err := n.Stop(stopLimit)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Fatalf("%s exits with code %d after SIGTERM; it printed\n%s", n.ID, code, n.Output())
	}
	t.Logf("%s stopped in %v", n.ID, time.Since(begun).Round(time.Millisecond))
}

// TestStop_LeaderUnderLoad sends SIGTERM to the leader under load. Clients of
// the other nodes see no error. Clients of the leader lose their connection,
// but get "not executed" only for writes that were not executed.
func TestStop_LeaderUnderLoad(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "stop", each(12, c.Nodes)...)
	for range 3 {
		l.progress(50)
		leader := c.settled()
		l.excuseNode(leader, true)
		stopNode(t, leader)
		l.progress(50)
		start(t, leader)
		c.settled()
		l.progress(50)
		l.excuse(false)
	}
	l.progress(20)
	l.check(c.Nodes[0])
}

// TestStop_RollingRestart restarts all nodes one after the other: first with
// the leader last, as the manual says, and then in the worst order, which restarts
// the current leader each time.
func TestStop_RollingRestart(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "roll", each(9, c.Nodes)...)
	restart := func(n *process.Node) {
		t.Helper()
		l.excuseNode(n, true)
		stopNode(t, n)
		start(t, n)
		c.settled()
		l.progress(20)
		l.excuse(false)
	}
	l.progress(20)
	leader := c.settled()
	for _, n := range c.others(leader) {
		restart(n)
	}
	restart(leader)
	for range 3 {
		restart(c.settled())
	}
	l.progress(20)
	l.check(c.Nodes[0])
}

// TestStop_AllAtOnce stops all nodes at the same time. They must end in time,
// although no node is left to receive the leadership. Then they must start
// again with all data.
func TestStop_AllAtOnce(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "all", each(6, c.Nodes)...)
	l.progress(50)
	l.excuse(true)
	for _, n := range c.Nodes {
		send(t, n, syscall.SIGTERM)
	}
	for _, n := range c.Nodes {
		code, err := n.Wait(stopLimit)
		if err != nil {
			t.Fatal(err)
		}
		if code != 0 {
			t.Errorf("%s exits with code %d after SIGTERM; it printed\n%s", n.ID, code, n.Output())
		}
	}
	c.start()
	l.progress(50)
	l.excuse(false)
	l.progress(20)
	l.check(c.Nodes[0])
}
