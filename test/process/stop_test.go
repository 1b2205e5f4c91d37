package process

import (
	"syscall"
	"testing"
	"time"
)

// stopLimit is how long a node may take from SIGTERM to its end.
const stopLimit = 5 * time.Second

// stopNode stops a node as an operator does.
func stopNode(t *testing.T, n *Node) {
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

// SIGTERM on the leader, under load: clients of the other nodes see no error;
// those of the leader lose their connection, but are told "not executed" only of
// what was not.
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

// All nodes restarted one after the other, leader last as the manual says, and
// then in the worst order: each time the one that leads.
func TestStop_RollingRestart(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "roll", each(9, c.Nodes)...)
	restart := func(n *Node) {
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

// All nodes told to stop at the same moment end in time too, although there is
// nobody left to hand over to, and come back with everything.
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
