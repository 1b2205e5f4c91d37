package process_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// blockedOn returns how many clients of a node are blocked.
func blockedOn(t *testing.T, n *process.Node) int {
	t.Helper()
	_, rest, _ := strings.Cut(do(t, n, "INFO", "clients"), "blocked_clients:")
	text, _, _ := strings.Cut(rest, "\r")
	count, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("INFO clients of %s: %v", n.ID, err)
	}
	return count
}

// popped is the element that a client of a node got, or its error.
type popped struct {
	node    *process.Node
	element string
	err     error
}

// pop waits for an element of the list with the name queue, for at most
// waitLimit.
func pop(conn *respwire.Conn, n *process.Node) popped {
	conn.Limit = waitLimit
	reply, err := respwire.NoError(conn.Do("BLPOP", "queue", "0"))
	if err != nil {
		return popped{n, "", err}
	}
	if got := reply.Texts(); len(got) == 2 && got[0] == "queue" {
		return popped{n, got[1], nil}
	}
	return popped{n, "", fmt.Errorf("BLPOP: %v", reply)}
}

// waitLimit bounds how long a test with few clients may take. A test with
// hundreds of clients may take twice as long.
const waitLimit = time.Minute

// TestBlocking_KillOfLeader lets clients of all three nodes wait for elements
// of one list. It kills the leader, and then pushes elements through the other
// nodes. The clients of the surviving nodes get all elements, each element
// once, in the order in which the clients began to wait.
func TestBlocking_KillOfLeader(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	const each = 8
	ctx := testutil.Within(t, waitLimit)
	var waiting []chan popped
	var nodes []*process.Node
	for i := range 3 * each {
		n := c.Nodes[i%3]
		out := make(chan popped, 1)
		conn, before := dial(t, n), blockedOn(t, n)
		go func() { out <- pop(conn, n) }()
		if err := process.Poll(ctx, "the client to wait",
			func() bool { return blockedOn(t, n) == before+1 }); err != nil {
			t.Fatal(err)
		}
		waiting, nodes = append(waiting, out), append(nodes, n)
	}
	kill(t, dead)
	begun := time.Now()
	through := c.others(dead)
	for i := range 2 * each {
		if got := do(t, through[i%2], "RPUSH", "queue", strconv.Itoa(i)); !strings.HasPrefix(got, "(integer) ") {
			t.Fatalf("RPUSH: %s", got)
		}
	}
	next := 0
	for i, out := range waiting {
		p := <-out
		if nodes[i] == dead {
			if p.err == nil {
				t.Errorf("a client of the killed node got %q, want no element", p.element)
			}
			continue
		}
		if want := strconv.Itoa(next); p.err != nil || p.element != want {
			t.Errorf("client %d, on %s, got %q, %v, want %q", i, p.node.ID, p.element, p.err, want)
		}
		next++
	}
	t.Logf("all %d clients were served %v after the kill", next, time.Since(begun))
	want(t, through[0], "(integer) 0", "LLEN", "queue")

	// The node starts again, and its clients wait as before.
	start(t, dead)
	c.settled()
	conn, result := dial(t, dead), make(chan popped, 1)
	go func() { result <- pop(conn, dead) }()
	if err := process.Poll(ctx, "the client to wait", func() bool { return blockedOn(t, dead) == 1 }); err != nil {
		t.Fatal(err)
	}
	want(t, through[0], "(integer) 1", "RPUSH", "queue", "again")
	if p := <-result; p.err != nil || p.element != "again" {
		t.Errorf("got %q, %v", p.element, p.err)
	}
}

// TestBlocking_Stop stops a node that has a blocked client. The node closes the
// client's connection and ends in time. An element that is pushed afterward
// does not go to that client.
func TestBlocking_Stop(t *testing.T) {
	c := startCluster(t)
	leaving := c.leader()
	stay := c.others(leaving)[0]
	ctx := testutil.Within(t, waitLimit)
	conn, result := dial(t, leaving), make(chan popped, 1)
	go func() { result <- pop(conn, leaving) }()
	if err := process.Poll(ctx, "the client to wait", func() bool { return blockedOn(t, leaving) == 1 }); err != nil {
		t.Fatal(err)
	}
	if code, err := leaving.Stop(5 * time.Second); code != 0 || err != nil {
		t.Errorf("stopped with code %d, %v", code, err)
	}
	if p := <-result; p.err == nil || errors.Is(p.err, os.ErrDeadlineExceeded) {
		t.Errorf("BLPOP ended with %q, %v, want a closed connection", p.element, p.err)
	}
	want(t, stay, "(integer) 1", "RPUSH", "queue", "x")
	want(t, stay, "(integer) 1", "LLEN", "queue")
}

// TestBlocking_ManyRevoked: when a user loses its rights, all waits of its
// clients end, although the cluster needs several log entries to end so many
// waits. No element that is pushed after the change reaches these clients.
func TestBlocking_ManyRevoked(t *testing.T) {
	c := startCluster(t)
	const each = 700
	want(t, c.Nodes[0], "OK", "ACL", "SETUSER", "bob", "on", ">secret", "~*", "+@all")
	results := make(chan error, each*len(c.Nodes))
	for _, n := range c.Nodes {
		for range each {
			conn := dial(t, n)
			conn.Limit = 2 * waitLimit
			go func() {
				_, err := respwire.NoError(conn.Do("AUTH", "bob", "secret"))
				if err == nil {
					reply, lost := conn.Do("BLPOP", "queue", "0")
					if got := reply.String(); lost != nil || !strings.Contains(got, "NOPERM") {
						err = fmt.Errorf("BLPOP: %s, %v, want NOPERM", got, lost)
					}
				}
				results <- err
			}()
		}
	}
	ctx := testutil.Within(t, 2*waitLimit)
	for _, n := range c.Nodes {
		if err := process.Poll(ctx, "the clients to wait", func() bool { return blockedOn(t, n) == each }); err != nil {
			t.Fatal(err)
		}
	}
	push := []string{"RPUSH", "queue"}
	for i := range 100 {
		push = append(push, fmt.Sprint("e", i))
	}
	far := c.others(c.leader())[0]
	want(t, far, "OK", "ACL", "SETUSER", "bob", "-@all")
	want(t, far, "(integer) 100", push...)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	want(t, far, "(integer) 100", "LLEN", "queue")
}

// TestBlocking_ManyReaders: a new entry of a stream reaches all clients that
// wait for it, on all nodes. This holds although the cluster needs several log
// entries to serve so many clients, and although no other client sends
// commands.
func TestBlocking_ManyReaders(t *testing.T) {
	c := startCluster(t)
	const each = 400
	ctx := testutil.Within(t, 2*waitLimit)
	want(t, c.Nodes[0], "1-1", "XADD", "stream", "1-1", "f", "old")
	results := make(chan error, each*len(c.Nodes))
	for _, n := range c.Nodes {
		for range each {
			conn := dial(t, n)
			conn.Limit = 2 * waitLimit
			go func() {
				reply, err := respwire.NoError(conn.Do("XREAD", "BLOCK", "0", "STREAMS", "stream", "1-1"))
				if got := reply.String(); err == nil && !strings.Contains(got, "2-1") {
					err = fmt.Errorf("XREAD: %s", got)
				}
				results <- err
			}()
		}
	}
	for _, n := range c.Nodes {
		if err := process.Poll(ctx, "the clients to wait", func() bool { return blockedOn(t, n) == each }); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	want(t, c.others(c.leader())[0], "2-1", "XADD", "stream", "2-1", "f", "new")
	for range cap(results) {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d clients were served within %v", cap(results), time.Since(begun))
}
