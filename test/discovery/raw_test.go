package discovery

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// rawConn speaks RESP and shows replies as they are, with every type and every
// element.
type rawConn struct {
	t    *testing.T
	conn *respwire.Conn
}

func dialRaw(t *testing.T, addr string, proto int) *rawConn {
	t.Helper()
	conn, err := respwire.Dial(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawConn{t, conn}
	if proto == 3 {
		c.do("HELLO 3")
	}
	return c
}

func (c *rawConn) send(line string) {
	c.t.Helper()
	if err := c.conn.Send(respwire.Words(line)); err != nil {
		c.t.Fatalf("%s: %v", line, err)
	}
}

func (c *rawConn) do(line string) string {
	c.t.Helper()
	c.send(line)
	return c.reply()
}

// reply reads one reply. It leaves out the lengths of strings, because they
// follow from the strings.
func (c *rawConn) reply() string {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		c.t.Fatal(err)
	}
	v, err := c.conn.Receive()
	if err != nil {
		c.t.Fatal(err)
	}
	return show(v)
}

// show returns a reply as text, one line for each value.
func show(v respwire.Value) string {
	if !v.Null && (v.Kind == '$' || v.Kind == '=') {
		return string(v.Kind) + v.Text
	}
	lines := []string{v.Head()}
	for _, e := range v.Elems {
		lines = append(lines, show(e))
	}
	return strings.Join(lines, "\n")
}

