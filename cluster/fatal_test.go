package cluster_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

func (c *testCluster) wantFatal(id, text string) {
	c.t.Helper()
	select {
	case err := <-c.members[id].fatal:
		if !strings.Contains(err.Error(), text) {
			c.t.Errorf("%s ended with %q, want %q", id, err, text)
		}
	case <-time.After(patience):
		c.t.Fatalf("%s goes on, want %q", id, text)
	}
}

// A node whose state has come apart from the others' must stop.
func TestFatal_Divergence(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.client("n2").want(t, ok, "SET", "k", "v")
	c.members["n3"].dies = true
	c.node("n3").View(func(m *fsm.Machine) {
		m.Table().Find([]byte("incr")).Run = func(*fsm.Ctx, [][]byte) fsm.Reply { return fsm.Int(41) }
	})
	l := c.load("n", 1, "n1", "n2")
	c.wantFatal("n3", "state differs from the leader's at index")
	// It is dead to the world, the others are not.
	c.crash("n3")
	l.progress(20)
	l.check("n2")
	c.caughtUp("n1", "n2")
}

// A disk that hangs ends the node, be it the leader: raft would go on sending
// heartbeats.
func TestFatal_DiskStall(t *testing.T) {
	t.Parallel()
	c := prepare(t, 1)
	c.options.StallTimeout = time.Nanosecond
	c.members["n1"].dies = true
	c.open("n1")
	// A healthy disk is slower than a nanosecond: what is missing is a write that
	// is under way when the watchdog looks.
	c.load("n", 2, "n1")
	c.wantFatal("n1", "disk stalled")
}

// Two processes with one identity: the older start learns that it is obsolete.
func TestFatal_CopiedDataDirectory(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.client("n3").want(t, ok, "SET", "k", "v")
	c.crash("n3")
	twin := c.place("twin", c.peers)
	if err := os.CopyFS(twin.dir, os.DirFS(c.members["n3"].dir)); err != nil {
		t.Fatal(err)
	}
	c.open("n3")
	c.ready("n3")
	c.client("n3").want(t, ok, "SET", "k", "w")
	c.crash("n3")
	c.open("n3") // starts twice more than the copy
	c.ready("n3")
	c.client("n3").want(t, ok, "SET", "k", "x")
	c.crash("n3")
	delete(c.members, "twin")

	c.members["n3"].dir = twin.dir
	c.members["n3"].dies = true
	c.open("n3")
	c.wantFatal("n3", cluster.ErrStaleSession.Error())
}
