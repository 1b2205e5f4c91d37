package cluster_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
)

// waiter is a client in a blocking command.
type waiter struct {
	*client
	origin uint64
}

func (c *testCluster) waiter(id string, origin uint64) *waiter {
	return &waiter{c.client(id), origin}
}

// block sends a blocking command and reports whether it waits.
func (w *waiter) block(t testing.TB, args ...string) (reply string, waits bool) {
	t.Helper()
	out, err := w.tryBlock(args)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	_, _, waits = fsm.Waiting(out)
	return string(out), waits
}

// begin sends a blocking command that has to wait.
func (w *waiter) begin(t testing.TB, args ...string) {
	t.Helper()
	if reply, waits := w.block(t, args...); !waits {
		t.Fatalf("%v does not wait, but answers %q", args, reply)
	}
}

// element waits for the answer to BLPOP of one key and returns the element. If
// the cluster has forgotten the wait, element sends the command again.
func (w *waiter) element(t testing.TB, key string) string {
	t.Helper()
	late := time.After(waitLimit)
	for {
		var reply string
		select {
		case got := <-w.s.Waited():
			reply = string(got)
		case <-late:
			t.Fatalf("BLPOP %s was not served within %v", key, waitLimit)
		}
		if reply == "" {
			var waits bool
			if reply, waits = w.block(t, "blpop", key, "0"); waits {
				continue
			}
		}
		var n int
		var got string
		if _, err := fmt.Sscanf(reply, fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%%d\r\n%%s\r\n", len(key), key), &n, &got); err != nil || len(got) != n {
			t.Fatalf("reply is %q: %v", reply, err)
		}
		return got
	}
}

