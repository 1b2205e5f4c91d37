package resp_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// push returns a message as it is sent in RESP2 (mark "*") or RESP3 (">").
func push(mark string, words ...string) string {
	b := fmt.Sprintf("%s%d", mark, len(words))
	for _, w := range words {
		b += fmt.Sprintf("\n$%d\n%s", len(w), w)
	}
	return b
}

func TestPubSub_Delivery(t *testing.T) {
	s := serve(t, newFake(t))
	a, b, pub := dial(t, s), dial(t, s), dial(t, s)
	b.do("HELLO 3")
	a.send("SUBSCRIBE news sport", "PSUBSCRIBE n*", "SSUBSCRIBE shard")
	a.want("*3\n$9\nsubscribe\n$4\nnews\n:1", "*3\n$9\nsubscribe\n$5\nsport\n:2", "*3\n$10\npsubscribe\n$2\nn*\n:3", "*3\n$10\nssubscribe\n$5\nshard\n:1")
	b.expect("SUBSCRIBE news", ">3\n$9\nsubscribe\n$4\nnews\n:1", "SUBSCRIBE news", ">3\n$9\nsubscribe\n$4\nnews\n:1")
	pub.expect("PUBLISH news hello", ":3", "PUBLISH none x", ":1", "SPUBLISH shard s", ":1", "SPUBLISH news s", ":0", "PUBLISH shard s", ":0")
	a.want(push("*", "message", "news", "hello"), push("*", "pmessage", "n*", "news", "hello"), push("*", "pmessage", "n*", "none", "x"), push("*", "smessage", "shard", "s"))
	b.want(push(">", "message", "news", "hello"))
	pub.expect("PUBSUB NUMSUB news nobody", "*4\n$4\nnews\n:2\n$6\nnobody\n:0", "PUBSUB NUMPAT", ":1",
		"PUBSUB CHANNELS", "*2\n$4\nnews\n$5\nsport", "PUBSUB CHANNELS s*", "*1\n$5\nsport", "PUBSUB SHARDCHANNELS", "*1\n$5\nshard", "PUBSUB SHARDNUMSUB shard", "*2\n$5\nshard\n:1")
	// The pipeline publishes two messages in a transaction, and one after it.
	pub.send("MULTI", "PUBLISH news 1", "SET k v", "PUBLISH news 2", "EXEC", "PUBLISH news 3")
	pub.want("+OK", "+QUEUED", "+QUEUED", "+QUEUED", "*3\n:3\n+OK\n:3", ":3")
	b.want(push(">", "message", "news", "1"), push(">", "message", "news", "2"), push(">", "message", "news", "3"))
	a.send("UNSUBSCRIBE", "PUNSUBSCRIBE none")
	for i := 1; i <= 3; i++ { // earlier messages arrive first
		m := fmt.Sprint(i)
		a.want(push("*", "message", "news", m), push("*", "pmessage", "n*", "news", m))
	}
	a.want("*3\n$11\nunsubscribe\n$4\nnews\n:2", "*3\n$11\nunsubscribe\n$5\nsport\n:1", "*3\n$12\npunsubscribe\n$4\nnone\n:1")
	// When a connection ends, its subscriptions end.
	if err := b.conn.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the subscriptions to news to end", func() bool { return pub.do("PUBSUB NUMSUB news") == "*2\n$4\nnews\n:0\n" })
}

// TestPubSub_NothingFromBefore checks that a subscription does not receive a
// message that was published before it, even if this node receives the message
// after the client has subscribed.
func TestPubSub_NothingFromBefore(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	c := dial(t, s)
	c.expect("SET k v", "+OK", "SUBSCRIBE news", "*3\n$9\nsubscribe\n$4\nnews\n:1")
	for index, m := range []string{"old", "old", "old", "new"} { // the log index of SET was 2
		f.listener.Applied(uint64(index), []fsm.Event{{Kind: fsm.EventPublish, Key: "news", Payload: []byte(m)}})
	}
	c.want(push("*", "message", "news", "new"))
}

func TestPubSub_Restricted(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.do("SUBSCRIBE x")
	refused := func(name string) string {
		return "-ERR Can't execute '" + name + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
	}
	c.expect("GET k", refused("get"), "CLIENT ID", refused("client|id"), "PUBLISH x y", refused("publish"), "PUBSUB NUMPAT", refused("pubsub|numpat"), "MULTI", refused("multi"),
		"NOSUCH", "-ERR unknown command 'NOSUCH', with args beginning with: ", "GET", "-ERR wrong number of arguments for 'get' command",
		"PING", "*2\n$4\npong\n$0\n", "PING hi", "*2\n$4\npong\n$2\nhi", "RESET", "+RESET", "GET k", "$-1", "PING", "+PONG")
	c.expect("SUBSCRIBE x", "*3\n$9\nsubscribe\n$1\nx\n:1", "UNSUBSCRIBE", "*3\n$11\nunsubscribe\n$1\nx\n:0", "GET k", "$-1", "UNSUBSCRIBE", "*3\n$11\nunsubscribe\n$-1\n:0")
	c.do("HELLO 3")
	c.expect("SUBSCRIBE x", ">3\n$9\nsubscribe\n$1\nx\n:1", "GET k", "_", "PING", "+PONG")
	c.send("PUBLISH x y")
	c.want(":1", push(">", "message", "x", "y")) // the reply first, then the event that it caused
	c.send("CLIENT REPLY OFF", "PUBLISH x z", "UNSUBSCRIBE x")
	c.want(push(">", "message", "x", "z"), ">3\n$11\nunsubscribe\n$1\nx\n:0")
}

