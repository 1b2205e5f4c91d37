package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestPubsub_MatchBudget checks that each connection whose patterns take too
// many steps to match is closed, even if two connections have the same
// patterns. A connection with another pattern gets its messages.
func TestPubsub_MatchBudget(t *testing.T) {
	s := serve(t, newFake(t))
	resp.StopMatchClock(s)
	slow, twin, quick, w := dial(t, s), dial(t, s), dial(t, s), dial(t, s)
	var patterns []string
	for i := range 1000 {
		patterns = append(patterns, fmt.Sprintf("*%sb%d*", strings.Repeat("a", 100), i))
	}
	for _, c := range []*client{slow, twin} {
		c.send("PSUBSCRIBE " + strings.Join(patterns, " "))
		for range patterns {
			if _, err := c.reply(); err != nil {
				t.Fatal(err)
			}
		}
	}
	quick.do("PSUBSCRIBE a*")
	channel := strings.Repeat("a", 2000)
	w.send("PUBLISH " + channel + " m")
	if _, err := w.reply(); err != nil {
		t.Fatal(err)
	}
	quick.want(push("*", "pmessage", "a*", channel, "m"))
	slow.wantEOF()
	twin.wantEOF()
	if n := metric(t, s, "holdfast_client_refused_total", "reason", "pattern_steps"); n != 2 {
		t.Errorf("%v connections were closed because of their patterns, want 2", n)
	}
	w.expect("PUBLISH a2 m", ":1")
	quick.want(push("*", "pmessage", "a*", "a2", "m"))
}

// TestPubsub_Limits checks two limits: the number of topics, patterns and
// tracked prefixes of one connection, and the memory that the subscriptions and
// prefixes of all connections take together.
func TestPubsub_Limits(t *testing.T) {
	s := serve(t, newFake(t), func(c *resp.Config) {
		c.Limits.MaxTopics, c.Limits.MaxPatterns, c.Limits.SubscriptionBytes = 4, 2, 4000
	})
	c, w := dial(t, s), dial(t, s)
	c.do("HELLO 3")
	const topics = "-ERR too many subscriptions: a connection may have 4 (--max-subscriptions)"
	const patterns = "-ERR too many patterns: a connection may subscribe to 2 (--max-patterns)"
	c.expect("SUBSCRIBE a b c d e", topics, "PSUBSCRIBE a b c", patterns)
	for _, line := range []string{"PSUBSCRIBE a b", "SUBSCRIBE a b"} {
		c.send(line)
		for range 2 {
			if _, err := c.reply(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.expect("SSUBSCRIBE a", topics, "PSUBSCRIBE c", patterns, "SUBSCRIBE a", ">3\n$9\nsubscribe\n$1\na\n:4")
	c.expect("CLIENT TRACKING ON BCAST PREFIX a PREFIX b PREFIX c", "-ERR too many prefixes: a connection may track 2 (--max-patterns)",
		"CLIENT TRACKING ON BCAST PREFIX a PREFIX b", "+OK", "CLIENT TRACKING ON BCAST PREFIX c", "-ERR too many prefixes: a connection may track 2 (--max-patterns)")

	long := strings.Repeat("x", 1000)
	const memory = "-OOM the subscriptions and prefixes of this node's clients take too much memory: use fewer, or raise --max-subscription-bytes"
	w.do("HELLO 3")
	w.expect("SUBSCRIBE "+long, memory, "CLIENT TRACKING ON BCAST PREFIX "+long, memory)
	if err := c.conn.Close(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "the memory of the connection's subscriptions to be released", func() bool { return metric(t, s, "holdfast_pubsub_subscription_bytes") == 0 })
	w.expect("CLIENT TRACKING ON BCAST PREFIX "+long, "+OK")
}

// TestTracking_BroadcastRights checks that a connection in BCAST mode receives
// no invalidations of keys that its user may not read. If the connection redirects
// its invalidations, the user of the target must be allowed to read the keys too.
// When the rights change, the client receives an invalidation of all keys.
func TestTracking_BroadcastRights(t *testing.T) {
	s := serve(t, newFake(t))
	admin := dial(t, s)
	for user, keys := range map[string]string{"ann": "%R~a* %W~b*", "bob": "~a1"} {
		admin.expect("ACL SETUSER "+user+" on nopass +@all "+keys, "+OK")
	}
	login := func(user string) *client {
		c := dial(t, s)
		c.do("HELLO 3 AUTH " + user + " x")
		return c
	}
	ann, bob, all := login("ann"), login("bob"), dial(t, s)
	all.do("HELLO 3")
	id := strings.TrimPrefix(bob.do("CLIENT ID"), ":")
	from := login("ann")
	from.expect("CLIENT TRACKING ON BCAST REDIRECT "+strings.TrimSpace(id), "+OK")
	ann.expect("CLIENT TRACKING ON BCAST", "+OK")
	all.expect("CLIENT TRACKING ON BCAST", "+OK")
	admin.expect("MSET a1 1 a2 1 b1 1", "+OK", "SET b1 2", "+OK", "SET a2 2", "+OK", "SET a1 2", "+OK")
	all.want(invalid("a1", "a2", "b1"), invalid("b1"), invalid("a2"), invalid("a1"))
	ann.want(invalid("a1", "a2"), invalid("a2"), invalid("a1"))
	bob.want(invalid("a1"), invalid("a1"))

	const everything = ">2\n$10\ninvalidate\n_"
	admin.expect("ACL SETUSER ann resetkeys ~b*", "+OK", "MSET a1 1 b1 1", "+OK")
	ann.want(everything, invalid("b1"))
	bob.want(everything) // bob gets the invalidations of a connection of ann, whose rules have changed
	admin.expect("ACL SETUSER bob resetkeys ~b1", "+OK", "MSET a1 1 b1 1 b2 1", "+OK")
	bob.want(everything, invalid("b1"))
	ann.want(invalid("b1", "b2"))
	ann.expect("AUTH default x", "+OK")
	ann.want(everything)
	admin.expect("SET a1 3", "+OK")
	ann.want(invalid("a1"))
	all.want(invalid("a1", "b1"), invalid("a1", "b1", "b2"), invalid("a1"))
	all.expect("PING", "+PONG")
}
