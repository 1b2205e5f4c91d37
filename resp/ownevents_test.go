package resp_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/harness"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// behind makes the fake cluster a node that receives the entries only after the
// leader has replied to their commands. deliver passes the delayed events to
// the hub.
type behind struct {
	f *fakeCluster

	mu    sync.Mutex
	asked func() // if set, is called by each call of OwnEventsDelivered
	marks []func()
}

// follower returns a fake whose events arrive late.
func follower(t *testing.T) (*fakeCluster, *behind) {
	f := newFake(t)
	f.late = make(chan *fsm.Result, 1000)
	b := &behind{f: f}
	f.ownDelivered = func(group uint64, delivered func(index uint64, position int)) {
		index := f.indexOf(group)
		b.mu.Lock()
		b.marks = append(b.marks, func() { delivered(index, 0) })
		asked := b.asked
		b.mu.Unlock()
		if asked != nil {
			asked()
		}
	}
	return f, b
}

// deliver delivers the events and calls the functions that wait for them.
func (b *behind) deliver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.f.late) > 0 {
		res := <-b.f.late
		b.f.listener.Applied(res.Index, res.Events)
	}
	for _, m := range b.marks {
		m()
	}
	b.marks = nil
}

// always makes b deliver all events as soon as a connection waits for them.
func (b *behind) always() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = func() { go b.deliver() }
}

func subscribed(word string, n int) string {
	return fmt.Sprintf(">3\n$%d\n%s\n$2\nch\n:%d", len(word), word, n)
}

func message(channel, text string) string { return push(">", "message", channel, text) }

// TestOwn_Order checks that a connection gets the events of its own commands
// directly after their replies and before the next reply, even in a pipeline.
func TestOwn_Order(t *testing.T) {
	f, b := follower(t)
	b.always()
	s := serve(t, f)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "GET k", "_")
	c.send("SET k 1", "PING", "GET k", "PING")
	c.want("+OK", invalid("k"), "+PONG", "$1\n1", "+PONG")
	c.send("SET k 2", "SET k 3", "GET k", "SET k 4", "PING")
	c.want("+OK", invalid("k"), "+OK", "$1\n3", "+OK", invalid("k"), "+PONG")
	c.expect("MGET a b", "*2\n_\n_")
	c.send("MSET a 1 b 2", "GET a", "GET b")
	c.want("+OK", invalid("a"), invalid("b"), "$1\n1", "$1\n2")
	c.send("MULTI", "SET a 2", "GET a", "SET b 3", "EXEC", "PING")
	c.want("+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3\n+OK\n$1\n2\n+OK", invalid("a"), invalid("b"), "+PONG")
	c.send("GET k", "FLUSHALL", "GET k", "SET k 1", "PING")
	c.want("$1\n4", "+OK", ">2\n$10\ninvalidate\n_", "_", "+OK", invalid("k"), "+PONG")
	c.expect("GET a", "_")
	c.send("CLIENT REPLY SKIP", "SET a 1", "GET a")
	c.want(invalid("a"), "$1\n1")
	c.expect("CLIENT TRACKING OFF", "+OK")

	c.expect("SUBSCRIBE ch", subscribed("subscribe", 1))
	c.send("PUBLISH ch x", "PUBLISH ch y", "GET k", "PING")
	c.want(":1", message("ch", "x"), ":1", message("ch", "y"), "$1\n1", "+PONG")
	c.send("MULTI", "PUBLISH ch x", "SET k 2", "EXEC", "PING")
	c.want("+OK", "+QUEUED", "+QUEUED", "*2\n:1\n+OK", message("ch", "x"), "+PONG")
}

