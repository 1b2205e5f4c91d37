package resp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// large makes a key with a value of n bytes. It returns the encoded reply that
// GET of that key must get.
func large(c *client, key string, n int) string {
	c.t.Helper()
	c.expect(fmt.Sprintf("SETRANGE %s %d x", key, n-1), fmt.Sprintf(":%d", n))
	return fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("\x00", n-1)+"x")
}

// connectSlow connects a client whose socket accepts little data before the client
// reads.
func connectSlow(t *testing.T, s *resp.Server) *client {
	t.Helper()
	c := dial(t, s)
	if err := c.conn.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	return c
}

// readSlowly reads as many bytes as want contains, at most 100,000 at a time,
// and fails if the server sends other bytes.
func (c *client) readSlowly(want string) {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	got, rest := make([]byte, 100_000), want
	for len(rest) > 0 {
		n, err := io.ReadFull(c.r, got[:min(len(got), len(rest))])
		if err != nil || string(got[:n]) != rest[:n] {
			c.t.Fatalf("%d bytes after the first %d of %d differ: %v", n, len(want)-len(rest), len(want), err)
		}
		rest = rest[n:]
	}
}

// TestReplies_NotRead checks clients that request much data and read nothing.
// The node keeps little memory for them, does not run their further commands,
// and serves other clients meanwhile. When the clients finally read, they get
// all replies.
func TestReplies_NotRead(t *testing.T) {
	const clients, times, size = 20, 10, 7 << 20
	f := newFake(t)
	s := serve(t, f, patient)
	other := dial(t, s)
	want := large(other, "big", size)
	before, ran := testutil.Heap(), len(f.groups())
	var all []*client
	for i := range clients {
		c := connectSlow(t, s)
		if i%2 == 0 {
			c.send(slices.Repeat([]string{"GET big"}, times)...)
		} else {
			c.send(slices.Concat([]string{"MULTI"}, slices.Repeat([]string{"GET big"}, 5), []string{"EXEC"}, slices.Repeat([]string{"GET big"}, times))...)
		}
		all = append(all, c)
	}
	testutil.Eventually(t, "the groups of all clients to run", func() bool { return len(f.groups()) >= ran+clients })
	for i := range 100 {
		other.expect(fmt.Sprintf("SET k%d v NX", i), "+OK", fmt.Sprintf("GET k%d", i), "$1\nv")
	}
	if n := len(f.groups()) - ran - 200; n > 3*clients {
		t.Errorf("%d pieces were run for %d clients that read nothing, want at most 3 for each", n, clients)
	}
	if after := testutil.Heap(); after > before+16<<20 {
		t.Errorf("%d clients did not read replies of %d MiB each: the heap grew by %d MiB, want at most 16 MiB", clients, times*size>>20, (after-before)>>20)
	}
	all[0].readSlowly(strings.Repeat(want, times))
	all[1].readSlowly("+OK\r\n" + strings.Repeat("+QUEUED\r\n", 5) + "*5\r\n" + strings.Repeat(want, 5+times))
	other.expect("SET big small", "+OK")
	// A reply contains the value at the time of the command.
	all[2].readSlowly(want)
}

// TestReplies_Order checks that large and small replies of all kinds arrive
// whole and in order at a client that reads slowly.
func TestReplies_Order(t *testing.T) {
	s := serve(t, newFake(t), patient)
	c := dial(t, s)
	big, middle := large(c, "big", 3<<20), large(c, "middle", 100_000)
	lines := []string{"GET middle", "GET big", "PING", "GET big", "GET big", "SET k v", "GET middle", "MGET big nokey middle",
		"MULTI", "GET big", "SELECT 0", "GET middle", "EXEC", "GET k", "GETRANGE big 1 2", "MULTI", "GET big", "PING", "SET k w", "EXEC",
		"CLIENT REPLY SKIP", "GET big", "GET k", "LRANGE k 0 1", "GET big", "GETEX big", "GETEX middle"}
	want := middle + big + "+PONG\r\n" + big + big + "+OK\r\n" + middle + "*3\r\n" + big + "$-1\r\n" + middle +
		"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n" + big + "+OK\r\n" + middle + "$1\r\nv\r\n$2\r\n\x00\x00\r\n" +
		"+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*3\r\n" + big + "+PONG\r\n+OK\r\n" +
		"$1\r\nw\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n" + big + big + middle
	for _, proto := range []string{"2", "3"} {
		c := connectSlow(t, s)
		c.do("HELLO " + proto)
		go func() {
			_, _ = io.WriteString(c.conn, encode(append([]string{"SET k v"}, append(lines, "PING")...)...))
		}()
		w := want
		if proto == "3" {
			w = strings.ReplaceAll(w, "$-1\r\n", "_\r\n")
		}
		c.readSlowly("+OK\r\n" + w + "+PONG\r\n")
	}
}

