package process_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// grantRecord is a grant as "holdfast locks history --json" prints it.
type grantRecord struct {
	Token    int64  `json:"token"`
	Owner    string `json:"owner"`
	How      string `json:"how"`
	Node     string `json:"node"`
	Addr     string `json:"addr"`
	Meta     string `json:"meta"`
	Acquired int64  `json:"acquired-ms"`
	Ended    int64  `json:"ended-ms"`
	Held     int64  `json:"held-ms"`
	EndedBy  string `json:"ended-by-node"`
}

type historyRecord struct {
	Grants []grantRecord `json:"grants"`
	Gaps   []any         `json:"gaps"`
	Since  any           `json:"since-ms"`
}

// lockHistory returns the history of a lock, as a node keeps it.
func lockHistory(t *testing.T, n *process.Node, key string, flags ...string) (h historyRecord) {
	t.Helper()
	args := append([]string{"locks", "history", key, "--json", "--addr", n.Clients}, flags...)
	if err := json.Unmarshal([]byte(run(t, args...)), &h); err != nil {
		t.Fatal(err)
	}
	return h
}

// sameHistory checks that all nodes have the same history of a lock, without a
// gap, and returns the grants in this history.
func (c *cluster) sameHistory(key string) []grantRecord {
	c.t.Helper()
	var first historyRecord
	for i, n := range c.Nodes {
		h := lockHistory(c.t, n, key)
		if len(h.Gaps) > 0 || h.Since != nil {
			c.t.Errorf("%s has gaps in the history of %s: %v, since %v", n.ID, key, h.Gaps, h.Since)
		}
		if i == 0 {
			first = h
		} else if !slices.Equal(h.Grants, first.Grants) {
			c.t.Errorf("%s has the history\n%+v\n%s has\n%+v", n.ID, h.Grants, c.Nodes[0].ID, first.Grants)
		}
	}
	return first.Grants
}

// hows lists the owner of each grant and how the grant ended, the oldest first.
func hows(grants []grantRecord) string {
	var all []string
	for _, g := range slices.Backward(grants) {
		all = append(all, g.Owner+" "+g.How)
	}
	return strings.Join(all, ", ")
}

// TestLock_History checks that all nodes have the same history of locks, after
// kill -9 of the leader and of all nodes, with a snapshot in between. Clients
// take the locks through all three nodes.
func TestLock_History(t *testing.T) {
	c := startCluster(t)
	var expected []string
	round := func(name string, nodes []*process.Node) {
		t.Helper()
		for i, n := range nodes {
			other := nodes[(i+1)%len(nodes)]
			plain, acquired := fmt.Sprint(name, "-plain-", i), fmt.Sprint(name, "-lock-", i)
			want(t, n, "OK", "SET", "lock", plain, "NX", "PX", "60000")
			want(t, other, "(nil)", "SET", "lock", "late", "NX", "PX", "60000")
			want(t, other, "(integer) 1", "DELIFEQ", "lock", plain)
			got := do(t, n, "LOCK", "ACQUIRE", "lock", acquired, "PX", "60000", "META", "m")
			if !strings.HasPrefix(got, "(integer) ") {
				t.Fatalf("LOCK ACQUIRE: %s", got)
			}
			want(t, other, "(integer) 1", "LOCK", "BREAK", "lock")
			expected = append(expected, plain+" released", acquired+" broken")
		}
	}
	check := func() []grantRecord {
		t.Helper()
		grants := c.sameHistory("lock")
		if got := hows(grants); got != strings.Join(expected, ", ") {
			t.Fatalf("history %s, want %s", got, strings.Join(expected, ", "))
		}
		return grants
	}
	round("first", c.Nodes)
	for _, n := range c.Nodes[:2] { // after a restart, these nodes begin with the snapshot
		want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
	}
	round("second", c.Nodes)
	dead := c.leader()
	kill(t, dead)
	round("third", c.others(dead))
	want(t, c.others(dead)[0], "OK", "SET", "lock", "short", "NX", "PX", "50")
	expected = append(expected, "short expired")
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the lock to expire", func() bool {
		return do(t, c.others(dead)[0], "GET", "lock") == "(nil)"
	}); err != nil {
		t.Fatal(err)
	}
	start(t, dead)
	c.settled()
	grants := check()
	for i, g := range grants {
		if g.Acquired == 0 || g.Ended < g.Acquired || i > 0 && g.Token >= grants[i-1].Token ||
			g.Meta != "" && (g.Addr == "" || g.EndedBy == "") || g.Node == "" {
			t.Errorf("grant %+v", g)
		}
	}

	// A running node needs no leader to answer.
	for _, n := range c.Nodes[1:] {
		kill(t, n)
	}
	if err := process.Poll(testutil.Within(t, testutil.StartLimit), "the history without a leader", func() bool {
		o := invoke(t, nil, "locks", "history", "lock", "--addr", c.Nodes[0].Clients)
		return o.code == 0 && strings.Contains(o.out, "short")
	}); err != nil {
		t.Fatal(err)
	}
	kill(t, c.Nodes[0])
	start(t, c.Nodes[0])
	for _, n := range c.Nodes[1:] {
		start(t, n)
	}
	c.settled()
	round("fourth", c.Nodes)
	check()

	g := check()[3]
	at := lockHistory(t, c.Nodes[1], "lock", "--from", fmt.Sprint(g.Acquired), "--to", fmt.Sprint(g.Ended))
	if len(at.Grants) == 0 || !slices.Contains(at.Grants, g) {
		t.Errorf("the history from %d to %d is %+v, want %+v", g.Acquired, g.Ended, at.Grants, g)
	}
	text := run(t, "locks", "history", "lock", "--count", "2", "--addr", c.addrs())
	wantContains(t, "locks history", text, "ACQUIRED", g.Owner[:len("fourth")], "broken (client ", "released (client ")
	refuses(t, []string{"--at", "is not a time"}, "locks", "history", "lock", "--at", "noon", "--addr", c.addrs())
}

