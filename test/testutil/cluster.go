package testutil

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// StartLimit is how long a cluster of processes may take until it serves.
const StartLimit = 30 * time.Second

// NewCluster makes a cluster of processes and starts none of them. When the
// test ends, its cleanup stops the cluster, copies the nodes' logs if the test
// has failed, and deletes the directory of the cluster.
func NewCluster(t testing.TB, cfg process.Config) *process.Cluster {
	t.Helper()
	cfg.Dir = Dir(t)
	c, err := process.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("stop cluster: %v", err)
		}
		if t.Failed() {
			keepLogs(t, c)
		}
	})
	return c
}

// StartCluster is like NewCluster. It also starts all nodes and waits until
// they follow one leader.
func StartCluster(t testing.TB, cfg process.Config) *process.Cluster {
	t.Helper()
	c := NewCluster(t, cfg)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Settled(Within(t, StartLimit)); err != nil {
		t.Fatal(err)
	}
	return c
}

// logTail is the number of lines of each log that keepLogs prints.
const logTail = 25

// keepLogs copies the nodes' logs to a directory that outlives the test, and
// prints the end of each.
func keepLogs(t testing.TB, c *process.Cluster) {
	dir, err := os.MkdirTemp("", "holdfast-logs-"+strings.ReplaceAll(t.Name(), "/", "-")+"-")
	if err != nil {
		t.Errorf("keep logs: %v", err)
		return
	}
	for _, n := range c.Nodes {
		text, err := os.ReadFile(n.LogFile)
		if err != nil {
			t.Logf("log of %s: %v", n.ID, err)
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, n.ID+".log"), text, 0o644); err != nil {
			t.Errorf("keep log: %v", err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		t.Logf("end of the log of %s:\n%s", n.ID, strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
	}
	t.Logf("whole logs: %s", dir)
}