// TestWaits_Fair checks that clients of all nodes get the elements in the order
// in which the clients began to wait.
func TestWaits_Fair(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	ids := c.ids()
	var waiters []*waiter
	for i := range 30 {
		w := c.waiter(ids[i%3], uint64(i+1))
		w.begin(t, "blpop", "q", "0")
		waiters = append(waiters, w)
	}
	cl := c.client(ids[1])
	for i := range waiters {
		if _, err := cl.do("rpush", "q", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range waiters {
		if got := w.element(t, "q"); got != strconv.Itoa(i) {
			t.Errorf("waiter %d got element %s, want the element with the waiter's number", i, got)
		}
	}
	c.forgotten()
}

// forgotten waits until no running node has a waiter in its state.
func (c *testCluster) forgotten() {
	c.t.Helper()
	for _, id := range c.ids() {
		if n := c.members[id].running(); n != nil {
			eventually(c.t, "the waiters of "+id+" to be forgotten", func() bool {
				left := 0
				n.View(func(m *fsm.Machine) { left = len(m.WaitSessions()) })
				return left == 0
			})
		}
	}
}

// TestWaits_LeaderDies: the leader dies while clients of all nodes wait. The
// clients of the other nodes get every element that is pushed afterward, each
// element once, in the order in which the clients began to wait.
func TestWaits_LeaderDies(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	dead := c.leader()
	rest := c.others(dead)
	var alive []*waiter
	for i := range 12 {
		id := c.ids()[i%3]
		w := c.waiter(id, uint64(i+1))
		w.begin(t, "blpop", "q", "0")
		if id != dead {
			alive = append(alive, w)
		}
	}
	c.crash(dead)
	cl := c.client(rest[0])
	for i := range alive {
		if _, err := cl.do("rpush", "q", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i, w := range alive {
		if got := w.element(t, "q"); got != strconv.Itoa(i) {
			t.Errorf("waiter %d got element %s, want the element with the waiter's number", i, got)
		}
	}
	cl.want(t, ":0\r\n", "llen", "q")
	c.forgotten()
}

// readNext returns the arguments with which a consumer of group g waits for an
// entry of stream s.
func readNext(consumer string) []string {
	return []string{"xreadgroup", "group", "g", consumer, "count", "1", "block", "0", "streams", "s", ">"}
}

// entry waits for the answer to readNext and returns the entry's ID. If the
// cluster has forgotten the wait, entry sends the command again.
func (w *waiter) entry(t testing.TB, consumer string) string {
	t.Helper()
	for {
		reply := string(<-w.s.Waited())
		if reply == "" {
			var waits bool
			if reply, waits = w.block(t, readNext(consumer)...); waits {
				continue
			}
		}
		var n int
		var id string
		if _, err := fmt.Sscanf(reply, "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$%d\r\n%s\r\n", &n, &id); err != nil || len(id) != n {
			t.Fatalf("reply is %q: %v", reply, err)
		}
		return id
	}
}

// TestWaits_GroupLeaderDies: the leader dies while consumers of a group wait on
// all nodes. The consumers on the other nodes get every entry that is added
// afterward, each entry once, in the order in which the consumers began to
// wait. Each entry is pending until it is acknowledged.
func TestWaits_GroupLeaderDies(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	dead := c.leader()
	rest := c.others(dead)
	c.client(rest[0]).want(t, ok, "xgroup", "create", "s", "g", "$", "mkstream")
	type reader struct {
		*waiter
		name string
	}
	var alive []reader
	for i := range 12 {
		id := c.ids()[i%3]
		r := reader{c.waiter(id, uint64(i+1)), fmt.Sprintf("c%d", i)}
		r.begin(t, readNext(r.name)...)
		if id != dead {
			alive = append(alive, r)
		}
	}
	c.crash(dead)
	cl := c.client(rest[0])
	for i := range alive {
		if _, err := cl.do("xadd", "s", fmt.Sprintf("%d-1", i+1), "f", "v"); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range alive {
		want := fmt.Sprintf("%d-1", i+1)
		if got := r.entry(t, r.name); got != want {
			t.Errorf("consumer %s got entry %s, want %s", r.name, got, want)
		}
		cl.want(t, ":1\r\n", "xack", "s", "g", want)
	}
	cl.want(t, "*4\r\n:0\r\n$-1\r\n$-1\r\n*-1\r\n", "xpending", "s", "g")
	c.forgotten()
}

// TestWaits_GroupGone: the leader dies while a consumer of a group waits, and then
// the stream is deleted. The consumer gets an error.
func TestWaits_GroupGone(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	dead := c.leader()
	rest := c.others(dead)
	c.client(rest[0]).want(t, ok, "xgroup", "create", "s", "g", "$", "mkstream")
	w := c.waiter(rest[1], 1)
	w.begin(t, readNext("a")...)
	c.crash(dead)
	cl := c.client(rest[0])
	cl.want(t, ":1\r\n", "del", "s")
	if got, want := string(<-w.s.Waited()), "-UNBLOCKED the stream key no longer exists\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c.forgotten()
}

// TestWaits_FollowerDies: a follower dies. Its waiter gets no element once the
// leader has suspended or removed that waiter. Then the next waiter is served.
func TestWaits_FollowerDies(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	dead := c.others(c.leader())[0]
	rest := c.others(dead)
	c.waiter(dead, 1).begin(t, "blpop", "q", "0")
	w := c.waiter(rest[0], 1)
	w.begin(t, "blpop", "q", "0")
	c.crash(dead)
	// The leader has applied both waits. Another node may not have received
	// them yet.
	leader := c.leader(rest...)
	eventually(t, "the dead node's waiter to be suspended or gone", func() bool {
		served := false
		c.node(leader).View(func(m *fsm.Machine) {
			for _, s := range m.WaitSessions() {
				served = served || strings.HasPrefix(s.ID.NodeID, dead+"@") && !s.Suspended
			}
		})
		return !served
	})
	c.client(rest[1]).want(t, ":1\r\n", "rpush", "q", "one")
	if got := w.element(t, "q"); got != "one" {
		t.Errorf("the waiter got %s, want one", got)
	}
	c.forgotten()
}

// TestWaits_CutOff: a node is cut off while its clients wait. Afterward, it
// sends their commands again, or delivers the elements with which the cluster
// has served them meanwhile.
func TestWaits_CutOff(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	cut := c.others(c.leader())[0]
	a, b := c.waiter(cut, 1), c.waiter(cut, 2)
	a.begin(t, "blpop", "q", "0")
	b.begin(t, "blpop", "other", "0")
	c.isolate(cut)
	cl := c.client(c.leader(c.others(cut)...))
	eventually(t, "the waiters to be forgotten", func() bool {
		left := 0
		cl.node.View(func(m *fsm.Machine) { left = m.Waiting() })
		return left == 0
	})
	c.net.heal()
	var wg sync.WaitGroup
	wg.Go(func() {
		if got := a.element(t, "q"); got != "one" {
			t.Errorf("the waiter for q got %s, want one", got)
		}
	})
	wg.Go(func() {
		if got := b.element(t, "other"); got != "two" {
			t.Errorf("the waiter for other got %s, want two", got)
		}
	})
	cl.want(t, ":1\r\n", "rpush", "q", "one")
	cl.want(t, ":1\r\n", "rpush", "other", "two")
	wg.Wait()
	c.forgotten()
}

// TestWaits_Snapshot: a node gets a snapshot in place of the entry that served
// its client. The client gets the element nevertheless.
func TestWaits_Snapshot(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallSnapshots, func(o *cluster.Options) { o.WaiterGrace = time.Hour; o.LeaderWait = time.Hour })
	late := c.others(c.leader())[0]
	w := c.waiter(late, 1)
	w.begin(t, "blpop", "q", "0")
	c.isolate(late)
	cl := c.client(c.leader(c.others(late)...))
	if _, err := cl.do("rpush", "q", "one"); err != nil {
		t.Fatal(err)
	}
	for i := range 300 { // more entries than a snapshot leaves in the log
		cl.want(t, ok, "set", "k", strconv.Itoa(i))
	}
	for _, id := range c.others(late) {
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.net.heal()
	if got := w.element(t, "q"); got != "one" {
		t.Errorf("the waiter got %s, want one", got)
	}
}

// TestWaits_Unblock ends a wait and serves it at the same time. The element is
// either given to the client or still in the list.
func TestWaits_Unblock(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	rest := c.others(c.leader())
	w, cl := c.waiter(rest[0], 1), c.client(rest[1])
	given := 0
	for i := range 100 {
		w.begin(t, "blpop", "q", "0")
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := cl.do("rpush", "q", strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
		reply, err := w.s.Unblock()
		if err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		n := cl.number(t, "llen", "q")
		if (reply != nil) == (n == 1) {
			t.Fatalf("round %d: the wait ended with %q, and the list holds %d elements, want the element either in the reply or in the list", i, reply, n)
		}
		if reply != nil {
			given++
		}
		if _, err := cl.do("del", "q"); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 100 waits were served before Unblock ended them", given)
	// A client that disconnects takes no element.
	w.begin(t, "blpop", "q", "0")
	w.s.Abandon()
	c.forgotten()
	cl.want(t, ":1\r\n", "rpush", "q", "x")
	cl.want(t, ":1\r\n", "llen", "q")
}

// TestWaits_ServedWhileCutOff: a node was cut off, and an element was given to
// its client before the leader noticed the cut. The leader removes the waiters of
// the node that were not served. The client that was served gets its element when
// the node is connected again.
func TestWaits_ServedWhileCutOff(t *testing.T) {
	t.Parallel()
	// The leader notices the cut after 3/5 of LeaderWait. The element is pushed
	// before that.
	c := start(t, 3, smallSnapshots, func(o *cluster.Options) { o.LeaderWait = slowdown * 8 * time.Second })
	c.mended()
	cut := c.others(c.leader())[0]
	rest := c.others(cut)
	cl := c.client(c.leader())
	w, open := c.waiter(cut, 1), c.waiter(cut, 2)
	w.begin(t, "blpop", "q", "0")
	open.begin(t, "blpop", "other", "0")
	c.caughtUp()
	c.isolate(cut)
	cl.want(t, ":1\r\n", "rpush", "q", "one")
	cl.want(t, ":0\r\n", "llen", "q") // the element was given to w
	eventually(t, "the waiters that were not served to be forgotten", func() bool {
		left := 0
		cl.node.View(func(m *fsm.Machine) { left = m.Waiting() })
		return left == 0
	})
	// The leader has ended the waits, and must not propose their end again.
	const ends = "state=" + fsm.SuspendEnd
	logged := c.log.Count(ends)
	if logged == 0 {
		t.Fatalf("no log line contains %q", ends)
	}
	for i := range 300 { // more entries than a snapshot leaves in the log
		cl.want(t, ok, "set", "k", strconv.Itoa(i))
	}
	for _, id := range rest {
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	during(500 * time.Millisecond) // ten times ExpireEvery
	if n := c.log.Count(ends); n > logged {
		t.Errorf("the leader proposed the end of the waits %d more times, want 0", n-logged)
	}
	c.net.heal()
	select {
	case reply := <-w.s.Waited():
		if want := "*2\r\n$1\r\nq\r\n" + bulk("one"); string(reply) != want {
			t.Errorf("got %q, want %q", reply, want)
		}
	case <-time.After(waitLimit):
		t.Fatal("the client of a living node gets nothing")
	}
	if reply := <-open.s.Waited(); reply != nil {
		t.Errorf("the client that was not served got %q, want nil", reply)
	}
	c.forgotten()
}

// TestWaits_ServedToRemoved checks that the state machine forgets the replies that
// were served to a node that is no longer a member.
func TestWaits_ServedToRemoved(t *testing.T) {
	t.Parallel()
	const grace = 20 * time.Millisecond
	c, gone, cl := servedAndGone(t, grace)
	during(dropGraces * grace) // the replies that were served to a member stay
	if kept(cl) != 1 {
		t.Error("the reply is forgotten although its node is a member")
	}
	c.remove(gone)
	eventually(t, "the reply to be forgotten", func() bool { return kept(cl) == 0 })
}

// TestWaits_ServedToReplaced checks that the state machine also forgets the
// replies that were served to a node if the node has lost its data and has
// become a member again with an empty directory.
func TestWaits_ServedToReplaced(t *testing.T) {
	t.Parallel()
	c, gone, cl := servedAndGone(t, 50*time.Millisecond)
	c.wipe(gone)
	c.remove(gone)
	c.net.heal()
	if err := cl.node.AddMember(gone, address(gone)); err != nil {
		t.Fatal(err)
	}
	c.open(gone)
	c.ready(gone)
	eventually(t, "the reply to be forgotten", func() bool { return kept(cl) == 0 })
}

// servedAndGone makes a cluster that keeps a reply for a client of a node that
// has died. It returns that node and a client of the leader.
func servedAndGone(t *testing.T, grace time.Duration) (c *testCluster, gone string, cl *client) {
	t.Helper()
	c = start(t, 3, func(o *cluster.Options) { o.WaiterGrace, o.LeaderWait = grace, slowdown*time.Minute })
	c.mended()
	gone = c.others(c.leader())[0]
	cl = c.client(c.leader())
	c.waiter(gone, 1).begin(t, "blpop", "q", "0")
	c.caughtUp()
	c.isolate(gone) // otherwise the node would acknowledge the reply
	cl.want(t, ":1\r\n", "rpush", "q", "one")
	cl.want(t, ":0\r\n", "llen", "q")
	c.crash(gone)
	return c, gone, cl
}

// kept returns how many replies to served waiters a node keeps.
func kept(cl *client) (n int) {
	cl.node.View(func(m *fsm.Machine) {
		for _, s := range m.WaitSessions() {
			n += s.Served
		}
	})
	return n
}

// remove removes a node from the cluster.
func (c *testCluster) remove(id string) {
	c.t.Helper()
	eventually(c.t, id+" to be removed", func() bool {
		err := c.node(c.leader(c.others(id)...)).RemoveMember(id)
		if err != nil {
			c.t.Logf("remove %s: %v", id, err)
		}
		return err == nil
	})
}

// dropGraces is how many times WaiterGrace a test waits before it checks that a
// reply is still kept. It is larger than the constant of the same name in package
// cluster, so the leader has had time to drop the reply.
const dropGraces = 100

// mended waits until all given nodes use fsm.FeatureMend. Without arguments it
// waits for all nodes.
func (c *testCluster) mended(ids ...string) {
	c.t.Helper()
	if len(ids) == 0 {
		ids = c.ids()
	}
	for _, id := range ids {
		eventually(c.t, "the feature version of "+id, func() bool {
			features := 0
			c.node(id).View(func(m *fsm.Machine) { features = m.Features() })
			return features >= fsm.FeatureMend
		})
	}
}

// TestWaits_UnblockWithoutLeader ends a wait on a node that is cut off. The
// other nodes have given an element to this wait, and its node does not know
// that. So the reply must not say that the command was not executed.
func TestWaits_UnblockWithoutLeader(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	cut := c.others(c.leader())[0]
	w := c.waiter(cut, 1)
	w.begin(t, "blpop", "q", "0")
	c.caughtUp()
	c.isolate(cut)
	cl := c.client(c.leader(c.others(cut)...))
	cl.want(t, ":1\r\n", "rpush", "q", "one")
	eventually(t, "the cut-off node to lose its link", func() bool { return !c.node(cut).Linked() })
	reply, err := w.s.Unblock()
	if err == nil || reply != nil || outcome.Of(err) != outcome.Unknown || errors.Is(err, outcome.ErrNoLeader) {
		t.Errorf("Unblock returned %q, %v, outcome %d, want an error with an unknown outcome", reply, err, outcome.Of(err))
	}
	c.net.heal()
	c.forgotten()
}

// TestWaits_Prompt checks that the leader sends the reply of a wait to the
// waiter's node. So the client does not have to wait until raft informs that
// node that the entry is committed.
func TestWaits_Prompt(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.CommitTimeout = time.Minute })
	rest := c.others(c.leader())
	cl := c.client(c.leader())
	w := c.waiter(rest[0], 1)
	for i := range 20 {
		w.begin(t, "blpop", "q", "0")
		if _, err := cl.do("rpush", "q", strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		select {
		case reply := <-w.s.Waited():
			if want := fmt.Sprintf("*2\r\n$1\r\nq\r\n%s", bulk(strconv.Itoa(i))); string(reply) != want {
				t.Fatalf("reply is %q, want %q", reply, want)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("the client was not served within 20 s")
		}
	}
}