// TestLock_HistoryTorn checks a node whose history ends in the middle of a
// frame: the node reads the complete frames, and gets the missing events from
// its log. The test also checks that a node can run without a history.
func TestLock_HistoryTorn(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "SET", "lock", "a", "NX", "PX", "60000")
	want(t, c.Nodes[0], "(integer) 1", "DEL", "lock")
	want(t, c.Nodes[0], "OK", "SET", "lock", "b", "NX", "PX", "60000")
	want(t, c.Nodes[0], "(integer) 1", "UNLINK", "lock")
	before := c.sameHistory("lock")
	victim := c.others(c.leader())[0]
	kill(t, victim)
	path := filepath.Join(victim.Dir, "history", "0000000001.locks")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-3); err != nil {
		t.Fatal(err)
	}
	start(t, victim)
	c.settled()
	if after := c.sameHistory("lock"); !slices.Equal(after, before) || hows(after) != "a deleted, b deleted" {
		t.Errorf("history %+v, before %+v", after, before)
	}
	kill(t, victim)
	if err := victim.Start("--lock-history-size", "0"); err != nil {
		t.Fatal(err)
	}
	c.settled()
	if got := do(t, victim, "LOCK", "HISTORY", "lock"); !strings.Contains(got, "keeps no history") {
		t.Errorf("LOCK HISTORY without a history: %s", got)
	}
}

// TestLock_HistoryGap checks a node that gets a snapshot in place of the entries
// with grants. Its history must contain the grants that had not ended by then.
func TestLock_HistoryGap(t *testing.T) {
	c := startCluster(t, "--trailing-bytes", "1", "--snapshot-bytes", "1gb")
	victim := c.others(c.leader())[0]
	rest := c.others(victim)
	want(t, rest[0], "OK", "SET", "lock", "a", "NX", "PX", "600000")
	c.settled()
	kill(t, victim)
	count := func(n int) {
		t.Helper()
		for range n {
			if got := do(t, rest[0], "INCR", "n"); !strings.HasPrefix(got, "(integer) ") {
				t.Fatalf("INCR: %s", got)
			}
		}
	}
	count(10) // the leader tries to send the first entries to the victim, and may keep them in memory
	want(t, rest[0], "(integer) 1", "DELIFEQ", "lock", "a")
	want(t, rest[0], "OK", "SET", "lock", "b", "NX", "PX", "600000")
	got := do(t, rest[0], "LOCK", "ACQUIRE", "other", "c", "PX", "600000", "META", "m")
	if !strings.HasPrefix(got, "(integer) ") {
		t.Fatalf("LOCK ACQUIRE: %s", got)
	}
	count(100) // more entries than a node keeps after a snapshot
	for _, n := range rest {
		want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
	}
	start(t, victim)
	c.settled()
	check := func(end string) {
		t.Helper()
		h := lockHistory(t, victim, "lock")
		if got := hows(h.Grants); got != "a unknown, b "+end || len(h.Gaps) != 1 {
			t.Errorf("history %s, gaps %v, want that of a and b, and one gap", got, h.Gaps)
		}
		now := lockHistory(t, victim, "lock", "--at", time.Now().UTC().Format(time.RFC3339Nano))
		if got := hows(now.Grants); got != "b "+end && end == "held" || len(now.Gaps) != 0 {
			t.Errorf("the present owner is %s, gaps %v, want b", got, now.Gaps)
		}
	}
	check("held")
	all, known := lockHistory(t, victim, "other").Grants, lockHistory(t, rest[0], "other").Grants
	if len(all) != 1 || all[0].How != "held" || all[0].Meta != "m" || all[0].Acquired == 0 ||
		all[0].Acquired != known[0].Acquired {
		t.Errorf("history of the lock of LOCK ACQUIRE: %+v, other nodes: %+v", all, known)
	}
	kill(t, victim)
	start(t, victim)
	c.settled()
	check("held")
	want(t, rest[0], "(integer) 1", "DELIFEQ", "lock", "b")
	c.settled()
	check("released")
}