// TestReplies_Tracking checks that a key that changes between the pieces of a
// group is invalidated, although its reply is older or newer than other replies
// of the group.
func TestReplies_Tracking(t *testing.T) {
	f := newFake(t)
	s := serve(t, f, patient)
	other := dial(t, s)
	big := large(other, "big", 7<<20)
	other.expect("SET first 1", "+OK", "SET last 1", "+OK")
	c := connectSlow(t, s)
	c.do("HELLO 3")
	c.expect("CLIENT TRACKING ON", "+OK")
	ran := len(f.groups())
	c.send("GET first", "GET big", "GET last")
	testutil.Eventually(t, "the first piece to run", func() bool { return len(f.groups()) > ran })
	other.expect("SET first 2", "+OK", "SET last 2", "+OK")
	c.readSlowly("$1\r\n1\r\n" + big + "$1\r\n2\r\n")
	for _, key := range []string{"first", "last"} {
		c.want(fmt.Sprintf(">2\n$10\ninvalidate\n*1\n$%d\n%s", len(key), key))
	}
}

// patient raises the write timeout, so that clients have time to begin reading.
func patient(c *resp.Config) { c.Limits.WriteTimeout = 5 * time.Minute }

func limited(n int64) func(*resp.Config) {
	return func(c *resp.Config) {
		patient(c)
		c.Limits.ClientMemory = n
	}
}

// evicted returns how many connections were closed to free memory.
func evicted(c *client) (n int) {
	c.t.Helper()
	_, rest, ok := strings.Cut(c.do("INFO stats"), "evicted_clients:")
	if _, err := fmt.Sscan(rest, &n); err != nil || !ok {
		c.t.Fatal("INFO stats has no number evicted_clients: ", err)
	}
	return n
}

// TestClientMemory_Replies checks that a large reply waits while other
// connections use up the memory for clients, until the server closes a
// connection that makes no progress.
func TestClientMemory_Replies(t *testing.T) {
	f := newFake(t)
	s := serve(t, f, limited(16<<20))
	other := dial(t, s)
	want := large(other, "big", 7<<20)
	var all []*client
	for range 2 {
		c := connectSlow(t, s)
		ran := len(f.groups())
		c.send("GET big")
		testutil.Eventually(t, "the group with GET to run", func() bool { return len(f.groups()) > ran })
		all = append(all, c)
	}
	slow := dial(t, s)
	slow.send("GET big", "PING")
	other.expect("SET k v", "+OK", "GET k", "$1\nv") // small replies do not wait
	slow.readSlowly(want + "+PONG\r\n")
	if n := evicted(other); n != 1 {
		t.Errorf("%d connections were closed, want 1", n)
	}
	closed := 0
	for _, c := range all {
		if err := c.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(io.LimitReader(c.r, int64(len(want)))); err != nil || len(b) < len(want) {
			closed++
		} else if !bytes.Equal(b, []byte(want)) {
			t.Error("the connection that was not closed got other bytes than the reply to GET")
		}
	}
	if closed != 1 {
		t.Errorf("%d of the first two connections were closed, want 1", closed)
	}
	other.expect("CONFIG GET maxmemory-clients", "*2\n$17\nmaxmemory-clients\n$8\n16777216")
}

// TestClientMemory_WritingGroups checks that the replies of a group that writes are
// charged as a whole until the last of them has been sent. The connection tracks
// keys, so its replies are sent one by one, with the invalidations between them.
func TestClientMemory_WritingGroups(t *testing.T) {
	f := newFake(t)
	s := serve(t, f, limited(24<<20))
	other := dial(t, s)
	large(other, "big", 7<<20)
	c := connectSlow(t, s)
	c.send("HELLO 3")
	if _, err := c.reply(); err != nil {
		t.Fatal(err)
	}
	c.expect("CLIENT TRACKING ON", "+OK")
	c.send("GET a")
	c.want("_")
	// The replies have 28 MiB together, more than the limit. Each of them has less.
	c.send(slices.Repeat([]string{"GETEX big EX 1000", "SET a 1"}, 4)...)
	testutil.Eventually(t, "the connection to be closed", func() bool { return evicted(other) == 1 })
	other.expect("SET k v", "+OK", "GET k", "$1\nv")
}

// TestClientMemory_Alone checks that a reply that is larger than the limit is
// sent if nothing else is counted.
func TestClientMemory_Alone(t *testing.T) {
	s := serve(t, newFake(t), limited(1<<20))
	c := dial(t, s)
	want := large(c, "big", 3<<20)
	c.send("GET big", "GET big")
	c.readSlowly(want + want)
	if n := evicted(c); n != 0 {
		t.Errorf("%d connections were closed, want none", n)
	}
}

