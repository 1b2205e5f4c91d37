package process_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/holdfast-kv/holdfast/verify/process"
)

// subscribe opens a subscriber and returns when the subscription is confirmed.
func subscribe(t *testing.T, n *process.Node, channels ...string) *redis.PubSubConn {
	t.Helper()
	psc := &redis.PubSubConn{Conn: dial(t, n)}
	for _, ch := range channels {
		if err := psc.PSubscribe(ch); err != nil {
			t.Fatal(err)
		}
		if s, ok := psc.ReceiveWithTimeout(30 * time.Second).(redis.Subscription); !ok || s.Channel != ch {
			t.Fatalf("subscribe to %s: %v", ch, s)
		}
	}
	return psc
}

// next returns the next message.
func next(t *testing.T, psc *redis.PubSubConn) (channel, text string) {
	t.Helper()
	switch m := psc.ReceiveWithTimeout(30 * time.Second).(type) {
	case redis.Message:
		return m.Channel, string(m.Data)
	case error:
		t.Fatalf("waiting for a message: %v", m)
	default:
		t.Fatalf("got %v, want a message", m)
	}
	return "", ""
}

// TestPubSub_KillOfLeader publishes messages while the leader is killed. They
// reach the subscribers of every running node, each once and in the same order
// everywhere. No message from before a subscription reaches its subscriber.
func TestPubSub_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	publishers := []redis.Conn{dial(t, rest[0]), dial(t, rest[1])}
	if _, err := publishers[0].Do("PUBLISH", "news", "before"); err != nil {
		t.Fatal(err)
	}
	subscribers := []*redis.PubSubConn{subscribe(t, rest[0], "news"), subscribe(t, rest[1], "n*")}
	const each = 300
	failed := make(chan error, 2)
	for i, p := range publishers {
		go func() {
			for k := range each {
				if i == 0 && k == each/3 {
					if err := dead.Kill(); err != nil {
						failed <- err
						return
					}
				}
				// The receivers that PUBLISH counts are those
				// of the publisher's own node.
				if n, err := redis.Int(p.Do("PUBLISH", "news", fmt.Sprint(i, "-", k))); err != nil || n != 1 {
					failed <- fmt.Errorf("PUBLISH %d of %d: %d, %w", k, i, n, err)
					return
				}
			}
			failed <- nil
		}()
	}
	var got [2][]string
	for i, psc := range subscribers {
		for range 2 * each {
			_, text := next(t, psc)
			got[i] = append(got[i], text)
		}
	}
	for range publishers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got[0], got[1]) {
		t.Errorf("subscribers of two nodes got different messages, or in different order:\n%v\n%v", got[0], got[1])
	}
	count := make(map[string]int)
	for _, text := range got[0] {
		from, k, _ := strings.Cut(text, "-")
		if want := fmt.Sprint(count[from]); k != want {
			t.Fatalf("message %s of publisher %s comes in place of %s", k, from, want)
		}
		count[from]++
	}
}

// TestPubSub_UnsubscribeComesLater checks that messages acknowledged before
// UNSUBSCRIBE was sent are delivered before its reply, whichever nodes the
// publisher and the subscriber are connected to.
func TestPubSub_UnsubscribeComesLater(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	other := c.others(leader)
	for _, at := range [][2]*process.Node{{leader, leader}, {leader, other[0]}, {other[0], leader},
		{other[0], other[0]}, {other[0], other[1]}} {
		p := dial(t, at[0])
		psc := &redis.PubSubConn{Conn: dial(t, at[1])}
		for i := range 40 {
			text := fmt.Sprint(at[0].ID, at[1].ID, i)
			if err := psc.Subscribe("c"); err != nil {
				t.Fatal(err)
			}
			if _, ok := psc.ReceiveWithTimeout(30 * time.Second).(redis.Subscription); !ok {
				t.Fatal("not subscribed")
			}
			if _, err := p.Do("PUBLISH", "c", text); err != nil {
				t.Fatal(err)
			}
			if err := psc.Unsubscribe("c"); err != nil {
				t.Fatal(err)
			}
			if _, got := next(t, psc); got != text {
				t.Fatalf("got %q, want %q", got, text)
			}
			if s, ok := psc.ReceiveWithTimeout(30 * time.Second).(redis.Subscription); !ok || s.Kind != "unsubscribe" {
				t.Fatalf("got %v, want the confirmation", s)
			}
		}
	}
}

// TestNotify_KillOfLeader sets notify-keyspace-events on one node. The setting
// is in effect on all nodes, even after a restart of all of them. A key that
// expires while the leader is killed causes one event on each node.
func TestNotify_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	want(t, c.others(c.leader())[0], "OK", "CONFIG", "SET", "notify-keyspace-events", "Ex$")
	inForce := func(nodes ...*process.Node) {
		t.Helper()
		for _, n := range nodes {
			got, err := redis.StringMap(dial(t, n).Do("CONFIG", "GET", "notify-*"))
			if err != nil || got["notify-keyspace-events"] != "$xE" {
				t.Errorf("%s: %v, %v", n.ID, got, err)
			}
		}
	}
	inForce(c.Nodes...)
	for _, n := range c.Nodes {
		kill(t, n)
	}
	c.start()
	dead := c.leader()
	rest := c.others(dead)
	inForce(c.Nodes...)
	ears := []*redis.PubSubConn{subscribe(t, rest[0], "__key*"), subscribe(t, rest[1], "__key*")}
	want(t, rest[0], "OK", "SET", "lock", "me", "NX", "PX", "1000")
	kill(t, dead)
	for _, psc := range ears {
		for _, event := range []string{"set", "expired"} {
			if ch, key := next(t, psc); ch != "__keyevent@0__:"+event || key != "lock" {
				t.Errorf("got %q of %q, want %s of lock", ch, key, event)
			}
		}
	}
	want(t, rest[1], "OK", "SET", "end", "x")
	for _, psc := range ears {
		if ch, key := next(t, psc); ch != "__keyevent@0__:set" || key != "end" {
			t.Errorf("got %q of %q, want nothing more of lock", ch, key)
		}
	}
}
