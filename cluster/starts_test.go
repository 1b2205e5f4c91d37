package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// gate is a runner whose scripts run until the test releases them.
type gate struct {
	entered chan struct{} // capacity 1: a script has begun
	letGo   chan struct{}
}

func (g *gate) CompileScript([]byte) string { return "" }

func (g *gate) RunScript(call fsm.ScriptCall) fsm.Reply {
	select {
	case g.entered <- struct{}{}:
	default:
	}
	for {
		select {
		case <-g.letGo:
			return fsm.OK
		case <-time.After(time.Millisecond):
			if text := call.Interrupt(); text != "" {
				return fsm.Error(text)
			}
		}
	}
}

// steadyLeader sets timeouts that do not expire on a busy machine. If the leader
// lost its leadership, the commands for which the tests wait would not reach it.
func steadyLeader(o *cluster.Options) {
	o.HeartbeatTimeout, o.LeaseTimeout = slowdown*12*time.Second, slowdown*8*time.Second
}

// TestStarts_SlowDisk: an entry waits for the leader's disk while a follower
// with a waiting client is killed and started again. The groups of both starts
// go into the next entry.
func TestStarts_SlowDisk(t *testing.T) {
	t.Parallel()
	c, letGo := slowLeader(t, steadyLeader)
	defer letGo()
	before := c.node("n1").Status().Commit                  // another entry may be in flight
	flying := c.client("n1").start("SET", "k", "in flight") // fills the window
	eventually(t, "an entry to be in flight", func() bool { return c.node("n2").Status().LastIndex > before })
	c.restartWithinEntry(letGo)
	if res := awaitResult(t, "entry in flight", flying); res.err != nil && !errors.Is(res.err, outcome.ErrUnknown) {
		t.Errorf("entry in flight: %v, want no error or ErrUnknown", res.err)
	}
}

// TestStarts_SlowScript is like TestStarts_SlowDisk, but all disks are healthy,
// and a slow script keeps the entry open.
func TestStarts_SlowScript(t *testing.T) {
	t.Parallel()
	g := &gate{entered: make(chan struct{}, 1), letGo: make(chan struct{})}
	c := prepare(t, 3, steadyLeader, func(o *cluster.Options) { o.ScriptTime, o.BriefScriptTime = waitLimit, waitLimit })
	c.change = func(cfg *cluster.Config) { cfg.Scripts = g }
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.transfer("n1")
	c.mended()
	c.caughtUp()
	script := c.client("n1").start("EVAL", "wait", "0")
	<-g.entered
	c.restartWithinEntry(func() { close(g.letGo) })
	if res := awaitResult(t, "script", script); res.err != nil && !errors.Is(res.err, outcome.ErrUnknown) {
		t.Errorf("script: %v, want no error or ErrUnknown", res.err)
	}
}

// restartWithinEntry kills and starts n2 while n1 leads and keeps its next
// entry open until letGo is called. A client of each start waits. Afterwards
// only the later start may have waiters, its client must be served, and all
// nodes must be able to start from a snapshot.
func (c *testCluster) restartWithinEntry(letGo func()) {
	t := c.t
	t.Helper()
	term := c.node("n1").Status().Term
	arrived := func(n *cluster.Node, before uint64) {
		eventually(t, "a command of "+n.SessionID().String()+" to reach the leader", func() bool {
			return c.node("n1").Accepted(n.SessionID()) > before
		})
	}
	block := func(w *waiter, key string) <-chan result {
		done := make(chan result, 1)
		w.group.Reset(2, w.origin)
		w.group.Command(w.node.Table().Find([]byte("blpop")), 0, [][]byte{[]byte("blpop"), []byte(key), []byte("0")})
		go func() {
			reply, err := w.s.Block(&w.group, w.origin, false)
			done <- result{string(reply), err}
		}()
		return done
	}
	old := c.waiter("n2", 57)
	before := c.node("n1").Accepted(old.node.SessionID())
	killed := block(old, "q") // its node dies before it has a reply
	arrived(old.node, before)
	c.crash("n2")
	c.open("n2")
	c.ready("n2")
	young := c.waiter("n2", 3)
	blocked := block(young, "other")
	arrived(young.node, 1) // the forwarder itself sends group 1, to record the start
	letGo()
	awaitResult(t, "command of the earlier start", killed)
	res := awaitResult(t, "command of the later start", blocked)
	if st := c.node("n1").Status(); st.Role != "leader" || st.Term != term {
		t.Skip("n1 has lost leadership, so the groups were perhaps not in one entry")
	}
	if _, _, waits := fsm.Waiting([]byte(res.reply)); res.err != nil || !waits {
		t.Fatalf("command of the later start: %q, %v, want a reply that says that it waits", res.reply, res.err)
	}
	c.caughtUp()
	for _, id := range c.ids() {
		c.node(id).View(func(m *fsm.Machine) {
			for _, s := range m.WaitSessions() {
				if strings.HasPrefix(s.ID.NodeID, "n2") && s.ID != young.node.SessionID() {
					t.Errorf("%s stores waiters of session %s, want only waiters of the later start", id, s.ID)
				}
			}
			if n := m.Waiting(); n != 1 {
				t.Errorf("%s: %d waiters, want 1", id, n)
			}
		})
	}
	// A new leader suspends the waiters of nodes that are not connected yet, and
	// resumes them when the nodes connect.
	c.transfer("n3")
	c.client("n1").want(t, ":1\r\n", "rpush", "other", "v")
	select {
	case reply := <-young.s.Waited():
		if want := "*2\r\n$5\r\nother\r\n$1\r\nv\r\n"; string(reply) != want {
			t.Errorf("the later start's client got %q, want %q", reply, want)
		}
	case <-time.After(waitLimit):
		t.Error("the later start's client is not served")
	}
	still := c.waiter("n2", 4)
	still.begin(t, "blpop", "third", "0")
	c.caughtUp()
	for _, id := range c.ids() {
		if err := c.node(id).Snapshot(); err != nil {
			t.Errorf("snapshot of %s: %v", id, err)
		}
	}
	for _, id := range c.ids() {
		c.stop(id)
	}
	c.change = nil
	c.open(c.ids()...)
	c.ready(c.ids()...)
	c.client(c.leader()).want(t, ok, "SET", "k", "new")
	c.caughtUp()
}
