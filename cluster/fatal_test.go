package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
	case <-time.After(waitLimit):
		c.t.Fatalf("%s continues to run, want %q", id, text)
	}
}

// A node whose state differs from the leader's must stop.
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
	// In production, Fatal ends the process of n3. The other nodes must continue.
	c.crash("n3")
	l.progress(20)
	l.check("n2")
	c.caughtUp("n1", "n2")
}

// A node that cannot write its log must end: a leader that only stepped down
// would be elected again.
func TestFatal_LogWriteFails(t *testing.T) {
	t.Parallel()
	c := start(t, 1, func(o *cluster.Options) {
		// raft panics when it cannot store the next term. Long timeouts keep
		// the node from starting a new term before the test ends.
		o.HeartbeatTimeout, o.LeaseTimeout = 1500*time.Millisecond, 1500*time.Millisecond
	})
	c.members["n1"].dies = true
	c.client("n1").want(t, ok, "SET", "k", "v")
	if n := breakFiles(t, filepath.Join(c.members["n1"].dir, "wal")); n == 0 {
		t.Fatal("no open log file found")
	}
	r := c.client("n1").start("SET", "k", "w")
	c.wantFatal("n1", "bad file descriptor")
	c.stop("n1")
	if got := awaitResult(t, "write to a broken disk", r); got.err == nil {
		t.Errorf("a write to a broken disk was answered with %q, want an error", got.reply)
	}
}

// breakFiles makes the open files of this process in dir unwritable, and
// returns their number.
func breakFiles(t *testing.T, dir string) int {
	t.Helper()
	null, err := os.Open(os.DevNull) // read-only
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	broken := 0
	for _, fd := range fds {
		path, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err != nil || filepath.Dir(path) != dir {
			continue // closed since the listing, or not a file
		}
		n, err := strconv.Atoi(fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(null.Fd()), n, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		broken++
	}
	return broken
}

// TestTwin_AtAnotherAddress checks that a node that starts with a copy of a
// data directory and another address reports that the original node runs.
func TestTwin_AtAnotherAddress(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	c.transfer("n1")
	c.stop("n3")
	twin := c.place("twin", []cluster.Peer{peer("n1"), peer("n2"), {ID: "n3", Addr: address("twin")}})
	if err := os.CopyFS(twin.dir, os.DirFS(c.members["n3"].dir)); err != nil {
		t.Fatal(err)
	}
	c.open("n3")
	c.ready("n3")
	c.change = func(cfg *cluster.Config) { cfg.NodeID = "n3" }
	c.open("twin")
	eventually(t, "the copy to say that another process runs as n3", func() bool {
		detail := c.node("twin").Status().Detail
		return strings.Contains(detail, "another process runs as n3 at "+address("n3")) &&
			strings.Contains(detail, "was the data directory copied?")
	})
}

// Two processes have used one identity, and the process that runs on the older
// copy of the directory must stop. If the copy is one start behind, both
// processes have the same start count. If it is two starts behind, the process
// on the copy has the lower start count.
func TestFatal_CopiedDataDirectory(t *testing.T) {
	t.Parallel()
	for starts := 1; starts <= 2; starts++ {
		t.Run(fmt.Sprintf("%d starts behind", starts), func(t *testing.T) {
			c := start(t, 3)
			c.client("n3").want(t, ok, "SET", "k", "v")
			c.crash("n3")
			twin := c.place("twin", c.peers)
			if err := os.CopyFS(twin.dir, os.DirFS(c.members["n3"].dir)); err != nil {
				t.Fatal(err)
			}
			for i := range starts {
				c.open("n3")
				c.ready("n3")
				c.client("n3").want(t, ok, "SET", "k", fmt.Sprint(i))
				c.crash("n3")
			}
			delete(c.members, "twin")

			c.members["n3"].dir = twin.dir
			c.members["n3"].dies = true
			c.open("n3")
			c.wantFatal("n3", cluster.ErrStaleSession.Error())
		})
	}
}
