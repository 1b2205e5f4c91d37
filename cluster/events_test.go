package cluster_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/fsm"
)

// audience is a Listener that records the messages that it receives.
type audience struct {
	t  *testing.T
	mu sync.Mutex
	// messages are the published messages, and origins are the connections that
	// published them.
	messages []string
	origins  []uint64
	caused   []caused // the operations that caused the messages
	index    uint64
	missed   int
}

// caused is the operation that caused a message.
type caused struct {
	index     uint64
	group, op int
}

// causes returns the operations that caused the messages.
func (l *audience) causes() []caused {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.caused)
}

func (l *audience) Applied(index uint64, events []fsm.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index <= l.index {
		l.t.Errorf("received the events of entry %d after the events of entry %d", index, l.index)
	}
	l.index = index
	for _, e := range events {
		if e.Kind == fsm.EventPublish {
			l.messages, l.origins = append(l.messages, string(e.Payload)), append(l.origins, e.Origin)
			l.caused = append(l.caused, caused{index, e.Group, e.Op})
		}
	}
}

func (l *audience) Missed(index uint64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index = max(l.index, index)
	l.missed++
}

func (l *audience) got() ([]string, []uint64, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.messages), slices.Clone(l.origins), l.missed
}

// listen gives a node a listener that wants messages.
func (c *testCluster) listen(id string) *audience {
	l := &audience{t: c.t}
	c.node(id).Listen(l)
	c.node(id).Want(fsm.Kinds(fsm.EventPublish))
	return l
}