// TestClientMemory_Input checks that queued transactions and incomplete
// commands count, and that the connection that holds the most memory is closed.
func TestClientMemory_Input(t *testing.T) {
	s := serve(t, newFake(t), limited(2<<20))
	other := dial(t, s)
	value := strings.Repeat("v", 500_000)
	first := dial(t, s)
	first.expect("MULTI", "+OK", "SET a "+value, "+QUEUED", "SET b "+value, "+QUEUED", "SET c "+value, "+QUEUED")
	second := dial(t, s)
	second.expect("MULTI", "+OK", "SET a "+value, "+QUEUED")
	third := dial(t, s)
	if _, err := io.WriteString(third.conn, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$900000\r\n"+value); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, "a connection to be closed", func() bool { return evicted(other) > 0 })
	first.wantEOF()
	second.expect("EXEC", "*1\n+OK")
	if _, err := io.WriteString(third.conn, strings.Repeat("v", 400_000)+"\r\n"); err != nil {
		t.Fatal(err)
	}
	third.want("+OK")
	if n := evicted(other); n != 1 {
		t.Errorf("%d connections were closed, want 1", n)
	}
	third.expect("MULTI", "+OK", "SET a "+value, "+QUEUED", "DISCARD", "+OK")
	testutil.Eventually(t, "all memory of clients to be released", func() bool {
		return strings.Contains(third.do("INFO memory"), "mem_clients_normal:0\r")
	})
}

// TestClientMemory_Messages checks that a message that waits for several
// subscribers counts once toward the memory of all clients. It also checks that
// the server disconnects the subscriber that holds the most memory.
func TestClientMemory_Messages(t *testing.T) {
	s := serve(t, newFake(t), limited(16<<20), func(c *resp.Config) { c.Limits.PushHard, c.Limits.PushSoft = 0, 0 })
	other := dial(t, s)
	readers := make([]*client, 50)
	for i := range readers {
		readers[i] = dial(t, s)
		readers[i].expect("SUBSCRIBE news", "*3\n$9\nsubscribe\n$4\nnews\n:1")
	}
	var silent []*client
	for range 3 {
		c := connectSlow(t, s)
		c.expect("SUBSCRIBE news", "*3\n$9\nsubscribe\n$4\nnews\n:1")
		silent = append(silent, c)
	}
	most := connectSlow(t, s)
	most.expect("SUBSCRIBE news more", "*3\n$9\nsubscribe\n$4\nnews\n:1", "", "*3\n$9\nsubscribe\n$4\nmore\n:2")
	payload := strings.Repeat("v", 1<<20)
	publish := func() {
		other.do("PUBLISH news " + payload)
		for i := range readers {
			if got, err := readers[i].reply(); err != nil || got != "*3\n$7\nmessage\n$4\nnews\n$1048576\n"+payload+"\n" {
				t.Fatalf("reader %d got %d bytes, %v, want the whole message", i, len(got), err)
			}
		}
	}
	for range 8 { // 54 subscribers would hold 432 MiB if each had a copy
		publish()
	}
	if n := evicted(other); n != 0 {
		t.Fatalf("%d connections were closed for 8 MiB of messages, want none", n)
	}
	for range 5000 { // no command is large enough to be charged by itself
		if evicted(other) > 0 {
			break
		}
		other.do("PUBLISH more " + payload[:20_000])
	}
	most.closed()
	for range 100 {
		if evicted(other) > 1 {
			break
		}
		publish()
	}
	testutil.Eventually(t, "the memory of the messages to be released", func() bool {
		_, rest, _ := strings.Cut(other.do("INFO memory"), "mem_clients_normal:")
		var n int
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatal(err)
		}
		return n <= 17<<20
	})
	for i, c := range readers {
		if got := c.do("PING"); got != "*2\n$4\npong\n$0\n\n" {
			t.Errorf("reader %d got %q, want the reply to PING", i, got)
		}
	}
	for _, c := range silent {
		if err := c.conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	testutil.Eventually(t, "all memory of clients to be released", func() bool {
		return strings.Contains(other.do("INFO memory"), "mem_clients_normal:0\r")
	})
}

// closed reads until the server has closed the connection.
func (c *client) closed() {
	c.t.Helper()
	if err := c.conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c.r); errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatal("the server did not close the connection within the time limit")
	}
}