// realRedis starts Redis servers for the test on loopback and waits until they
// answer.
func realRedis(t *testing.T, args ...[]string) (addrs []string) {
	t.Helper()
	path := testutil.NeedProgram(t, testutil.RequireRedis, "redis-server")
	base, err := process.FreePorts(2, len(args), 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range args {
		port := strconv.Itoa(base + i)
		words := []string{"--port", port, "--dir", t.TempDir(), "--save", "", "--bind", "127.0.0.1"}
		for _, w := range a {
			ports := strings.NewReplacer("BUS", strconv.Itoa(base+1000+i), "FIRST", strconv.Itoa(base))
			words = append(words, ports.Replace(w))
		}
		startRedis(t, path, words)
		addrs = append(addrs, "127.0.0.1:"+port)
	}
	for _, addr := range addrs {
		if err := process.Poll(testutil.Within(t, limit), "redis-server to answer",
			func() bool { return answers(addr) }); err != nil {
			t.Fatal(err)
		}
	}
	return addrs
}

// answers reports whether a server listens at an address.
func answers(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	return c.Close() == nil
}

var (
	hexID    = regexp.MustCompile(`\b[0-9a-f]{40}\b`)
	loopback = regexp.MustCompile(`127\.0\.0\.1`)
	// moment matches values that depend on the time or on the configuration.
	moment = regexp.MustCompile(`(\$(?:last-ok-ping-reply|last-ping-reply|info-refresh|role-reported-time|config-epoch|last-hello-message|slave-repl-offset|down-after-milliseconds|failover-timeout|quorum|id|replication-offset)\n[$:])\d+`)
	epoch  = regexp.MustCompile(`(?m)^(cluster_(?:current|my)_epoch:)\d+`)
	bus    = regexp.MustCompile(`(?m)^(?:cluster_stats_messages_\w+):\d+\r\n`)
	// slot matches the number of a slot, which may be equal to a port. normal
	// marks such a number first, so that it does not replace the number with
	// the name of the port.
	slot  = regexp.MustCompile(`(MOVED|ASK) (\d+)\b`)
	nodes = regexp.MustCompile(`(?m)( (?:-|ID)) 0 \d+ \d+ (connected|disconnected)`)
)

// normal makes the reply of a server comparable with that of another server.
// names maps the ports of the server to names, which replace the ports in the
// reply.
func normal(reply string, names map[string]string) string {
	reply = hexID.ReplaceAllString(reply, "ID")
	reply = slot.ReplaceAllString(reply, "$1 slot$2")
	for port, name := range names {
		reply = regexp.MustCompile(`\b`+port+`\b`).ReplaceAllString(reply, name)
	}
	reply = moment.ReplaceAllString(reply, "${1}N")
	reply = epoch.ReplaceAllString(reply, "${1}N")
	reply = bus.ReplaceAllString(reply, "")
	reply = nodes.ReplaceAllString(reply, "$1 0 N N $2")
	return loopback.ReplaceAllString(reply, "HOST")
}

// compare sends lines to both servers on new connections, in RESP2 and RESP3,
// and requires the same replies.
func compare(t *testing.T, redis, holdfast string, redisNames, holdfastNames map[string]string, lines ...string) {
	t.Helper()
	for proto := 2; proto <= 3; proto++ {
		theirs, ours := dialRaw(t, redis, proto), dialRaw(t, holdfast, proto)
		for _, line := range lines {
			want, got := normal(theirs.do(line), redisNames), normal(ours.do(line), holdfastNames)
			if strings.HasPrefix(line, "CLUSTER NODES") || strings.HasPrefix(line, "CLUSTER REPLICAS") {
				want, got = sortedLines(want), sortedLines(got) // the lines of these replies have no fixed order
			}
			if got != want {
				t.Errorf("RESP%d %s\n  redis    %q\n  holdfast %q", proto, line, want, got)
			}
		}
	}
}

func sortedLines(text string) string {
	body := strings.TrimPrefix(text[1:], "txt:")
	lines := strings.Split(body, "\n")
	slices.Sort(lines)
	return strings.TrimSuffix(text, body) + strings.Join(lines, "\n")
}

// portNames maps ports to roles, so that the replies of the two clusters can be
// compared.
func portNames(t *testing.T, addrs []string, names ...string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for i, addr := range addrs {
		out[portOf(t, addr)] = names[min(i, len(names)-1)]
	}
	return out
}

// leaderFirst returns the client or the Sentinel address of every node. The
// leader's address is first.
func (c *cluster) leaderFirst(of func(*process.Node) string) []string {
	all := c.addrs(of)
	return append(all[len(all)-1:], all[:len(all)-1]...)
}

func TestSentinel_AnswersAsRedis(t *testing.T) {
	replica := []string{"--replicaof", "127.0.0.1 FIRST"}
	data := realRedis(t, nil, replica, replica)
	watch := []string{"monitor", "mymaster", "127.0.0.1", portOf(t, data[0]), "2"}
	var theirs []string
	for range 3 {
		theirs = append(theirs, realSentinel(t, watch))
	}
	settled := func() bool {
		for _, addr := range theirs {
			c := dialRaw(t, addr, 2)
			replicas, sentinels := c.do("SENTINEL REPLICAS mymaster"), c.do("SENTINEL SENTINELS mymaster")
			if !strings.HasPrefix(replicas, "*2\n") || !strings.HasPrefix(sentinels, "*2\n") ||
				strings.Count(replicas, "$master-link-status\n$ok") != 2 ||
				strings.Contains(replicas+sentinels, "disconnected") ||
				strings.Contains(replicas, "$slave-repl-offset\n$0") {
				return false
			}
		}
		return true
	}
	if err := process.Poll(testutil.Within(t, limit), "the real Sentinels to know each other", settled); err != nil {
		t.Fatal(err)
	}
	c := sentinels(t)
	names := []string{"MASTER", "REPLICA"}
	redisNames, ourNames := portNames(t, data, names...), portNames(t, c.leaderFirst(clientsOf), names...)
	for port, name := range portNames(t, theirs, "SENTINEL") {
		redisNames[port] = name
	}
	for port, name := range portNames(t, c.addrs(sentinelOf), "SENTINEL") {
		ourNames[port] = name
	}
	lines := []string{
		"PING", "PING x", "ROLE", "SENTINEL", "SENTINEL foo", "SENTINEL masters", "SENTINEL MASTERS x",
		"SENTINEL master mymaster", "SENTINEL master x", "SENTINEL master",
		"SENTINEL replicas mymaster", "SENTINEL slaves mymaster", "SENTINEL slaves x", "SENTINEL sentinels mymaster",
		"SENTINEL sentinels x",
		"SENTINEL get-master-addr-by-name mymaster", "SENTINEL get-master-addr-by-name x", "SENTINEL ckquorum mymaster",
		"SENTINEL ckquorum x", "SENTINEL myid",
		"SENTINEL is-master-down-by-addr 127.0.0.1 1 0 *", "SENTINEL is-master-down-by-addr 127.0.0.1 x 0 *",
		"SENTINEL pending-scripts", "SENTINEL failover x",
		"INFO sentinel", "GET a", "SELECT 0", "PUBLISH c x", "CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT SETNAME",
		"AUTH x", "HELLO 9",
		"SUBSCRIBE +switch-master", "PSUBSCRIBE *", "UNSUBSCRIBE", "PUNSUBSCRIBE", "UNSUBSCRIBE",
	}
	compare(t, theirs[0], c.leader.Sentinel, redisNames, ourNames, lines...)
	compare(t, theirs[1], c.addrs(sentinelOf)[0], redisNames, ourNames, lines...) // a follower gives the same replies
}

func TestCluster_AnswersAsRedis(t *testing.T) {
	node := []string{"--cluster-enabled", "yes", "--cluster-port", "BUS"}
	theirs := realRedis(t, node, node, node)
	first := dialRaw(t, theirs[0], 2)
	first.do("CLUSTER ADDSLOTSRANGE 0 16383")
	id := strings.TrimPrefix(first.do("CLUSTER MYID"), "$")
	for _, addr := range theirs[1:] {
		c := dialRaw(t, addr, 2)
		met := func() bool {
			if !strings.Contains(c.do("CLUSTER NODES"), id) {
				_, port, _ := net.SplitHostPort(theirs[0])
				busPort, _ := strconv.Atoi(port)
				c.do(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %s %d", port, busPort+1000))
				return false
			}
			return c.do("CLUSTER REPLICATE "+id) == "+OK"
		}
		if err := process.Poll(testutil.Within(t, limit), "a real replica", met); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range theirs {
		c := dialRaw(t, addr, 2)
		settled := func() bool {
			slots := c.do("CLUSTER SLOTS")
			return strings.HasPrefix(slots, "*1\n*5\n") && strings.Contains(c.do("CLUSTER INFO"), "cluster_state:ok") &&
				!strings.Contains(slots, "\n$\n")
		}
		if err := process.Poll(testutil.Within(t, limit), "the real cluster to settle", settled); err != nil {
			t.Fatal(err)
		}
	}
	c := shard(t)
	ours := c.leaderFirst(clientsOf)
	redisNames, ourNames := portNames(t, theirs, "MASTER", "REPLICA"), portNames(t, ours, "MASTER", "REPLICA")
	for _, port := range theirs {
		n, _ := strconv.Atoi(portOf(t, port))
		redisNames[strconv.Itoa(n+1000)] = "BUS"
	}
	for _, port := range c.addrs(func(n *process.Node) string { return n.Peers }) {
		ourNames[portOf(t, port)] = "BUS"
	}
	shared := []string{
		"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER INFO", "CLUSTER MYID", "CLUSTER KEYSLOT foo{bar}",
		"CLUSTER KEYSLOT {}x", "CLUSTER KEYSLOT a{}{b}", "CLUSTER KEYSLOT foo{{bar}}zap",
		"CLUSTER KEYSLOT foo{bar", "CLUSTER KEYSLOT", "CLUSTER COUNTKEYSINSLOT 16384", "CLUSTER COUNTKEYSINSLOT -1",
		"CLUSTER COUNTKEYSINSLOT x", "CLUSTER COUNTKEYSINSLOT 0",
		"CLUSTER GETKEYSINSLOT 0 x", "CLUSTER GETKEYSINSLOT x 1", "CLUSTER GETKEYSINSLOT 1 -1",
		"CLUSTER GETKEYSINSLOT 12182 10", "CLUSTER FAILOVER x", "CLUSTER REPLICAS x",
		"CLUSTER SLAVES x", "CLUSTER COUNT-FAILURE-REPORTS x", "CLUSTER NOPE", "CLUSTER INFO x", "CLUSTER NODES",
		"MGET a b", "SELECT 0", "SELECT 1", "SELECT 99", "SELECT x",
		"SORT {a}l BY w_*", "SORT {a}l STORE b", "SORT_RO {a}l GET w_*", "FAILOVER", "COPY foo a DB 1", "MOVE foo",
		"ASKING", "READWRITE", "INFO cluster", "CONFIG GET cluster-enabled", "MULTI", "MGET a b", "EXEC", "MULTI",
		"SELECT 1", "EXEC",
	}
	compare(t, theirs[0], ours[0], redisNames, ourNames, append(shared,
		"SORT l BY w_*", "SORT l BY w_1", "SORT l GET #", "SORT l LIMIT a b BY w_*", "SORT l BY w_* foo",
		"SORT l foo BY w_*", "SORT_RO l BY {l}w_*", "SORT l STORE {l}o", "MULTI", "SORT l BY w_*", "SORT l", "EXEC",
		"EVAL return(redis.call('select',1)) 0", "EVAL return(redis.call('select',0)) 0",
		"EVAL return(redis.call('select',99)) 0", "EVAL return(redis.call('swapdb',0,1)) 0",
		"EVAL return(redis.call('move',KEYS[1],1)) 1 foo",
		"EVAL return(redis.call('copy',KEYS[1],KEYS[2],'db',1)) 2 {a}1 {a}2",
		"EVAL return(redis.call('copy',KEYS[1],KEYS[2],'db',0)) 2 {a}1 {a}2",
		"EVAL_RO return(redis.call('select',1)) 0",
		"CLUSTER FAILOVER", "SWAPDB 0 1", "COPY foo{a} {a} DB 1", "MOVE a 1", "SET foo 1", "GET foo",
		"CLUSTER COUNTKEYSINSLOT 12182", "CLUSTER GETKEYSINSLOT 12182 10", "CLUSTER GETKEYSINSLOT 12182 0",
		"MULTI", "SET foo 1", "SET a 1", "EXEC", "MULTI", "SET {a}1 1", "SET {a}2 2", "EXEC", "WATCH a b", "WATCH a",
		"UNWATCH", "DEL foo {a}1", "DEL foo", "DEL {a}1 {a}2")...)
	if _, err := c.Settled(testutil.Within(t, limit)); err != nil { // so that the follower's own state is current
		t.Fatal(err)
	}
	compare(t, theirs[1], ours[1], redisNames, ourNames, append(shared,
		"GET foo", "SET foo 1", "WATCH foo", "OBJECT ENCODING foo", "RENAME {a}1 {a}2", "RENAME a b",
		"EVAL return(1) 1 foo", "EVAL return(1) 0", "EVAL return(1) 2 a b",
		"EVALSHA ffffffffffffffffffffffffffffffffffffffff 1 foo", "BLPOP foo 1", "BLPOP a b 1", "SSUBSCRIBE a b",
		"READONLY", "GET nokey", "SET foo 1", "MULTI", "GET nokey", "EXEC",
		"MULTI", "GET nokey", "SET foo 1", "EXEC", "READWRITE", "GET foo", "MULTI", "GET foo", "EXEC", "MULTI", "PING",
		"EXEC")...)
}
