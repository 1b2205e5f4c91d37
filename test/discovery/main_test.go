package discovery

import (
	"net"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// binary is the program under test.
var binary string

func TestMain(m *testing.M) { testutil.MainWithProgram(m, &binary) }

// limit is how long a wait may take on a slow machine.
const limit = 60 * time.Second

// cluster is three running nodes, and the node that was leader when they
// started.
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
			a, _ := redis.Values(slaves, nil) // an error means: not yet
			b, _ := redis.Values(others, nil)
			return len(a) == 2 && len(b) == 2
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
			slots, err := redis.Values(ask(t, n.Clients, "CLUSTER", "SLOTS"), nil)
			if err != nil || len(slots) != 1 {
				return false
			}
			entry, err := redis.Values(slots[0], nil)
			return err == nil && len(entry) == 5
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

// killLeader kills the leader's process, as kill -9 does.
func (c *cluster) killLeader(t *testing.T) {
	t.Helper()
	if err := c.leader.Kill(); err != nil {
		t.Fatal(err)
	}
}

// addrs returns an address of every node. A follower's is first.
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

// ask sends one command on a connection of its own. The reply may be an error.
func ask(t *testing.T, addr string, words ...string) any {
	t.Helper()
	c, err := redis.Dial("tcp", addr, redis.DialConnectTimeout(5*time.Second), redis.DialReadTimeout(limit))
	if err != nil {
		t.Fatalf("connect to %s: %v", addr, err)
	}
	defer c.Close()
	args := make([]any, len(words)-1)
	for i, w := range words[1:] {
		args[i] = w
	}
	reply, err := c.Do(words[0], args...)
	if err != nil {
		return err
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
