package process_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// TestMaxMemory sends 300 MB of values to nodes with --maxmemory 128mb, while
// the nodes take snapshots. No node may use more than 320 MB at any time, and
// none may end.
func TestMaxMemory(t *testing.T) {
	const limit = 320 << 20
	c := startCluster(t, "--maxmemory", "128mb", "--snapshot-bytes", "32mb")
	var sum feedResult
	for _, part := range []struct{ size, total int }{{1 << 10, 60 << 20}, {100 << 10, 240 << 20}} {
		var wg sync.WaitGroup
		const clients = 6
		for i := range clients {
			wg.Go(func() {
				n := c.Nodes[i%len(c.Nodes)]
				got, err := feedValues(n, fmt.Sprint(part.size, ":", i), part.size, part.total/part.size/clients)
				if err != nil {
					t.Errorf("feed %s: %v", n.ID, err)
				}
				sum.add(got)
			})
		}
		wg.Wait()
	}
	if sum.stored == 0 || sum.refused == 0 {
		t.Errorf("%d values stored, %d refused", sum.stored, sum.refused)
	}
	for _, n := range c.Nodes {
		peak, err := peakResident(n)
		if err != nil {
			t.Fatalf("%s: %v", n.ID, err)
		}
		t.Logf("%s: %d MB at most", n.ID, peak>>20)
		if peak > limit {
			t.Errorf("%s took %d bytes of memory, more than %d", n.ID, peak, limit)
		}
		if got := gauge(t, n, "holdfast_dataset_bytes"); got < 120<<20 || got > 136<<20 {
			t.Errorf("%s counts %v bytes", n.ID, got)
		}
	}
	conn := dial(t, c.Nodes[0])
	if got := show(conn, "SET", "more", "v"); !strings.HasPrefix(got, "OOM command not allowed") {
		t.Errorf("SET: %s", got)
	}
	if got := show(conn, "FLUSHALL"); got != "OK" {
		t.Fatalf("FLUSHALL: %s", got)
	}
	want(t, c.Nodes[1], "OK", "SET", "more", "v")
}

// TestMaxMemory_Refusals checks which commands are refused while the data set
// is too large. Writes of scripts and transactions are refused, and a metric
// counts the refusals. Releases and renewals of locks are not refused. After
// CONFIG SET maxmemory default, the flags of the nodes apply again.
func TestMaxMemory_Refusals(t *testing.T) {
	c := startCluster(t, "--maxmemory", "1mb")
	leader := c.leader()
	other := c.others(leader)[0]
	conn := dial(t, leader)
	for _, key := range []string{"held", "waited"} {
		if got := show(conn, "LOCK", "ACQUIRE", key, "me", "PX", "600000"); strings.Contains(got, "ERR") {
			t.Fatal(got)
		}
	}
	waits := make(chan string, 1)
	waiting := dial(t, other)
	go func() { waits <- show(waiting, "LOCK", "ACQUIRE", "waited", "next", "PX", "600000", "WAIT", "0") }()
	if err := process.Poll(testutil.Within(t, replyLimit), "a waiter", func() bool {
		return strings.Contains(show(conn, "LOCK", "INFO", "waited"), "next")
	}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		want(t, other, "OK", "SET", fmt.Sprint("big", i), strings.Repeat("v", 600<<10))
	}
	const oom = "OOM command not allowed when used memory > 'maxmemory'."
	counted := func(what string, f func()) {
		t.Helper()
		before := gauge(t, leader, "holdfast_maxmemory_refused_total")
		f()
		if n := gauge(t, leader, "holdfast_maxmemory_refused_total") - before; n != 1 {
			t.Errorf("%s: %v refusals counted, want 1", what, n)
		}
	}
	counted("a script", func() {
		got := do(t, other, "EVAL", "return redis.call('set', KEYS[1], 'v')", "1", "a")
		wantContains(t, "the script", got, oom)
	})
	counted("a transaction at the leader", func() {
		got := show(conn, "MULTI") + show(conn, "DEL", "x") + show(conn, "SET", "a", "1")
		if want := "OKQUEUED" + oom; got != want {
			t.Errorf("transaction at the leader: %q", got)
		}
		wantContains(t, "EXEC", show(conn, "EXEC"), "EXECABORT")
	})
	counted("a transaction at a follower", func() {
		at := dial(t, other)
		got := show(at, "MULTI") + show(at, "DEL", "x") + show(at, "SET", "a", "1")
		if got != "OKQUEUEDQUEUED" {
			t.Errorf("transaction at a follower: %q", got)
		}
		wantContains(t, "EXEC", show(at, "EXEC"), "EXECABORT", oom)
	})
	counted("a new lock", func() { want(t, other, oom, "LOCK", "ACQUIRE", "new", "me", "PX", "1000", "WAIT", "0") })
	// The owner of a lock can renew and release it, clients can wait for it,
	// and the first waiter gets it.
	token := do(t, leader, "LOCK", "TOKEN", "held")
	want(t, other, token, "LOCK", "ACQUIRE", "held", "me", "PX", "600000")
	want(t, other, "(nil)", "LOCK", "ACQUIRE", "held", "you", "PX", "600000")
	want(t, other, "(integer) 1", "LOCK", "RELEASE", "waited", "me")
	if got := <-waits; !strings.HasPrefix(got, "(integer) ") {
		t.Errorf("the waiter got %q", got)
	}

	want(t, other, "OK", "CONFIG", "SET", "maxmemory", "10mb")
	want(t, other, "OK", "SET", "a", "1")
	limit := func(n *process.Node, want string) {
		t.Helper()
		if got := settings(t, n, "maxmemory")["maxmemory"]; got != want {
			t.Errorf("maxmemory at %s is %s, want %s", n.ID, got, want)
		}
	}
	limit(leader, "10485760")
	want(t, other, "OK", "CONFIG", "SET", "maxmemory", "default")
	want(t, other, oom, "SET", "a", "1")
	for _, n := range c.Nodes {
		limit(n, "1048576")
	}
}

