package process_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// slowRounds is a number of slow reads that together take many seconds. One
// read takes tens of milliseconds, because it compares the two long texts of
// writeSlowTexts.
const slowRounds = 300

// writeSlowTexts writes the two texts that the slow reads compare.
func writeSlowTexts(t *testing.T, n *process.Node) {
	t.Helper()
	var a, b strings.Builder
	for i := range 4000 {
		fmt.Fprint(&a, i%7)
		fmt.Fprint(&b, i%11%10)
	}
	want(t, n, "OK", "SET", "a", a.String())
	want(t, n, "OK", "SET", "b", b.String())
}

// gauge returns the sum of the values of a metric of a node.
func gauge(t *testing.T, n *process.Node, name string) (sum float64) {
	t.Helper()
	_, text := fetch(t, n, "/metrics")
	found := false
	for line := range strings.Lines(text) {
		head, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if metric, _, _ := strings.Cut(head, "{"); metric != name {
			continue
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum, found = sum+f, true
	}
	if !found {
		t.Fatalf("/metrics of %s lacks %s", n.ID, name)
	}
	return sum
}

// awaitSlowReads waits until a number of slow reads run on a node.
func awaitSlowReads(t *testing.T, n *process.Node, count float64) {
	t.Helper()
	what := fmt.Sprintf("%v slow reads on %s", count, n.ID)
	err := process.Poll(testutil.Within(t, 20*time.Second), what, func() bool {
		return gauge(t, n, "holdfast_slow_reads_running") == count
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sendSlowReads sends a pipeline of reads and does not wait for their replies.
func sendSlowReads(t *testing.T, conn *respwire.Conn, count int) {
	t.Helper()
	if err := conn.Send(slices.Repeat([][]string{{"LCS", "a", "b", "LEN"}}, count)...); err != nil {
		t.Fatal(err)
	}
}

// TestSlowRead_Limits checks, through the leader and through a follower, that a
// slow read ends when it exceeds a limit of time or memory. The error must name
// the limit, and other clients must be able to write meanwhile.
func TestSlowRead_Limits(t *testing.T) {
	c := startCluster(t, "--slow-read-time", "500ms", "--max-slow-read-memory", "1mb")
	leader := c.leader()
	writeSlowTexts(t, leader)
	for i, n := range []*process.Node{leader, c.Running(leader)[0]} {
		conn := dial(t, n)
		sendSlowReads(t, conn, slowRounds)
		awaitSlowReads(t, leader, 1)
		want(t, n, "OK", "SET", "lock", "owner", "NX", "PX", "600000")
		want(t, n, "(integer) 1", "DELIFEQ", "lock", "owner")
		refused := 0
		for range slowRounds {
			if _, err := respwire.NoError(conn.Receive()); err != nil {
				wantContains(t, "a read that takes too long", err.Error(), "BUSY read ran longer than 500ms")
				refused++
			}
		}
		if refused == 0 {
			t.Errorf("%d reads through %s were not ended", slowRounds, n.ID)
		}
		wantContains(t, "a read that needs too much memory", do(t, n, "LCS", "a", "b"),
			"OOM slow reads need more than 1048576 bytes of memory together")
		if got := gauge(t, leader, "holdfast_slow_reads_refused_total"); got < float64(2*(i+1)) {
			t.Errorf("the leader counts %v refused reads", got)
		}
		awaitSlowReads(t, leader, 0)
		if got := gauge(t, leader, "holdfast_slow_read_bytes"); got != 0 {
			t.Errorf("%v bytes are still charged", got)
		}
	}
}

// TestSlowRead_ClientLeft checks that a slow read ends when its client closes
// the connection, on the leader and through a follower.
func TestSlowRead_ClientLeft(t *testing.T) {
	c := startCluster(t, "--slow-read-time", "10m")
	leader := c.leader()
	writeSlowTexts(t, leader)
	for _, n := range []*process.Node{leader, c.Running(leader)[0]} {
		conn := dial(t, n)
		sendSlowReads(t, conn, slowRounds)
		awaitSlowReads(t, leader, 1)
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		awaitSlowReads(t, leader, 0)
	}
}

// TestSlowRead_KillOfLeader kills the leader while it runs slow reads for
// clients of a follower. The clients must get their replies nevertheless.
func TestSlowRead_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	writeSlowTexts(t, leader)
	n := c.Running(leader)[0]
	length := do(t, n, "LCS", "a", "b", "LEN")
	conn := dial(t, n)
	const rounds = 40
	sendSlowReads(t, conn, rounds)
	awaitSlowReads(t, leader, 1)
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		if got, err := conn.Receive(); err != nil || got.String() != length {
			t.Fatalf("read %d: %s, %v, want %s", i, got, err, length)
		}
	}
}
