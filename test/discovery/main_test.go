package discovery

import (
	"net"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { testutil.MainWithProgram(m, &binary) }

// limit is how long a wait may take on a slow machine.
const limit = 60 * time.Second

// cluster contains three running nodes, and the node that became leader after
// their start.
type cluster struct {
	*process.Cluster
	leader *process.Node
}

// sentinels starts nodes with Sentinel ports and waits until each of them knows
// the others. All nodes get args as further arguments.
func sentinels(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := startCluster(t, process.Config{Sentinel: true, Args: args})
	for _, n := range c.Nodes {
		known := func() bool {
			slaves, others := ask(t, n.Sentinel, "SENTINEL", "SLAVES", "mymaster"),
				ask(t, n.Sentinel, "SENTINEL", "SENTINELS", "mymaster")
			return len(slaves.Elems) == 2 && len(others.Elems) == 2 // an error reply has no elements
		}
		if err := process.Poll(testutil.Within(t, limit), "the nodes to know each other", known); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// shard starts nodes in cluster mode and waits until each of them knows the
// others.
func shard(t *testing.T) *cluster {
	t.Helper()
	c := startCluster(t, process.Config{Args: []string{"--cluster-mode"}})
	for _, n := range c.Nodes {
		known := func() bool {
			slots := ask(t, n.Clients, "CLUSTER", "SLOTS").Elems
			return len(slots) == 1 && len(slots[0].Elems) == 5
		}
		if err := process.Poll(testutil.Within(t, limit), "the nodes to know each other", known); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func startCluster(t *testing.T, cfg process.Config) *cluster {
	t.Helper()
	cfg.Program = binary
	c := testutil.StartCluster(t, cfg)
	leader, err := c.Leader(testutil.Within(t, limit))
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{c, leader}
}

// killLeader kills the leader's process with SIGKILL.
func (c *cluster) killLeader(t *testing.T) {
	t.Helper()
	if err := c.leader.Kill(); err != nil {
		t.Fatal(err)
	}
}

// addrs returns the client or the Sentinel address of every node. A follower's
// address is first.
func (c *cluster) addrs(of func(*process.Node) string) []string {
	var out []string
	for _, n := range c.Nodes {
		if n != c.leader {
			out = append(out, of(n))
		}
	}
	return append(out, of(c.leader))
}

func clientsOf(n *process.Node) string  { return n.Clients }
func sentinelOf(n *process.Node) string { return n.Sentinel }

// ask sends one command on a new connection. The reply may be an error.
func ask(t *testing.T, addr string, words ...string) respwire.Value {
	t.Helper()
	reply, err := respwire.Do(addr, limit, words...)
	if err != nil {
		t.Fatalf("%v through %s: %v", words, addr, err)
	}
	return reply
}

func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
