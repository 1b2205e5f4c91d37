package process_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// wantClosed checks that a node closes an idle connection, and that it counts
// the connection under a reason.
func wantClosed(t *testing.T, n *process.Node, c net.Conn, reason string) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(testutil.WaitLimit)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 1<<16); ; {
		_, err := c.Read(buf)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Fatalf("%s: the connection is still open", reason)
		}
		if err != nil {
			break
		}
	}
	_, metrics := fetch(t, n, "/metrics")
	wantContains(t, "/metrics", metrics, fmt.Sprintf("holdfast_client_refused_total{reason=%q} ", reason))
}

// startListening starts a node and waits until its ports accept connections.
func startListening(t *testing.T, n *process.Node) {
	t.Helper()
	start(t, n)
	c, err := eventually(t, n)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// dialTCP opens a connection and sends some bytes.
func dialTCP(t *testing.T, addr, send string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Write([]byte(send)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestLimitFlags_BeforeLogin checks the flags that limit clients before they
// have logged in.
func TestLimitFlags_BeforeLogin(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--requirepass", "secret", "--max-unauth-clients", "3",
		"--handshake-timeout", "200ms", "--unauth-idle-timeout", "300ms", "--max-failed-logins", "2"}})
	n := c.Nodes[0]
	startListening(t, n)
	as(t, n, "default", "secret")

	wantClosed(t, n, dialTCP(t, n.Clients, ""), "handshake_timeout")
	wantClosed(t, n, dialTCP(t, n.Clients, "QUIT?\r\n"), "unauthenticated_idle_timeout")
	for range 4 {
		dialTCP(t, n.Clients, "PING\r\n")
	}
	testutil.Eventually(t, "the oldest of four connections to be closed", func() bool {
		_, metrics := fetch(t, n, "/metrics")
		return strings.Contains(metrics, `holdfast_client_refused_total{reason="max_unauthenticated"} `)
	})
	// After two failures, the third login waits for 100 ms, the fourth for 200 ms
	// more, and so on.
	began := time.Now()
	for range 4 {
		conn, err := eventually(t, n)
		if err != nil {
			t.Fatal(err)
		}
		if got := show(conn, "AUTH", "carl", "guess"); !strings.HasPrefix(got, "WRONGPASS") {
			t.Fatalf("AUTH: %q", got)
		}
		conn.Close()
	}
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("four wrong passwords took %v, want at least 100ms because only two have no delay", took)
	}
}

// TestLimitFlags checks the flags that limit clients after their login.
func TestLimitFlags(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--max-blocked-clients", "1",
		"--command-timeout", "200ms", "--write-timeout", "300ms", "--max-message-bytes", "100kb",
		"--max-pattern-steps", "1000000", "--max-script-log-rate", "1", "--log-level", "info"}})
	n := c.Nodes[0]
	startListening(t, n)

	waits := dial(t, n)
	if err := waits.Send([]string{"BLPOP", "list", "0"}); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "a client to wait", func() bool {
		return strings.Contains(do(t, n, "INFO", "clients"), "blocked_clients:1\r\n")
	})
	const busy = "BUSY too many clients of this node wait in blocking commands, use another node " +
		"(--max-blocked-clients)"
	want(t, n, busy, "BLPOP", "other", "0")
	got := do(t, n, "LOCK", "ACQUIRE", "free", "me", "PX", "60000", "WAIT", "60000")
	if !strings.HasPrefix(got, "(integer) ") {
		t.Errorf("LOCK ACQUIRE of a free lock: %q, want a token", got)
	}
	want(t, n, busy, "LOCK", "ACQUIRE", "free", "you", "PX", "60000", "WAIT", "60000")
	want(t, n, "(nil)", "LOCK", "ACQUIRE", "free", "you", "PX", "60000")
	want(t, n, "(integer) 1", "RPUSH", "list", "x")
	if v, err := waits.Receive(); err != nil || v.String() != "[list x]" {
		t.Errorf("the client that waited got %v, %v", v, err)
	}
	want(t, n, "(integer) 1", "RPUSH", "other", "x") // no refused client waits for the list
	want(t, n, "(integer) 1", "LLEN", "other")

	wantClosed(t, n, dialTCP(t, n.Clients, "*2\r\n$3\r\nGET\r\n$100\r\nab"), "command_timeout")

	// This client reads none of 40 MB of replies.
	want(t, n, "OK", "SET", "large", strings.Repeat("x", 1<<20))
	dialTCP(t, n.Clients, strings.Repeat("GET large\r\n", 40))
	testutil.Eventually(t, "the connection with unread replies to be closed", func() bool {
		_, metrics := fetch(t, n, "/metrics")
		return strings.Contains(metrics, `holdfast_client_refused_total{reason="write_timeout"} `)
	})

	// This subscriber does not read.
	dialTCP(t, n.Clients, "SUBSCRIBE news\r\n")
	testutil.Eventually(t, "the subscription", func() bool {
		return strings.Contains(do(t, n, "PUBSUB", "NUMSUB", "news"), "1")
	})
	news := strings.Repeat("x", 500_000)
	testutil.Eventually(t, "the subscriber to be cut off", func() bool {
		do(t, n, "PUBLISH", "news", news)
		_, metrics := fetch(t, n, "/metrics")
		return strings.Contains(metrics, "holdfast_pubsub_cut_off_total 1\n")
	})

	// This subscriber has slow patterns.
	patterns := dial(t, n)
	for i := range 100 {
		if got := show(patterns, "PSUBSCRIBE", fmt.Sprintf("a*a*%d*a", i)); !strings.Contains(got, "psubscribe") {
			t.Fatalf("PSUBSCRIBE: %q", got)
		}
	}
	testutil.Eventually(t, "the subscriber with the patterns to be closed", func() bool {
		do(t, n, "PUBLISH", strings.Repeat("a", 200), "x")
		_, metrics := fetch(t, n, "/metrics")
		return strings.Contains(metrics, `holdfast_client_refused_total{reason="pattern_steps"} `)
	})

	do(t, n, "EVAL", "for i = 1, 100 do redis.log(redis.LOG_WARNING, 'line of a script') end", "0")
	if lines := strings.Count(n.Output(), "line of a script"); lines < 10 || lines > 20 {
		t.Errorf("a script wrote %d lines to the log at once, want 10 and a few more", lines)
	}
}

// TestLimitFlags_HTTP checks the flags that limit the connections of the HTTP port.
func TestLimitFlags_HTTP(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--max-http-connections", "2", "--http-idle-timeout",
		"1s"}})
	n := c.Nodes[0]
	startListening(t, n)
	const request = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	closed := func(c net.Conn) bool {
		if err := c.SetReadDeadline(time.Now().Add(testutil.WaitLimit)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 1<<16); ; {
			if _, err := c.Read(buf); err != nil {
				e, ok := err.(net.Error)
				return !ok || !e.Timeout()
			}
		}
	}
	if !closed(dialTCP(t, n.HTTP, request)) {
		t.Error("an idle connection stays open")
	}
	oldest := dialTCP(t, n.HTTP, "")
	dialTCP(t, n.HTTP, "")
	dialTCP(t, n.HTTP, "")
	began := time.Now()
	if !closed(oldest) {
		t.Error("the oldest of three connections stays open")
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the oldest of three connections was closed after %v, want at once", took)
	}
}