// TestLock_HistoryOfUser runs scripts of lock libraries as a user with ACL
// rules. For such a user, the interpreter executes the scripts. The history
// must contain the grants that these scripts begin and end.
func TestLock_HistoryOfUser(t *testing.T) {
	c := startCluster(t)
	want(t, c.Nodes[0], "OK", "ACL", "SETUSER", "app", "on", ">pw", "~lock*", "+@all")
	conn := dial(t, c.Nodes[1])
	ask := func(reply string, args ...string) {
		t.Helper()
		if got := show(conn, args...); got != reply {
			t.Fatalf("%v: %q, want %q", args, got, reply)
		}
	}
	const (
		redisPy = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
		laravel = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])"
	)
	ask("OK", "AUTH", "app", "pw")
	ask("OK", "EVAL", laravel, "1", "lock", "a", "60")
	ask("(nil)", "EVAL", laravel, "1", "lock", "b", "60")
	ask("(integer) 0", "EVAL", redisPy, "1", "lock", "b")
	ask("(integer) 1", "EVAL", redisPy, "1", "lock", "a")
	ask("OK", "SET", "lock", "b", "NX", "PX", "60000")
	ask("(integer) 1", "EVAL", redisPy, "1", "lock", "b")
	if got := hows(c.sameHistory("lock")); got != "a released, b released" {
		t.Errorf("history %s", got)
	}
}

// TestPlainLocks_AreListed checks that "holdfast locks" lists, on every node,
// the locks that clients of all nodes have taken with SET NX, the oldest first.
// The clients and the times come from the history.
func TestPlainLocks_AreListed(t *testing.T) {
	c := startCluster(t)
	want := []string{}
	for i, n := range c.Nodes {
		key := fmt.Sprintf("plain:%d", i)
		if got := do(t, n, "SET", key, "owner", "NX", "PX", "600000"); got != "OK" {
			t.Fatalf("SET NX: %q", got)
		}
		want = append(want, key)
	}
	for _, n := range c.Nodes {
		var found []struct {
			Key   string `json:"key"`
			Owner string `json:"owner"`
			Token int64  `json:"token"`
			TTL   int64  `json:"ttl-ms"`
		}
		if err := json.Unmarshal([]byte(run(t, "locks", "list", "--json", "--addr", n.Clients)), &found); err != nil {
			t.Fatal(err)
		}
		keys := []string{}
		for _, l := range found {
			if keys = append(keys, l.Key); l.Owner != "owner" || l.Token == 0 || l.TTL <= 0 || l.TTL > 600_000 {
				t.Errorf("%s: %+v", n.ID, l)
			}
		}
		if !slices.Equal(keys, want) {
			t.Errorf("%s lists %v, want %v", n.ID, keys, want)
		}
		testutil.Eventually(t, "the history of the locks at "+n.ID, func() bool {
			text := run(t, "locks", "list", "--addr", n.Clients)
			return strings.Contains(text, " at n1") && strings.Contains(text, " at n2") &&
				strings.Contains(text, " at n3") && strings.Count(text, "  client ") == 3
		})
		wantContains(t, "locks info", run(t, "locks", "info", "plain:1", "--addr", n.Clients), "acquired:  ",
			" ago\nclient:    client ", " at n2\n")
		text := run(t, "locks", "list", "--json", "--addr", n.Clients)
		if got := strings.Count(text, `"acquired-ms": 1`); got != 3 {
			t.Errorf("%s knows since when %d of 3 locks are held:\n%s", n.ID, got, text)
		}
	}
}

// TestPlainLocks_Many checks that "holdfast locks" finds the clients of more locks
// than it looks up at a time.
func TestPlainLocks_Many(t *testing.T) {
	c := startCluster(t)
	const locks = 130 // more than "holdfast locks" looks up at a time
	for i := range locks {
		want(t, c.Nodes[0], "OK", "SET", fmt.Sprint("plain:", i), "owner", "NX", "PX", "600000")
	}
	testutil.Eventually(t, "the history of more than 100 locks", func() bool {
		return strings.Count(run(t, "locks", "list", "--addr", c.Nodes[1].Clients), " at n1") > 100
	})
}