// TestMaxMemory_SnapshotOfLeader restarts a node that is so far behind that the
// leader sends it a snapshot. The node must not hold its own state and the
// state of the snapshot at the same time. Otherwise, in a cgroup that is
// limited to twice maxmemory, the kernel would kill the node.
func TestMaxMemory_SnapshotOfLeader(t *testing.T) {
	const limit = 64 << 20
	c := startCluster(t, "--maxmemory", strconv.Itoa(limit), "--snapshot-bytes", "16mb", "--trailing-bytes", "1mb")
	const size, count = 200, 170_000
	feed := func(n *process.Node) {
		t.Helper()
		if sum, err := feedValues(n, "k", size, count); err != nil || sum.refused > 0 {
			t.Fatalf("%d values refused, %v", sum.refused, err)
		}
	}
	leader := c.leader()
	away := c.others(leader)[0]
	feed(leader)
	kill(t, away)
	feed(leader)
	start(t, away)
	c.settled()
	// The node can follow the leader before raft has logged the end of the
	// installation.
	testutil.Eventually(t, "the snapshot to be installed", func() bool {
		return strings.Contains(away.Output(), "Installed remote snapshot")
	})
	wantContains(t, "the log of the node", away.Output(),
		"discarded the state of this node before reading the snapshot of the leader")
	peak, err := peakResident(away)
	if err != nil {
		t.Fatal(err)
	}
	bytes := gauge(t, away, "holdfast_dataset_bytes")
	t.Logf("%d MB at most, of a data set of %.0f MB", peak>>20, bytes/(1<<20))
	if peak > 2*limit+(48<<20) {
		t.Errorf("%s took %d bytes of memory", away.ID, peak)
	}
	want(t, away, "(integer) "+strconv.Itoa(count), "DBSIZE")
}

// feedResult counts the replies to commands that store values.
type feedResult struct {
	mu              sync.Mutex
	stored, refused int
}

func (r *feedResult) add(o *feedResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored, r.refused = r.stored+o.stored, r.refused+o.refused
}

// feedValues stores count values of size bytes each, in pipelines of about
// 256 KB.
func feedValues(n *process.Node, prefix string, size, count int) (*feedResult, error) {
	sum := &feedResult{}
	conn, err := respwire.Connect(n.Clients, replyLimit)
	if err != nil {
		return sum, err
	}
	defer conn.Close()
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	for i := 0; i < count; {
		cmds := make([][]string, min(max(256<<10/size, 1), count-i))
		for k := range cmds {
			cmds[k] = []string{"SET", prefix + ":" + strconv.Itoa(i), string(value)}
			i++
		}
		if err := conn.Send(cmds...); err != nil {
			return sum, err
		}
		for range cmds {
			switch reply, err := respwire.NoError(conn.Receive()); {
			case err == nil:
				sum.stored++
			case strings.HasPrefix(reply.Err, "OOM command not allowed"):
				sum.refused++
			default:
				return sum, err
			}
		}
	}
	return sum, nil
}

// peakResident returns the largest resident set that the process of a node has
// had, in bytes.
func peakResident(n *process.Node) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID()))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not report VmHWM")
}
