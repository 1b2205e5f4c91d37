package process_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestShutdown_LeaderUnderLoad sends SHUTDOWN to the leader under load.
// SHUTDOWN works like SIGTERM: the leader transfers its leadership, and the
// connection that sent the command ends without a reply.
func TestShutdown_LeaderUnderLoad(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "shutdown", each(9, c.Nodes)...)
	l.progress(50)
	leader := c.settled()
	l.excuseNode(leader, true)
	conn := dial(t, leader)
	if got := show(conn, "SHUTDOWN", "SAVE", "NOSAVE"); got != "ERR syntax error" {
		t.Errorf("SAVE NOSAVE: %s", got)
	}
	if got, err := conn.Do("SHUTDOWN", "NOSAVE"); !errors.Is(err, io.EOF) {
		t.Errorf("SHUTDOWN: %v, %v, want the end of the connection", got, err)
	}
	if code, err := leader.Wait(stopLimit); code != 0 || err != nil {
		t.Fatalf("exit code %d, %v; it printed\n%s", code, err, leader.Output())
	}
	l.progress(50)
	start(t, leader)
	c.settled()
	l.progress(20)
	l.excuse(false)
	l.check(c.Nodes[0])
}

// TestFailover checks that FAILOVER transfers leadership to the node that it
// names, and that only the leader accepts it. Without Sentinel ports every node
// calls itself a master, so a follower's error must not call it a replica.
func TestFailover(t *testing.T) {
	c := startCluster(t)
	leader := c.settled()
	to := c.others(leader)[0]
	host, port, err := net.SplitHostPort(to.Clients)
	if err != nil {
		t.Fatal(err)
	}
	mustGoTo := func(n *process.Node) string {
		return fmt.Sprintf("ERR FAILOVER must be sent to the leader, %s at %s", n.ID, n.Clients)
	}
	want(t, to, mustGoTo(leader), "FAILOVER")
	_, own, err := net.SplitHostPort(leader.Clients)
	if err != nil {
		t.Fatal(err)
	}
	want(t, leader, "ERR FAILOVER target HOST and PORT is not a replica.", "FAILOVER", "TO", host, own)
	want(t, leader, "ERR FAILOVER with force option requires both a timeout and target HOST and IP.", "FAILOVER", "TO",
		host, port, "FORCE")
	want(t, leader, "OK", "FAILOVER", "TO", host, port, "FORCE", "TIMEOUT", "5000")
	if now := c.settled(); now != to {
		t.Errorf("%s leads, want %s", now.ID, to.ID)
	}
	want(t, leader, mustGoTo(to), "FAILOVER")
	want(t, to, "OK", "FAILOVER")
	if now := c.settled(); now == to {
		t.Errorf("%s leads still", now.ID)
	}
}