// TestClientMemory_Busy checks that a connection that waits for the result of its
// command is not closed to free memory. A connection that does not read its replies
// is closed, although it holds less.
func TestClientMemory_Busy(t *testing.T) {
	f := newFake(t)
	s := serve(t, f, limited(16<<20))
	other := dial(t, s)
	want := large(other, "big", 7<<20)
	other.expect("CLIENT PAUSE 120000 WRITE", "+OK")
	busy := dial(t, s)
	busy.expect("MULTI", "+OK")
	value := strings.Repeat("v", 500_000)
	for range 15 {
		busy.expect("SET k "+value, "+QUEUED")
	}
	busy.send("EXEC")
	deaf := connectSlow(t, s)
	ran := len(f.groups())
	deaf.send("GET big")
	testutil.Eventually(t, "the group with GET to run", func() bool { return len(f.groups()) > ran })
	waiting := dial(t, s)
	waiting.send("GET big")
	waiting.readSlowly(want)
	other.expect("CLIENT UNPAUSE", "+OK")
	busy.want("*15" + strings.Repeat("\n+OK", 15))
	if n := evicted(other); n != 1 {
		t.Errorf("%d connections were closed, want 1", n)
	}
	testutil.Eventually(t, "all memory of clients to be released", func() bool {
		return strings.Contains(other.do("INFO memory"), "mem_clients_normal:0\r")
	})
}

// TestClientMemory_Paused checks a connection that is closed to free memory while
// it waits for the end of a CLIENT PAUSE. The connection must release its memory at
// once, not only when the pause is over.
func TestClientMemory_Paused(t *testing.T) {
	f := newFake(t)
	s := serve(t, f, limited(8<<20))
	other := dial(t, s)
	id := func(c *client) string { return strings.TrimSpace(strings.TrimPrefix(c.do("CLIENT ID"), ":")) }
	queue := func(c *client, commands int) {
		c.expect("MULTI", "+OK")
		for range commands {
			c.expect("SET k "+strings.Repeat("v", 500_000), "+QUEUED")
		}
	}
	other.expect("CLIENT PAUSE 3600000 WRITE", "+OK")
	paused := dial(t, s)
	is := id(paused)
	queue(paused, 11)
	paused.send("EXEC")
	testutil.Eventually(t, "the transaction to wait", func() bool {
		return strings.Contains(other.do("CLIENT LIST ID "+is), "cmd=exec")
	})
	queue(dial(t, s), 8)
	paused.closed()
	testutil.Eventually(t, "the connection to be gone", func() bool {
		return !strings.Contains(other.do("CLIENT LIST ID "+is), "id="+is)
	})
	if n := evicted(other); n != 1 {
		t.Errorf("%d connections were closed, want 1", n)
	}
	if n := len(f.groups()); n != 0 {
		t.Errorf("%d groups ran during the pause, want none", n)
	}
}

// TestReplies_Hello checks that the reply to EXEC uses the RESP version in
// which EXEC was sent, although the transaction changes the version. This holds
// for large and small replies.
func TestReplies_Hello(t *testing.T) {
	s := serve(t, newFake(t), patient)
	other := dial(t, s)
	small, big := large(other, "small", 10), large(other, "big", 1<<20)
	for _, key := range []string{"small", "big"} {
		value := map[string]string{"small": small, "big": big}[key]
		for _, versions := range []struct{ from, to, before, after string }{{"2", "3", "$-1\r\n", "_\r\n"}, {"3", "2", "_\r\n", "$-1\r\n"}} {
			c := dial(t, s)
			c.do("HELLO " + versions.from)
			c.expect("MULTI", "+OK", "GET nokey", "+QUEUED", "HELLO "+versions.to, "+QUEUED", "GET "+key, "+QUEUED", "GET nokey", "+QUEUED")
			c.send("EXEC", "GET nokey")
			c.readSlowly("*4\r\n" + versions.before)
			hello, err := c.reply()
			if head := hello[:min(len(hello), 1)]; err != nil || head != map[string]string{"2": "*", "3": "%"}[versions.from] {
				t.Errorf("HELLO %s in a transaction that reads the key %s and that began with RESP%s: got %.40q, %v, want a reply in the old version", versions.to, key, versions.from, hello, err)
			}
			c.readSlowly(value + versions.before + versions.after)
		}
	}
}

// TestReplies_LargeBeforeEnd checks a client that ends its own connection with a
// CLIENT KILL in a transaction. The client still gets the whole reply to EXEC, even
// if the reply is large.
func TestReplies_LargeBeforeEnd(t *testing.T) {
	c := dial(t, serve(t, newFake(t)))
	const n = 300_000
	large(c, "k", n)
	c.send("MULTI", "APPEND k x", "GET k", "CLIENT KILL SKIPME no ID "+c.do("CLIENT ID")[1:], "EXEC")
	c.want("+OK", "+QUEUED", "+QUEUED", "+QUEUED",
		fmt.Sprintf("*3\n:%d\n$%d\n%s\n:1", n+1, n+1, strings.Repeat("\x00", n-1)+"xx"))
	c.wantEOF()
}