// If a leader dies, each other node passes every message to its listener, once and
// in log order.
func TestEvents_InLogOrder(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	dead := c.leader()
	rest := c.others(dead)
	listeners := make(map[string]*audience)
	for _, id := range rest {
		listeners[id] = c.listen(id)
	}
	const each = 200
	var wg sync.WaitGroup
	for _, id := range rest {
		wg.Go(func() {
			cl := c.client(id)
			for i := range each {
				if id == rest[0] && i == each/2 {
					c.crash(dead)
				}
				if reply, err := cl.do("publish", "news", id+"-"+strconv.Itoa(i)); err != nil || reply != ":0\r\n" {
					t.Errorf("publish answered %q, %v, want 0", reply, err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all messages to reach both listeners", func() bool {
		a, _, _ := listeners[rest[0]].got()
		b, _, _ := listeners[rest[1]].got()
		return len(a) >= 2*each && len(b) >= 2*each
	})
	a, originsA, missedA := listeners[rest[0]].got()
	b, originsB, missedB := listeners[rest[1]].got()
	if !slices.Equal(a, b) {
		t.Errorf("the listeners received different messages, or in different order:\n%v\n%v", a, b)
	}
	if missedA+missedB != 0 {
		t.Errorf("the two listeners have missed %d and %d events, want 0", missedA, missedB)
	}
	next := make(map[string]int)
	for i, m := range a {
		from := m[:2]
		if want := from + "-" + strconv.Itoa(next[from]); m != want {
			t.Fatalf("message %d is %s, want %s", i, m, want)
		}
		next[from]++
		// Connection 1 of each node has sent that node's messages. Only that
		// node may report the connection as the origin of a message.
		if own := originsA[i]; (own == 1) != (from == rest[0]) {
			t.Errorf("message %s has origin %d on %s, want origin 1 only on the node that published it", m, own, rest[0])
		}
		if own := originsB[i]; (own == 1) != (from == rest[1]) {
			t.Errorf("message %s has origin %d on %s, want origin 1 only on the node that published it", m, own, rest[1])
		}
	}
}

// A node that received a snapshot in place of entries reports that it has
// missed events.
func TestEvents_MissedBySnapshot(t *testing.T) {
	t.Parallel()
	c := start(t, 3, smallSnapshots)
	late := c.others(c.leader())[0]
	l := c.listen(late)
	c.isolate(late)
	cl := c.client(c.leader(c.others(late)...))
	for i := range 300 { // more entries than a snapshot leaves in the log
		cl.want(t, ok, "set", "k", strconv.Itoa(i))
	}
	for _, id := range c.others(late) {
		if err := c.node(id).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	c.net.heal()
	eventually(t, "a snapshot to be restored", func() bool { _, _, missed := l.got(); return missed == 1 })
	cl.want(t, ":0\r\n", "publish", "news", "after")
	eventually(t, "the message to arrive", func() bool { m, _, _ := l.got(); return len(m) == 1 && m[0] == "after" })
}

// OwnEventsDelivered calls its function (the mark) after the events of the group,
// although the leader has answered the group before this node learned that the
// group's entry is committed. If the node stops first, the mark is called too.
func TestEvents_OwnDelivered(t *testing.T) {
	t.Parallel()
	c := start(t, 3, func(o *cluster.Options) { o.CommitTimeout = time.Minute })
	leader := c.leader()
	id := c.others(leader)[0]
	l := c.listen(id)
	cl, other := c.client(id), c.client(leader)
	mark := func() (was func() bool, by chan int) {
		first, last := cl.s.Sent()
		if first != last || last == 0 {
			t.Fatalf("the command was sent as groups %d to %d, want one group", first, last)
		}
		by = make(chan int, 1)
		c.node(id).OwnEventsDelivered(last, func(uint64, int) {
			m, _, _ := l.got()
			by <- len(m)
		})
		return func() bool { return len(by) > 0 }, by
	}
	for i := range 20 {
		cl.want(t, ":0\r\n", "publish", "news", strconv.Itoa(i))
		was, by := mark()
		// With the next entry, the follower learns that the previous entry is
		// committed.
		eventually(t, "the mark to be called", func() bool {
			other.want(t, ok, "set", "k", strconv.Itoa(i))
			return was()
		})
		if n := <-by; n != i+1 {
			t.Fatalf("the listener had received %d messages when the mark was called, want %d", n, i+1)
		}
	}
	cl.must(t, "get", "k")
	if first, last := cl.s.Sent(); first != 0 || last != 0 {
		t.Errorf("a read was sent as groups %d to %d, want no group", first, last)
	}
	cl.want(t, ":0\r\n", "publish", "news", "last")
	was, _ := mark()
	c.crash(id)
	if !was() {
		t.Error("a node that has stopped leaves a mark uncalled")
	}
}

// A group that is executed in pieces has a position in the log for each piece,
// on the leader and on a follower. The events of an operation belong to the
// piece that contains the operation, at its position in that piece.
func TestEvents_OwnPieces(t *testing.T) {
	t.Parallel()
	c := scripted(t, newLines())
	leader := c.leader()
	for _, id := range []string{leader, c.others(leader)[0]} {
		l := c.listen(id)
		cl := c.client(id)
		type place struct {
			op, position int
			index        uint64
		}
		var mu sync.Mutex
		var places []place
		cl.s.OnPiece(func(group uint64, op int) {
			c.node(id).OwnEventsDelivered(group, func(index uint64, position int) {
				mu.Lock()
				defer mu.Unlock()
				places = append(places, place{op, position, index})
			})
		})
		const slow = "nap\nPUBLISH news "
		for _, tc := range []struct {
			name string
			do   func() (string, error)
			want string
			ops  []int // operation of each message in its group
		}{
			{"script", func() (string, error) { return cl.do("EVAL", slow+"a", "0") }, ":0\r\n", []int{0}},
			{"pipeline", func() (string, error) {
				return cl.pipeline([]string{"PUBLISH", "news", "a"}, []string{"EVAL", slow + "b", "0"}, []string{"SET", "k", "v"},
					[]string{"KEYS", "none*"}, []string{"EVAL", slow + "c", "0"}, []string{"PUBLISH", "news", "d"})
			}, ":0\r\n:0\r\n+OK\r\n*0\r\n:0\r\n:0\r\n", []int{0, 1, 4, 5}},
			{"transaction", func() (string, error) {
				return cl.transaction([]string{"EVAL", slow + "a", "0"}, []string{"PUBLISH", "news", "b"})
			}, "*2\r\n:0\r\n:0\r\n", []int{0, 0}},
		} {
			mu.Lock()
			places = nil
			mu.Unlock()
			if got, err := tc.do(); err != nil || got != tc.want {
				t.Fatalf("%s at %s: answered %q, %v, want %q", tc.name, id, got, err, tc.want)
			}
			first, last := cl.s.Sent()
			if first == last {
				t.Fatalf("%s at %s: the group was not executed in pieces", tc.name, id)
			}
			delivered := make(chan struct{})
			c.node(id).OwnEventsDelivered(last, func(uint64, int) { close(delivered) })
			<-delivered
			var ops []int
			mu.Lock()
			causes := l.causes()
			for _, e := range causes[max(len(causes)-len(tc.ops), 0):] {
				op := -1
				for _, p := range places {
					if p.index == e.index && p.position == e.group {
						op = p.op + e.op
					}
				}
				ops = append(ops, op)
			}
			if !slices.Equal(ops, tc.ops) {
				t.Errorf("%s at %s: messages of operations %v, want %v (pieces %v)", tc.name, id, ops, tc.ops, places)
			}
			mu.Unlock()
		}
	}
}

// If the argument own of Block is true, the wait ends only when the node's own
// state machine has queued the events of the entry that served the wait, even if
// the leader reports the wait's end earlier.
func TestWaits_Own(t *testing.T) {
	t.Parallel()
	c := start(t, 3)
	leader := c.leader()
	id := c.others(leader)[0]
	l := c.listen(id)
	cl, w := c.client(leader), c.client(id)
	for i := range 30 {
		w.group.Reset(2, 7)
		w.group.Command(w.node.Table().Find([]byte("blpop")), 0, [][]byte{nil, []byte("q"), []byte("0")})
		out, err := w.s.Block(&w.group, 7, true)
		if _, _, waits := fsm.Waiting(out); err != nil || !waits {
			t.Fatalf("BLPOP answered %q, %v, want a reply that says that it waits", out, err)
		}
		if _, err := cl.transaction([]string{"publish", "news", strconv.Itoa(i)}, []string{"rpush", "q", "x"}); err != nil {
			t.Fatal(err)
		}
		if reply := <-w.s.Waited(); string(reply) != "*2\r\n$1\r\nq\r\n$1\r\nx\r\n" {
			t.Fatalf("the wait ended with the wrong reply %q", reply)
		}
		_, last := w.s.Sent()
		by := make(chan int, 1)
		c.node(id).OwnEventsDelivered(last, func(uint64, int) {
			m, _, _ := l.got()
			by <- len(m)
		})
		if n := <-by; n != i+1 {
			t.Fatalf("the listener had received %d messages when the mark was called, want %d", n, i+1)
		}
	}
}
