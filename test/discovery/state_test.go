package discovery

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestReplicas_CountAgreesAlways queries every node repeatedly, while the
// leader transfers its leadership and then dies. The number of replicas that a
// node lists must always equal the number that its WAIT returns. If they
// differ, Redisson considers its lock lost.
func TestReplicas_CountAgreesAlways(t *testing.T) {
	c := sentinels(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	rounds := make(chan *process.Node, 1024)
	for _, n := range c.Nodes {
		wg.Go(func() {
			for ctx.Err() == nil {
				difference, err := agrees(n)
				if difference != "" {
					t.Errorf("%s: %s", n.ID, difference)
				}
				if err != nil { // the node was probably killed; otherwise, a later call of seen fails
					return
				}
				select {
				case rounds <- n:
				default:
				}
			}
		})
	}
	// seen waits until the function agrees has returned n more times for each of
	// the nodes.
	seen := func(nodes []*process.Node, n int) {
		t.Helper()
		left := make(map[*process.Node]int)
		for _, node := range nodes {
			left[node] = n
		}
		timeout := time.After(limit)
		for len(left) > 0 {
			select {
			case node := <-rounds:
				if left[node]--; left[node] <= 0 {
					delete(left, node)
				}
			case <-timeout:
				t.Fatal("the nodes do not answer")
			}
		}
	}
	seen(c.Nodes, 20)
	if reply := ask(t, c.addrs(sentinelOf)[0], "SENTINEL", "FAILOVER", "mymaster"); reply.Text != "OK" {
		t.Errorf("SENTINEL FAILOVER: %v", reply)
	}
	seen(c.Nodes, 20)
	leader, err := c.Leader(testutil.Within(t, limit))
	if err != nil {
		t.Fatal(err)
	}
	if leader == c.leader {
		t.Errorf("%s still leads after SENTINEL FAILOVER", leader.ID)
	}
	c.leader = leader
	c.killLeader(t)
	seen(c.Running(), 200)
	cancel()
	wg.Wait()
}

// TestFailover_SentinelMode checks that FAILOVER agrees with ROLE: a node whose
// role is replica refuses FAILOVER with the error of Redis.
func TestFailover_SentinelMode(t *testing.T) {
	c := sentinels(t)
	for _, n := range c.Nodes {
		role := ask(t, n.Clients, "ROLE")
		if len(role.Elems) == 0 {
			t.Fatalf("ROLE through %s: %v", n.ID, role)
		}
		kind := role.Elems[0].Text
		want := "ERR FAILOVER with force option requires both a timeout and target HOST and IP."
		if kind == "slave" {
			want = "ERR FAILOVER is not valid when server is a replica."
		}
		if got := ask(t, n.Clients, "FAILOVER", "FORCE").Err; got != want {
			t.Errorf("%s, ROLE %s: FAILOVER FORCE: %q, want %q", n.ID, kind, got, want)
		}
	}
}

// agrees checks on a new connection that the replies of a node to INFO, WAIT
// and WAITAOF report one replica, and that the reply to ROLE does too if the
// node is the master. difference contains replies that do not agree, or is "".
func agrees(n *process.Node) (difference string, err error) {
	conn, err := respwire.Connect(n.Clients, limit)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	for range 10 {
		info, err := respwire.NoError(conn.Do("INFO", "replication"))
		if err != nil {
			return "", err
		}
		acked, err := respwire.NoError(conn.Do("WAIT", "1", "1000"))
		if err != nil {
			return "", err
		}
		aof, err := respwire.NoError(conn.Do("WAITAOF", "1", "1", "1000"))
		if err != nil {
			return "", err
		}
		lines := strings.Count(info.Text, "\r\nslave0:") + strings.Count(info.Text, "\r\nslave1:")
		if !strings.Contains(info.Text, "\r\nconnected_slaves:1\r\n") || acked.Int != 1 || lines != 1 ||
			!slices.Equal(aof.Texts(), []string{"1", "1"}) {
			return fmt.Sprintf("WAIT %v, WAITAOF %v, INFO %q", acked, aof, info), nil
		}
		role, err := respwire.NoError(conn.Do("ROLE"))
		if err != nil {
			return "", err
		}
		if len(role.Elems) < 3 || role.Elems[0].Text == "master" && len(role.Elems[2].Elems) != 1 {
			return fmt.Sprintf("WAIT %v, ROLE %v", acked, role), nil
		}
	}
	return "", nil
}

// TestSentinel_SwitchMaster checks that every Sentinel sends a message to its
// subscribers at every change of leader, and returns the new leader from then
// on.
func TestSentinel_SwitchMaster(t *testing.T) {
	c := sentinels(t)
	subs := make(map[*process.Node]*rawConn)
	for _, n := range c.Nodes {
		subs[n] = dialRaw(t, n.Sentinel, 3)
		if got := subs[n].do("SUBSCRIBE +switch-master"); got != ">3\n$subscribe\n$+switch-master\n:1" {
			t.Fatalf("SUBSCRIBE: %q", got)
		}
	}
	change := func(old *process.Node, without ...*process.Node) (leader *process.Node) {
		t.Helper()
		leader, err := c.Leader(testutil.Within(t, limit), without...)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Running(without...) {
			want := fmt.Sprintf(">3\n$message\n$+switch-master\n$mymaster 127.0.0.1 %s 127.0.0.1 %s",
				portOf(t, old.Clients), portOf(t, leader.Clients))
			if got := subs[n].reply(); got != want {
				t.Errorf("%s sent %q, want %q", n.ID, got, want)
			}
			named := dialRaw(t, n.Sentinel, 2).do("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster")
			if want := "*2\n$127.0.0.1\n$" + portOf(t, leader.Clients); named != want {
				t.Errorf("%s names %q, want %q", n.ID, named, want)
			}
		}
		return leader
	}
	// In RESP3, a connection with subscriptions may send other commands.
	const usable = "+OK 3 usable Sentinels. Quorum and failover authorization can be reached"
	if got := subs[c.leader].do("SENTINEL CKQUORUM mymaster"); got != usable {
		t.Errorf("CKQUORUM: %q", got)
	}
	old := c.leader
	if got := dialRaw(t, old.Sentinel, 2).do("SENTINEL FAILOVER mymaster"); got != "+OK" {
		t.Fatalf("SENTINEL FAILOVER: %q", got)
	}
	next := change(old)
	if next == old {
		t.Errorf("%s still leads", next.ID)
	}
	c.leader = next
	c.killLeader(t)
	last := change(next)
	// The Sentinels must flag the dead node as down.
	flagged := func() bool {
		text := dialRaw(t, last.Sentinel, 2).do("SENTINEL REPLICAS mymaster") +
			dialRaw(t, last.Sentinel, 2).do("SENTINEL SENTINELS mymaster")
		return strings.Contains(text, "$s_down,slave,disconnected") &&
			strings.Contains(text, "$s_down,sentinel,disconnected")
	}
	if err := process.Poll(testutil.Within(t, limit), "the dead node to be flagged", flagged); err != nil {
		t.Error(err)
	}
	// Without a majority there is no leader. The Sentinels name the last
	// leader and report it as down.
	for _, n := range c.Running(last) {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	down := func() bool {
		return strings.Contains(dialRaw(t, last.Sentinel, 2).do("SENTINEL MASTER mymaster"),
			"$s_down,o_down,master,disconnected")
	}
	if err := process.Poll(testutil.Within(t, limit), "the master to be flagged as down", down); err != nil {
		t.Error(err)
	}
	s := dialRaw(t, last.Sentinel, 2)
	if got, want := s.do("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster"),
		"*2\n$127.0.0.1\n$"+portOf(t, last.Clients); got != want {
		t.Errorf("without a leader, the Sentinel names %q, want %q", got, want)
	}
	if got := s.do("SENTINEL CKQUORUM mymaster"); !strings.HasPrefix(got, "-NOQUORUM 1 usable Sentinels. ") {
		t.Errorf("CKQUORUM: %q", got)
	}
	d := dialRaw(t, last.Clients, 2)
	if got := d.do("ROLE"); !strings.HasPrefix(got, "*5\n$slave\n") || !strings.Contains(got, "\n$connect\n") {
		t.Errorf("ROLE without a leader: %q", got)
	}
	if got := d.do("INFO replication"); !strings.Contains(got, "\r\nmaster_link_status:down\r\n") {
		t.Errorf("INFO without a leader: %q", got)
	}
}

func TestCluster_NoLeader(t *testing.T) {
	c := shard(t)
	last := c.Nodes[0]
	for _, n := range c.Nodes[1:] {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	conn := dialRaw(t, last.Clients, 2)
	down := func() bool { return strings.Contains(conn.do("CLUSTER INFO"), "cluster_state:fail") }
	if err := process.Poll(testutil.Within(t, limit), "the cluster to be down", down); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"SET foo 1", "GET foo", "WATCH foo"} {
		if got := conn.do(line); got != "-CLUSTERDOWN The cluster is down" {
			t.Errorf("%s: %q", line, got)
		}
	}
	for line, want := range map[string]string{"PING": "+PONG", "READONLY": "+OK", "GET foo": "$-1"} {
		if line == "GET foo" {
			conn.do("READONLY")
		}
		if got := conn.do(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestSentinel_Password(t *testing.T) {
	c, err := process.New(process.Config{Program: binary, Dir: t.TempDir(), Nodes: 1, Sentinel: true,
		Args: []string{"--requirepass", "secret", "--sentinel-master-name", "locks"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := process.Poll(testutil.Within(t, limit), "the Sentinel port",
		func() bool { return answers(c.Nodes[0].Sentinel) }); err != nil {
		t.Fatal(err)
	}
	conn := dialRaw(t, c.Nodes[0].Sentinel, 2)
	if got := conn.do("SENTINEL MASTERS"); got != "-NOAUTH Authentication required." {
		t.Errorf("without a password: %q", got)
	}
	if got := conn.do("AUTH secret"); got != "+OK" {
		t.Errorf("AUTH: %q", got)
	}
	named := func() bool { return strings.HasPrefix(conn.do("SENTINEL GET-MASTER-ADDR-BY-NAME locks"), "*2\n") }
	if err := process.Poll(testutil.Within(t, limit), "a master of that name", named); err != nil {
		t.Error(err)
	}
	if got := conn.do("SENTINEL FAILOVER locks"); got != "-NOGOODSLAVE No suitable replica to promote" {
		t.Errorf("FAILOVER without a replica: %q", got)
	}
}

func TestFlags_ThatCannotWork(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"--sentinel-addr 127.0.0.1:1 --cluster-mode", "exclude each other"},
		{"--sentinel-addr 127.0.0.1", "--sentinel-addr is"},
		{"--sentinel-addr 0.0.0.0:1", "--advertise-sentinel-addr"},
		{"--sentinel-addr 127.0.0.1:1 --sentinel-master-name a\tb", "--sentinel-master-name"},
		{"--cluster-mode --client-addr 0.0.0.0:1", "--advertise-client-addr"},
		{"--cluster-mode --advertise-client-addr :1", "--advertise-client-addr"},
	} {
		args := append([]string{"serve", "--node-id", "n1", "--data-dir", t.TempDir(), "--peers", "n1=127.0.0.1:7379"},
			strings.Split(tc.args, " ")...)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		out, err := exec.CommandContext(ctx, binary, args...).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), tc.want) {
			t.Errorf("%s: %v, %q, want %q", tc.args, err, out, tc.want)
		}
	}
}

func TestRedisCLI(t *testing.T) {
	cli, err := exec.LookPath("redis-cli")
	testutil.Need(t, testutil.RequireClients, "redis-tools", err)
	run := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(testutil.Within(t, limit), cli, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("redis-cli %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	c := shard(t)
	port := portOf(t, c.addrs(clientsOf)[0])
	if got := run("-c", "-p", port, "SET", "lock", "me", "NX", "EX", "60"); got != "OK\n" {
		t.Errorf("redis-cli -c at a follower: %q", got)
	}
	if got := run("-p", port, "SET", "lock", "me"); got != "MOVED 8718 "+c.leader.Clients+"\n\n" {
		t.Errorf("redis-cli at a follower: %q", got)
	}
	c.killLeader(t)
	if got := run("-c", "-p", port, "GET", "lock"); got != "me\n" {
		t.Errorf("redis-cli -c after the leader was killed: %q", got)
	}
	s := sentinels(t)
	sentinel := portOf(t, s.addrs(sentinelOf)[0])
	if got, want := run("-p", sentinel, "SENTINEL", "get-master-addr-by-name", "mymaster"),
		"127.0.0.1\n"+portOf(t, s.leader.Clients)+"\n"; got != want {
		t.Errorf("redis-cli at a Sentinel: %q, want %q", got, want)
	}
}
