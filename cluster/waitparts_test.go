package cluster_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

// crowdSize is the number of clients that wait on the node that fails.
// crowdParts is the minimum number of parts in which a leader with the option
// smallParts removes the waiters of these clients.
const crowdSize, crowdParts = 300, crowdSize / 6

// smallParts makes the leader remove only a few waiters with each entry.
func smallParts(o *cluster.Options) { o.WaiterWork = 10 * time.Microsecond }

// patientLeader makes the leader keep the waiters of a node for an hour after
// the node has lost its link. Before the leader accepts commands of a later
// start, it spends up to 12 seconds, times slowdown, on the removal of the
// waiters of the earlier start.
func patientLeader(o *cluster.Options) {
	o.WaiterGrace, o.LeaderWait = time.Hour, slowdown*40*time.Second
}

// crowd makes clients of a node wait, half of them for a list and half of them for
// a lock that is taken.
func (c *testCluster) crowd(id string) {
	c.t.Helper()
	c.client(id).want(c.t, ok, "set", "lock", "someone")
	var wg sync.WaitGroup
	for i := range crowdSize {
		w := c.waiter(id, uint64(i+1))
		wg.Go(func() {
			args := []string{"blpop", "q", "0"}
			if i%2 == 0 {
				args = []string{"lock", "acquire", "lock", fmt.Sprint("owner", i), "px", "60000", "wait", "0"}
			}
			if reply, err := w.tryBlock(args); err != nil {
				c.t.Errorf("%v: %q, %v, want no error", args, reply, err)
			}
		})
	}
	wg.Wait()
	c.caughtUp()
}

// parts returns how many groups of a leader have removed waiters of earlier
// starts, according to the state of a node.
func (c *testCluster) parts(id, leader string) (n uint64) {
	part := c.node(leader).PartSession()
	c.node(id).View(func(m *fsm.Machine) { n = m.Session(part).LastSeq })
	return n
}

// TestWaitParts_Dead: a node dies while many of its clients wait. The leader
// removes their waiters in parts, and the clients of other nodes that wait behind
// them are served.
func TestWaitParts_Dead(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallParts)
	c.features(fsm.MaxFeatures)
	dead := c.others(c.leader())[0]
	rest := c.others(dead)
	c.crowd(dead)
	list, lock := c.waiter(rest[0], 1), c.waiter(rest[1], 2)
	list.begin(t, "blpop", "q", "0")
	lock.begin(t, "lock", "acquire", "lock", "me", "px", "60000", "wait", "0")
	c.crash(dead)
	cl := c.client(rest[0])
	cl.want(t, ":1\r\n", "del", "lock")
	select {
	case reply := <-lock.s.Waited():
		if reply == nil || reply[0] != ':' {
			t.Errorf("the client that waits for the lock got %q, want a fencing token", reply)
		}
	case <-time.After(waitLimit):
		t.Error("the client of the other node does not get the lock")
	}
	if _, err := lock.s.Unblock(); err != nil { // claims the grant
		t.Error(err)
	}
	cl.want(t, ":1\r\n", "rpush", "q", "one")
	if got := list.element(t, "q"); got != "one" {
		t.Errorf("the client that waits for the list got %s, want one", got)
	}
	c.forgotten()
	if n := c.log.Count("state=" + fsm.SuspendEnd); n < crowdParts {
		t.Errorf("the waiters were removed in %d parts, want at least %d", n, crowdParts)
	}
}

// TestWaitParts_Restarted: a node starts again while waiters of its earlier start
// are left. The leader removes them in parts before the commands of the new start.
func TestWaitParts_Restarted(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallParts, patientLeader)
	c.features(fsm.MaxFeatures)
	node := c.others(c.leader())[0]
	c.crowd(node)
	c.crash(node)
	c.open(node)
	c.ready(node)
	w := c.waiter(node, 1)
	w.begin(t, "blpop", "q", "0")
	c.wantParts(node)
	c.client(c.leader()).want(t, ":1\r\n", "rpush", "q", "one")
	if got := w.element(t, "q"); got != "one" {
		t.Errorf("the client of the new start got %s, want one", got)
	}
	c.forgotten()
}