// TestOwn_Pieces checks the order for groups that are executed in pieces, on the
// leader and on a follower. Each event comes directly after the reply of its
// command.
func TestOwn_Pieces(t *testing.T) {
	for _, on := range []string{"leader", "follower"} {
		t.Run(on, func(t *testing.T) {
			f := newFake(t)
			if on == "follower" {
				var b *behind
				f, b = follower(t)
				b.always()
			}
			f.inPieces = true
			s := serve(t, f)
			c := dial(t, s)
			c.do("HELLO 3")
			c.expect("CLIENT TRACKING ON", "+OK", "MGET k l", "*2\n_\n_")
			c.send("SET k 1", "SET l 1", "GET k", "SET k 2", "SET k 3", "PING")
			c.want("+OK", invalid("k"), "+OK", invalid("l"), "$1\n1", "+OK", invalid("k"), "+OK", "+PONG")
			c.expect("MGET k l", "*2\n$1\n3\n$1\n1")
			c.send("SET z 1", "MULTI", "SET k 4", "SET l 4", "EXEC", "GET k", "SET k 5", "PING")
			c.want("+OK", "+OK", "+QUEUED", "+QUEUED", "*2\n+OK\n+OK", invalid("k"), invalid("l"), "$1\n4",
				"+OK", invalid("k"), "+PONG")

			// Another connection changes keys before each piece. The messages
			// keep the order of the log. The connection is a new one, because
			// c now keeps reads and writes in separate groups.
			c = dial(t, s)
			c.do("HELLO 3")
			c.expect("CLIENT TRACKING ON", "+OK")
			c.expect("MGET o0 o1 o2", "*3\n_\n_\n_", "MGET k l", "*2\n$1\n5\n$1\n4")
			n := 0
			f.between = func() *fsm.Group {
				var g fsm.Group
				g.Reset(2, 99)
				g.Command(f.machine.Table().Find([]byte("set")), 0, [][]byte{[]byte("set"), []byte(fmt.Sprint("o", n)), []byte("x")})
				n++
				return &g
			}
			c.send("SET k 6", "GET k", "SET l 6", "PING")
			c.want(invalid("o0"), "+OK", invalid("k"), invalid("o1"), "$1\n6", invalid("o2"), "+OK", invalid("l"), "+PONG")
			f.between = nil

			c.expect("SUBSCRIBE ch", subscribed("subscribe", 1))
			c.send("PUBLISH ch x", "PUBLISH ch y", "GET z", "PING")
			c.want(":1", message("ch", "x"), ":1", message("ch", "y"), "$1\n1", "+PONG")
			c.send("SET z 2", "GET z", "PING")
			c.want("+OK", invalid("z"), "$1\n2", "+PONG")
		})
	}
}

// TestOwn_PieceUnknown checks a group that is executed in pieces, where the
// node does not know the positions of the first pieces in the log. The messages
// of these pieces come before the reply of the first piece whose position is
// known.
func TestOwn_PieceUnknown(t *testing.T) {
	f := newFake(t)
	f.inPieces = true
	f.ownDelivered = func(group uint64, delivered func(index uint64, position int)) {
		index := f.indexOf(group)
		if index == 3 || index == 4 { // the pieces that set a and b; entry 2 is the whole group, which was refused
			index = 0
		}
		delivered(index, 0)
	}
	s := serve(t, f)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "MGET a b c d", "*4\n_\n_\n_\n_")
	c.send("SET a 1", "SET b 1", "SET c 1", "SET d 1", "PING")
	c.want("+OK", "+OK", invalid("a"), invalid("b"), "+OK", invalid("c"), "+OK", invalid("d"), "+PONG")
}

// TestOwn_PiecesUntracked covers pieces that are not tracked themselves
// (OPTIN): the second piece invalidates the last key that the connection has
// read, so the pieces after it cannot cause further events.
func TestOwn_PiecesUntracked(t *testing.T) {
	f := newFake(t)
	f.inPieces = true
	s := serve(t, f)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON OPTIN", "+OK", "CLIENT CACHING YES", "+OK", "GET k", "_")
	c.send("SET z 1", "SET k 1", "SET k 2", "SET z 2", "PING")
	c.want("+OK", "+OK", invalid("k"), "+OK", "+OK", "+PONG")
}

