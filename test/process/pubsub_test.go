package process_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// subscribe opens a subscriber and returns when the subscription is confirmed.
func subscribe(t *testing.T, n *process.Node, patterns ...string) *respwire.Conn {
	t.Helper()
	conn := dial(t, n)
	for _, pattern := range patterns {
		if got, want := show(conn, "PSUBSCRIBE", pattern), "[psubscribe "+pattern+" "; !strings.HasPrefix(got, want) {
			t.Fatalf("subscribe to %s: %s", pattern, got)
		}
	}
	return conn
}

// next returns the next message.
func next(t *testing.T, conn *respwire.Conn) (channel, text string) {
	t.Helper()
	reply, err := conn.Receive()
	if err != nil {
		t.Fatalf("waiting for a message: %v", err)
	}
	switch m := reply.Texts(); {
	case len(m) == 3 && m[0] == "message":
		return m[1], m[2]
	case len(m) == 4 && m[0] == "pmessage":
		return m[2], m[3]
	}
	t.Fatalf("got %v, want a message", reply)
	return "", ""
}

// TestPubSub_KillOfLeader publishes messages while the leader is killed. They
// reach the subscribers of every running node, each once and in the same order
// everywhere. No message from before a subscription reaches its subscriber.
func TestPubSub_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	publishers := []*respwire.Conn{dial(t, rest[0]), dial(t, rest[1])}
	if got := show(publishers[0], "PUBLISH", "news", "before"); got != "(integer) 0" {
		t.Fatal(got)
	}
	subscribers := []*respwire.Conn{subscribe(t, rest[0], "news"), subscribe(t, rest[1], "n*")}
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
				// PUBLISH counts only the receivers that are connected to the
				// publisher's node.
				if got := show(p, "PUBLISH", "news", fmt.Sprint(i, "-", k)); got != "(integer) 1" {
					failed <- fmt.Errorf("PUBLISH %d of %d: %s", k, i, got)
					return
				}
			}
			failed <- nil
		}()
	}
	var got [2][]string
	for i, conn := range subscribers {
		for range 2 * each {
			_, text := next(t, conn)
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

// TestPubSub_UnsubscribeComesLater checks that a subscriber gets the messages
// that were acknowledged before it sent UNSUBSCRIBE, and gets them before the
// reply. The publisher and the subscriber may be connected to any nodes.
func TestPubSub_UnsubscribeComesLater(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	other := c.others(leader)
	for _, at := range [][2]*process.Node{{leader, leader}, {leader, other[0]}, {other[0], leader},
		{other[0], other[0]}, {other[0], other[1]}} {
		p, subscriber := dial(t, at[0]), dial(t, at[1])
		for i := range 40 {
			text := fmt.Sprint(at[0].ID, at[1].ID, i)
			if got := show(subscriber, "SUBSCRIBE", "c"); got != "[subscribe c (integer) 1]" {
				t.Fatalf("not subscribed: %s", got)
			}
			if got := show(p, "PUBLISH", "c", text); !strings.HasPrefix(got, "(integer) ") {
				t.Fatalf("not published: %s", got)
			}
			if err := subscriber.Send([]string{"UNSUBSCRIBE", "c"}); err != nil {
				t.Fatal(err)
			}
			if _, got := next(t, subscriber); got != text {
				t.Fatalf("got %q, want %q", got, text)
			}
			if v, err := subscriber.Receive(); err != nil || v.String() != "[unsubscribe c (integer) 0]" {
				t.Fatalf("got %v, %v, want the confirmation", v, err)
			}
		}
	}
}

// TestNotify_KillOfLeader sets notify-keyspace-events on one node. The setting
// is in effect on all nodes, even after a restart of all of them. A key that
// expires while the leader is killed causes one event on each surviving node.
func TestNotify_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	want(t, c.others(c.leader())[0], "OK", "CONFIG", "SET", "notify-keyspace-events", "Ex$")
	inForce := func(nodes ...*process.Node) {
		t.Helper()
		for _, n := range nodes {
			if got := settings(t, n, "notify-*"); got["notify-keyspace-events"] != "$xE" {
				t.Errorf("%s: %v", n.ID, got)
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
	ears := []*respwire.Conn{subscribe(t, rest[0], "__key*"), subscribe(t, rest[1], "__key*")}
	want(t, rest[0], "OK", "SET", "lock", "me", "NX", "PX", "1000")
	kill(t, dead)
	for _, conn := range ears {
		for _, event := range []string{"set", "expired"} {
			if ch, key := next(t, conn); ch != "__keyevent@0__:"+event || key != "lock" {
				t.Errorf("got %q of %q, want %s of lock", ch, key, event)
			}
		}
	}
	want(t, rest[1], "OK", "SET", "end", "x")
	for _, conn := range ears {
		if ch, key := next(t, conn); ch != "__keyevent@0__:set" || key != "end" {
			t.Errorf("got %q of %q, want nothing more of lock", ch, key)
		}
	}
}