// wantParts checks that a node has only waiters of its current start, and that
// a leader has removed the waiters of its earlier start in parts.
func (c *testCluster) wantParts(node string) {
	c.t.Helper()
	c.caughtUp()
	leader := c.leader()
	if n := c.parts(leader, leader); n < crowdParts {
		c.t.Errorf("the waiters were removed in %d parts, want at least %d", n, crowdParts)
	}
	c.node(leader).View(func(m *fsm.Machine) {
		if n := m.Waiting(); n != 1 {
			c.t.Errorf("%d clients wait, want 1", n)
		}
	})
}

// TestWaitParts_Alone: the only node of a cluster starts again, so that it leads
// while waiters of its own earlier start are left. It removes them in parts.
func TestWaitParts_Alone(t *testing.T) {
	t.Parallel()
	c := start(t, 1, smallParts, patientLeader)
	c.features(fsm.MaxFeatures)
	c.crowd("n1")
	c.crash("n1")
	c.open("n1")
	c.ready("n1")
	w := c.waiter("n1", 1)
	w.begin(t, "blpop", "q", "0")
	c.wantParts("n1")
	c.client("n1").want(t, ":1\r\n", "rpush", "q", "one")
	if got := w.element(t, "q"); got != "one" {
		t.Errorf("the client of the new start got %s, want one", got)
	}
	c.forgotten()
}

// TestWaitParts_All: all nodes are killed and start again, and one of them leads. It
// removes the waiters of the earlier starts in parts.
func TestWaitParts_All(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallParts, patientLeader)
	c.features(fsm.MaxFeatures)
	for _, id := range c.ids() {
		c.crowd(id)
	}
	for _, id := range c.ids() {
		c.crash(id)
	}
	c.open(c.ids()...)
	c.ready(c.ids()...)
	w := c.waiter("n1", 1)
	w.begin(t, "blpop", "q", "0")
	for _, id := range c.ids() {
		c.client(id).want(t, ok, "set", "k", id)
	}
	c.wantParts("n1")
}

// TestWaitParts_Served: many clients of a node are served. The node removes their
// waiters in parts, so that no entry removes many of them.
func TestWaitParts_Served(t *testing.T) {
	t.Parallel()
	// A part removes 50 µs / (96 steps * 10 ns) = 52 waiters that were served.
	c := start(t, 3, func(o *cluster.Options) { o.WaiterWork = 50 * time.Microsecond })
	c.features(fsm.MaxFeatures)
	id := c.others(c.leader())[0]
	waiters := make([]*waiter, crowdSize)
	for i := range waiters {
		waiters[i] = c.waiter(id, uint64(i+1))
		waiters[i].begin(t, "blpop", "q", "0")
	}
	session := c.node(id).SessionID()
	push := []string{"rpush", "q"}
	for i := range waiters {
		push = append(push, strconv.Itoa(i))
	}
	before := c.groupsOf(session)
	c.client(c.leader()).want(t, ":"+strconv.Itoa(crowdSize)+"\r\n", push...)
	for i, w := range waiters {
		select {
		case reply := <-w.s.Waited():
			if want := "*2\r\n$1\r\nq\r\n" + bulk(strconv.Itoa(i)); string(reply) != want {
				t.Errorf("client %d got %q, want %q", i, reply, want)
			}
		case <-time.After(waitLimit):
			t.Fatalf("client %d was not served", i)
		}
	}
	c.forgotten()
	if n := c.groupsOf(session) - before; n < crowdSize/52 {
		t.Errorf("%d groups have removed the waiters, want at least %d", n, crowdSize/52)
	}
}

// groupsOf returns the number of the last group of a session.
func (c *testCluster) groupsOf(id fsm.SessionID) (n uint64) {
	c.node(c.leader()).View(func(m *fsm.Machine) { n = m.Session(id).LastSeq })
	return n
}
