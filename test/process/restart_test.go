package process_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// restartLimit is how long a restart with manyKeys keys may take until the
// nodes serve commands again. All three nodes start at once and share the
// processors with other tests. So if writing the keys took longer than
// restartLimit, the restart may take as long as the writing.
const (
	manyKeys     = 1_000_000
	restartLimit = 10 * time.Second
)

// TestRestart_MillionKeys kills all three nodes when they hold a million keys.
// They serve again within seconds, from the log alone and from a snapshot.
func TestRestart_MillionKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a million keys")
	}
	c := startCluster(t)
	begun := time.Now()
	c.fill(c.leader(), manyKeys)
	written := time.Since(begun)
	limit := max(restartLimit, written)
	t.Logf("%d keys written in %v", manyKeys, written.Round(time.Millisecond))
	c.settled()
	for _, from := range []string{"log", "snapshot"} {
		if from == "snapshot" {
			for _, n := range c.Nodes {
				want(t, n, "OK", "HOLDFAST", "SNAPSHOT")
			}
		}
		for _, n := range c.Nodes {
			kill(t, n)
		}
		begun := time.Now()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := eventually(t, c.Nodes[1])
		if err != nil {
			t.Fatal(err)
		}
		for got := ""; got != "value"; {
			if got = show(conn, "GET", "key:000000000077"); got != "value" && time.Since(begun) > 6*limit {
				t.Fatalf("GET after a restart from the %s: %q", from, got)
			}
		}
		took := time.Since(begun)
		t.Logf("served again after %v, from the %s", took.Round(time.Millisecond), from)
		if took > limit {
			t.Errorf("restart from the %s took %v, want %v at most", from, took, limit)
		}
		for _, n := range c.Nodes {
			if _, err := eventually(t, n); err != nil {
				t.Fatal(err)
			}
			want(t, n, "OK", "SET", "after", from)
			want(t, n, fmt.Sprintf("(integer) %d", manyKeys+1), "DBSIZE")
		}
		c.settled()
	}
}

// fill writes n keys over a few connections with pipelines.
func (c *cluster) fill(through *process.Node, n int) {
	c.t.Helper()
	const conns, pipeline = 8, 500
	errs := make(chan error)
	for i := range conns {
		go func() { errs <- fillPart(through, i*n/conns, (i+1)*n/conns, pipeline) }()
	}
	for range conns {
		if err := <-errs; err != nil {
			c.t.Fatal(err)
		}
	}
}

func fillPart(n *process.Node, from, to, pipeline int) error {
	conn, err := respwire.Connect(n.Clients, replyLimit)
	if err != nil {
		return err
	}
	defer conn.Close()
	for from < to {
		count := min(pipeline, to-from)
		cmds := make([][]string, count)
		for i := range cmds {
			cmds[i] = []string{"SET", fmt.Sprintf("key:%012d", from+i), "value"}
		}
		if err := conn.Send(cmds...); err != nil {
			return err
		}
		for range cmds {
			if _, err := respwire.NoError(conn.Receive()); err != nil {
				return err
			}
		}
		from += count
	}
	return nil
}