// TestPubSub_NothingBehind checks that the messages for a subscription come
// before the reply to a command that ends the subscription or changes the
// protocol. After that reply, a client could not recognize the messages.
func TestPubSub_NothingBehind(t *testing.T) {
	for _, c := range []struct{ proto, line, mark, reply string }{
		{"2", "RESET", "*", "+RESET"},
		{"3", "RESET", ">", "+RESET"},
		{"3", "HELLO 2", ">", "*14\n"},
	} {
		t.Run(c.line+" from "+c.proto, func(t *testing.T) {
			f := newFake(t)
			sub := dial(t, serve(t, f))
			sub.do("HELLO " + c.proto)
			sub.do("SUBSCRIBE a")
			f.mu.Lock()
			f.before = func(*fsm.Group) error { // while the next SUBSCRIBE is on its way
				f.listener.Applied(9, []fsm.Event{{Kind: fsm.EventPublish, Key: "a", Payload: []byte("m")}})
				return nil
			}
			f.mu.Unlock()
			sub.send("SUBSCRIBE b", c.line)
			sub.want(c.mark+"3\n$9\nsubscribe\n$1\nb\n:2", push(c.mark, "message", "a", "m"))
			if got, err := sub.reply(); err != nil || !strings.HasPrefix(got, c.reply) {
				t.Fatalf("%s: got %q, %v", c.line, got, err)
			}
			sub.send("PING")
			if got, err := sub.reply(); err != nil || got != "+PONG\n" && got != "*2\n$4\npong\n$0\n\n" {
				t.Fatalf("PING: got %q, %v, want a reply to PING and no message", got, err)
			}
		})
	}
}

// TestPubSub_SlowSubscriber checks that the server disconnects a subscriber
// that does not read when too much data waits for it, and that this subscriber
// does not delay other subscribers.
func TestPubSub_SlowSubscriber(t *testing.T) {
	for _, limit := range []struct {
		name   string
		change func(*resp.Config)
	}{
		// The limit leaves room for some messages, because the server still counts
		// a message for a moment after the fast subscriber has read it.
		{"hard", func(c *resp.Config) { c.Limits.PushHard = 512 << 10 }},
		{"soft", func(c *resp.Config) { c.Limits.PushSoft, c.Limits.PushSoftTime = 64<<10, time.Millisecond }},
	} {
		t.Run(limit.name, func(t *testing.T) {
			s := serve(t, newFake(t), limit.change)
			slow, fast, pub := dial(t, s), dial(t, s), dial(t, s)
			for _, c := range []*client{slow, fast} {
				c.expect("SUBSCRIBE news", "*3\n$9\nsubscribe\n$4\nnews\n:1")
			}
			message := strings.Repeat("x", 32<<10)
			got := 0
			testutil.Eventually(t, "the slow subscriber to be cut off", func() bool {
				reply := pub.do("PUBLISH news " + message)
				fast.want(push("*", "message", "news", message))
				got++
				return reply == ":1\n"
			})
			if left, err := io.Copy(io.Discard, slow.conn); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the slow subscriber read %d more bytes and then got %v, want the end of the connection", left, err)
			}
			pub.expect("PUBLISH news end", ":1")
			fast.want(push("*", "message", "news", "end"))
		})
	}
}

// TestPubSub_Missed checks a node that has missed events. The node disconnects
// the subscribers, because they may have missed messages, and sends an
// invalidation of all keys to the clients that track keys.
func TestPubSub_Missed(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	subscriber, tracker, plain := dial(t, s), dial(t, s), dial(t, s)
	subscriber.do("SUBSCRIBE x")
	tracker.do("HELLO 3")
	tracker.expect("CLIENT TRACKING ON", "+OK", "GET k", "_")
	f.listener.Missed(100, "test")
	subscriber.wantEOF()
	tracker.want(">2\n$10\ninvalidate\n_")
	plain.expect("GET k", "$-1")
}

// TestPubSub_LargeDeparture checks that the node accepts connections while it
// removes a connection with many subscriptions. The test subscribes to more and
// more channels until it has seen a connection that was served before all
// subscriptions were removed.
func TestPubSub_LargeDeparture(t *testing.T) {
	s := serve(t, newFake(t))
	watch := dial(t, s)
	for n := 10_000; n <= 160_000; n *= 2 {
		a := dial(t, s)
		for from := 0; from < n; from += 1000 {
			line := []string{"SUBSCRIBE"}
			for i := range 1000 {
				line = append(line, fmt.Sprint("channel:", from+i))
			}
			a.send(strings.Join(line, " "))
			for range 1000 {
				if _, err := a.reply(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := a.conn.Close(); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, "the node to close the connection", func() bool {
			return !strings.Contains(watch.do("CLIENT LIST TYPE pubsub"), "id=")
		})
		b := dial(t, s)
		b.expect("PING", "+PONG")
		left := watch.do("PUBSUB CHANNELS channel:*") != "*0\n"
		testutil.Eventually(t, "the subscriptions to end", func() bool { return watch.do("PUBSUB CHANNELS channel:*") == "*0\n" })
		if left {
			return
		}
	}
	t.Error("the node has accepted no connection before it had removed all subscriptions of another one")
}