// TestOwn_Modes covers OPTIN, OPTOUT, NOLOOP, BCAST and REDIRECT.
func TestOwn_Modes(t *testing.T) {
	f, b := follower(t)
	b.always()
	s := serve(t, f)
	track := func(mode string) *client {
		c := dial(t, s)
		c.do("HELLO 3")
		c.expect("CLIENT TRACKING ON "+mode, "+OK")
		return c
	}
	c := track("OPTIN")
	c.expect("GET k", "_", "SET k 1", "+OK", "CLIENT CACHING YES", "+OK", "GET k", "$1\n1")
	c.send("SET k 2", "PING")
	c.want("+OK", invalid("k"), "+PONG")
	c = track("OPTOUT")
	c.send("GET k", "SET k 3", "CLIENT CACHING NO", "GET k", "SET k 4", "PING")
	c.want("$1\n2", "+OK", invalid("k"), "+OK", "$1\n3", "+OK", "+PONG")
	c = track("NOLOOP")
	c.send("GET k", "SET k 5", "FLUSHALL", "PING")
	c.want("$1\n4", "+OK", "+OK", ">2\n$10\ninvalidate\n_", "+PONG")
	c = track("BCAST")
	c.send("SET a 1", "SET b 1", "GET a")
	c.want("+OK", "+OK", "$1\n1", invalid("a", "b"))
	c.send("SET a 2", "PING")
	c.want("+OK", invalid("a"), "+PONG")
	// Before the reply to a write is sent, the invalidation is queued for the target
	// of the redirection. So the target gets it before the reply to a later command.
	to, from := dial(t, s), dial(t, s)
	to.do("HELLO 3")
	id := strings.Trim(to.do("CLIENT ID"), ":\n")
	from.expect("CLIENT TRACKING ON REDIRECT "+id, "+OK", "GET k", "$-1", "SET k 1", "+OK")
	to.send("PING")
	to.want(invalid("k"), "+PONG")
}

// TestOwn_Blocking checks that the reply to a blocking command comes before the
// events of that command, even if the command waited.
func TestOwn_Blocking(t *testing.T) {
	f, b := follower(t)
	b.always()
	s := serve(t, f)
	c, w := dial(t, s), dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "LRANGE to 0 -1", "*0")
	c.send("BLMOVE from to LEFT RIGHT 0", "PING")
	testutil.Eventually(t, "a client that waits", func() bool { return strings.Contains(w.do("INFO clients"), "blocked_clients:1") })
	w.expect("RPUSH from x", ":1")
	b.deliver()
	c.want("$1\nx", invalid("to"), "+PONG")
	w.expect("RPUSH from y", ":1")
	c.expect("LRANGE to 0 -1", "*1\n$1\nx")
	c.send("BLMOVE from to LEFT RIGHT 0", "PING")
	c.want("$1\ny", invalid("to"), "+PONG")

	// The group is sent twice. As a whole, it is refused; then its only piece
	// is executed.
	f.inPieces = true
	w.expect("RPUSH from z", ":1")
	c.expect("LRANGE to 0 -1", "*2\n$1\nx\n$1\ny")
	c.send("BLMOVE from to LEFT RIGHT 0", "PING")
	c.want("$1\nz", invalid("to"), "+PONG")
	c.expect("LRANGE to 0 -1", "*3\n$1\nx\n$1\ny\n$1\nz")
	c.send("BLMOVE from to LEFT RIGHT 0", "PING")
	testutil.Eventually(t, "a client that waits", func() bool { return strings.Contains(w.do("INFO clients"), "blocked_clients:1") })
	w.expect("RPUSH from x", ":1")
	b.deliver()
	c.want("$1\nx", invalid("to"), "+PONG")
}

// TestOwn_OthersDoNotWait checks that a connection does not wait for events if
// it neither tracks nor subscribes, or if it cannot receive events.
func TestOwn_OthersDoNotWait(t *testing.T) {
	f, _ := follower(t) // the events are never delivered
	s := serve(t, f)
	for _, setup := range [][]string{nil, {"HELLO 3"}, {"CLIENT TRACKING ON"}, {"HELLO 3", "CLIENT TRACKING ON OPTIN", "GET k"}} {
		c := dial(t, s)
		for _, line := range setup {
			c.do(line)
		}
		c.expect("SET k v", "+OK", "FLUSHDB", "+OK")
	}
}

