package resp_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestOutbox_Interleaves checks that messages and replies of one connection
// interleave without breaking into each other. Under a constant stream of
// messages, no reply, and no message before the last reply, is lost or out of
// order.
func TestOutbox_Interleaves(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	c.do("HELLO 3")
	c.expect("SUBSCRIBE rain", ">3\n$9\nsubscribe\n$4\nrain\n:1", "CLIENT TRACKING ON BCAST PREFIX count", "+OK")
	const rounds, pipeline = 200, 5
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		pub := dial(t, s)
		for i := range rounds {
			pub.send(fmt.Sprintf("PUBLISH rain %d", i), fmt.Sprintf("PUBLISH rain %d-again", i))
			pub.want(":1", ":1")
		}
	})
	messages, news, counter := 0, 0, 0
	// message checks that r is the next message of the channel.
	message := func(r string) {
		want := fmt.Sprint(messages / 2)
		if messages%2 == 1 {
			want += "-again"
		}
		if !strings.HasSuffix(r, "\n"+want+"\n") {
			t.Fatalf("got the message %q, want the text %s", r, want)
		}
		messages++
	}
	// next reads until a reply, and checks the messages before it.
	next := func() string {
		for {
			r, err := c.reply()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case strings.HasPrefix(r, ">3\n$7\nmessage\n"):
				message(r)
			case r == ">2\n$10\ninvalidate\n*1\n$5\ncount\n":
				if news++; news > counter {
					t.Fatalf("got %d invalidations after %d replies to INCR, want at most one for each reply", news, counter)
				}
			default:
				return r
			}
		}
	}
	for range rounds {
		lines := make([]string, pipeline)
		for i := range lines {
			lines[i] = "INCR count"
			if i == pipeline/2 {
				lines[i] = "CLIENT GETNAME" // ends a group
			}
		}
		c.send(lines...)
		for i := range lines {
			want := "_\n"
			if i != pipeline/2 {
				counter++
				want = fmt.Sprintf(":%d\n", counter)
			}
			if r := next(); r != want {
				t.Fatalf("reply %q, want %q", r, want)
			}
		}
	}
	for messages < 2*rounds {
		r, err := c.reply()
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", messages, 2*rounds, err)
		}
		if strings.HasPrefix(r, ">3\n$7\nmessage\n") {
			message(r)
		}
	}
}

// TestPubSub_Churn opens and closes connections that subscribe and unsubscribe
// while messages are sent. No connection may remain in the tables.
func TestPubSub_Churn(t *testing.T) {
	s := serve(t, newFake(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 20 {
				c := dial(t, s)
				c.send("HELLO 3", "SUBSCRIBE a b", "PSUBSCRIBE *", "CLIENT TRACKING ON", "GET k", fmt.Sprintf("SET k %d", i))
				if k%2 == 0 {
					c.send("UNSUBSCRIBE", "PUBLISH a x", "CLIENT TRACKING OFF")
				}
				if _, err := c.reply(); err != nil {
					t.Error(err)
				}
				if err := c.conn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c := dial(t, s)
	testutil.Eventually(t, "all subscriptions to end", func() bool {
		c.send("PUBSUB CHANNELS", "PUBSUB NUMPAT", "INFO stats", "INFO clients")
		channels, _ := c.reply()
		patterns, _ := c.reply()
		stats, _ := c.reply()
		clients, _ := c.reply()
		return channels == "*0\n" && patterns == ":0\n" && strings.Contains(stats, "tracking_total_keys:0\r\n") && strings.Contains(clients, "tracking_clients:0\r\n")
	})
}
