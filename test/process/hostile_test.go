package process_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// hostile sends bytes on a connection of its own. It returns the bytes that the
// server sends before the server closes the connection.
func hostile(t *testing.T, n *process.Node, bytes string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", n.Clients, 5*time.Second)
	if err != nil {
		t.Fatalf("connect to %s: %v", n.ID, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, bytes); err != nil && !hungUp(err) {
		t.Fatalf("send: %v", err)
	}
	reply, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.40q: the connection is not closed; answered %.200q", bytes, reply)
	} else if err != nil && !hungUp(err) {
		t.Errorf("%.40q: %v", bytes, err)
	}
	return string(reply)
}

// hungUp reports whether an error means that the other side has closed the
// connection.
func hungUp(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// TestHostile_OnlyTheirConnectionDies sends malicious bytes. Without the guard,
// some of them would crash the parser or make it loop. Only the connection that
// sends the bytes ends.
func TestHostile_OnlyTheirConnectionDies(t *testing.T) {
	c := startCluster(t)
	l := newLoad(t, "honest", each(3, c.Nodes)...)
	pids := make(map[*process.Node]int)
	for _, n := range c.Nodes {
		pids[n] = n.PID()
	}
	protocol := "-ERR Protocol error: "
	for _, tt := range []struct{ name, bytes, reply string }{
		{"length of the largest int64", "*1\r\n$9223372036854775807\r\nabc\r\n", protocol + "invalid bulk length"},
		{"count of the largest int64", "*9223372036854775807\r\n$3\r\nabc\r\n", protocol + "invalid multibulk length"},
		{"length of the smallest int64", "*1\r\n$-9223372036854775808\r\n", protocol + "invalid bulk length"},
		{"length beyond uint64", "*1\r\n$18446744073709551617\r\n", protocol + "invalid bulk length"},
		{"length of half a gigabyte", "*1\r\n$536870912\r\n", protocol + "invalid bulk length"},
		{"length with a sign", "*1\r\n$+1\r\na\r\n", protocol + "invalid bulk length"},
		{"count of two billion", "*2147483647\r\n", protocol + "invalid multibulk length"},
		{"count that is no number", "*x\r\n", protocol + "invalid multibulk length"},
		{"no dollar", "*1\r\n:1\r\n", protocol + "expected '$', got ':'"},
		{"line without end", strings.Repeat("A", 1<<20), protocol + "too big inline request"},
		{"length line without end", "*1\r\n$" + strings.Repeat("1", 1<<20), protocol + "too big bulk count string"},
		{"count line without end", "*" + strings.Repeat("1", 1<<20), protocol + "too big mbulk count string"},
		{"quotes that do not close", "SET k \"v\r\n", protocol + "unbalanced quotes in request"},
		{"a command over the limit", "*16\r\n$4\r\nMSET\r\n" +
			strings.Repeat("$1048576\r\n"+strings.Repeat("v", 1<<20)+"\r\n", 15), protocol + "too big command"},
		{"a good command first", "*1\r\n$4\r\nPING\r\n*1\r\n$9223372036854775807\r\n",
			"+PONG\r\n" + protocol + "invalid bulk length"},
		{"TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00\n", 40<<10), ""},
	} {
		for _, n := range c.Nodes[:2] {
			if reply := hostile(t, n, tt.bytes); !strings.HasPrefix(reply, tt.reply) {
				t.Errorf("%s: %.200q, want %q", tt.name, reply, tt.reply)
			}
		}
	}

	// The deadline ends a connection with an unfinished command. Other clients
	// continue.
	slow := c.Nodes[0]
	begun := time.Now()
	hostile(t, slow, "*2\r\n$3\r\nGET\r\n$5\r\nab")
	if took := time.Since(begun); took < time.Second {
		t.Errorf("the connection with an incomplete command ended after %v", took)
	}

	// This client sends commands and never reads the replies.
	deaf, err := net.Dial("tcp", slow.Clients)
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	want(t, slow, "OK", "SET", "large", strings.Repeat("v", 1<<20))
	if err := deaf.SetWriteDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for sent := 0; sent < 64<<10; sent++ {
		if _, err := io.WriteString(deaf, "*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n"); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection of a client that reads nothing is not closed")
			}
			break
		}
	}

	// The peer port must also survive arbitrary bytes.
	for _, n := range c.Nodes {
		for _, bytes := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", strings.Repeat("\xff", 1<<16), "\x00",
			"*1\r\n$4\r\nPING\r\n"} {
			conn, err := net.DialTimeout("tcp", n.Peers, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, bytes); err != nil && !hungUp(err) {
				t.Errorf("send to the peer port: %v", err)
			}
			conn.Close()
		}
	}

	l.progress(50)
	for _, n := range c.Nodes {
		if n.PID() != pids[n] || !n.Running() {
			t.Errorf("%s has ended", n.ID)
		}
		want(t, n, "PONG", "PING")
		if out := n.Output(); strings.Contains(out, "panic") || strings.Contains(out, "connection failed") {
			t.Errorf("%s has panicked:\n%s", n.ID, out)
		}
	}
	l.check(c.Nodes[2])
}

// TestHostile_UnauthenticatedGetHalf checks that connections without
// authentication get at most half of --max-clients. When that half is in use, a new
// connection replaces the oldest unauthenticated one, so that every client can
// log in.
func TestHostile_UnauthenticatedGetHalf(t *testing.T) {
	c := newCluster(t, process.Config{Nodes: 1, Args: []string{"--max-clients", "6", "--requirepass", "secret"}})
	n := c.Nodes[0]
	start(t, n)
	friend, err := eventually(t, n)
	if err != nil {
		t.Fatal(err)
	}
	login := func(conn *respwire.Conn) {
		t.Helper()
		if got := show(conn, "AUTH", "secret"); got != "OK" {
			t.Fatalf("AUTH: %q", got)
		}
	}
	stranger := func() *respwire.Conn {
		t.Helper()
		conn, err := eventually(t, n)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	login(friend)
	first := stranger()
	for _, conn := range []*respwire.Conn{first, stranger(), stranger()} {
		if got := show(conn, "PING"); got != "NOAUTH Authentication required." {
			t.Errorf("a stranger: %q", got)
		}
	}
	fourth := stranger()
	if got := show(fourth, "PING"); got != "NOAUTH Authentication required." {
		t.Errorf("the fourth stranger of six clients: %q", got)
	}
	if got := show(first, "PING"); !strings.Contains(got, "EOF") && !strings.Contains(got, "reset") {
		t.Errorf("the connection of the first stranger is still open: %q", got)
	}
	login(fourth)
	login(stranger())
	if got := show(friend, "PING"); got != "PONG" {
		t.Errorf("a client that has logged in: %q", got)
	}
}