// TestOwn_ReplyWaits checks that replies are delayed until the events have
// arrived.
func TestOwn_ReplyWaits(t *testing.T) {
	f, b := follower(t)
	asked := make(chan struct{}, 1)
	b.asked = func() { asked <- struct{}{} }
	s := serve(t, f)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "GET k", "_")
	c.send("SET k v", "PING")
	<-asked
	if err := c.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if b, err := c.r.Peek(1); err == nil {
		t.Fatalf("the client got %q before its node received the entry, want no reply yet", b)
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	b.deliver()
	c.want("+OK", invalid("k"), "+PONG")
}

// TestOwn_Bounded checks a node that does not receive the entry that the leader
// has answered. The node delays the reply for a limited time. Then it sends the
// connection the reply and an invalidation of all keys.
func TestOwn_Bounded(t *testing.T) {
	f, b := follower(t)
	s := serve(t, f)
	resp.SetMaxEventWait(s, 20*time.Millisecond)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "GET k", "_", "SUBSCRIBE ch", subscribed("subscribe", 1))
	c.send("SET k v", "PING")
	c.want("+OK", ">2\n$10\ninvalidate\n_", "+PONG")
	c.send("PUBLISH ch m", "PING")
	c.want(":1", ">2\n$10\ninvalidate\n_", "+PONG")
	b.deliver() // the missing events arrive after all
	c.want(invalid("k"), message("ch", "m"))
	c.expect("PING", "+PONG")
}

// TestOwn_TrackingOn checks that CLIENT TRACKING ON is answered only when this node
// has received all changes that were acknowledged before the command. So the
// connection gets no invalidations for those changes.
func TestOwn_TrackingOn(t *testing.T) {
	f, b := follower(t)
	f.state.Ready = true
	f.delivered = func(heard func()) {
		b.deliver()
		heard()
	}
	s := serve(t, f)
	for _, mode := range []string{"", " BCAST"} {
		w, c, rest := dial(t, s), dial(t, s), dial(t, s)
		rest.do("HELLO 3")
		rest.expect("CLIENT TRACKING ON BCAST", "+OK") // makes the node create events
		c.do("HELLO 3")
		w.expect("SET k v", "+OK", "FLUSHALL", "+OK")
		c.expect("CLIENT TRACKING ON"+mode, "+OK")
		b.deliver()
		c.expect("PING", "+PONG")
		rest.want(invalid("k"), ">2\n$10\ninvalidate\n_")
	}
	// The wait for events is limited: a node answers even if it receives no events.
	f.delivered = func(func()) {}
	resp.SetMaxEventWait(s, 20*time.Millisecond)
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK", "SUBSCRIBE ch", subscribed("subscribe", 1), "UNSUBSCRIBE ch", subscribed("unsubscribe", 0))
}

// TestOwn_CacheNeverOld runs random pipelines, with events that arrive late and
// changes by another client. A cached value is never older than the client's own
// last acknowledged write, nor older than any value that the client has read or
// received before. At the end, the cached value of a key is its current value.
func TestOwn_CacheNeverOld(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			f, b := follower(t)
			b.always()
			s := serve(t, f)
			w := dial(t, s)
			c := harness.NewCacher(t, s.Addr().String(), "k", seed)
			rnd := rand.New(rand.NewPCG(seed, 2))
			for range 150 {
				if rnd.IntN(3) == 0 {
					w.do("INCR " + c.Key())
				}
				if rnd.IntN(4) == 0 {
					b.deliver()
				}
				if err := c.Pipeline(); err != nil {
					t.Fatal(err)
				}
			}
			b.deliver()
			differs, err := c.Differs(func(key string) int64 {
				_, text, found := strings.Cut(w.do("GET "+key), "\n")
				if !found || text == "" {
					return 0
				}
				n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			})
			if err != nil || differs != "" {
				t.Errorf("at the end, the cache holds an old value of the key %q (error: %v), want only current values", differs, err)
			}
			if c.Hits == 0 {
				t.Error("the client has changed no key that it had cached, want at least one change")
			}
		})
	}
}
