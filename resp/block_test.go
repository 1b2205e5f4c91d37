package resp_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/resp"
)

// blockedClients returns blocked_clients of INFO.
func blockedClients(c *client) string {
	info := c.do("INFO clients")
	_, rest, _ := strings.Cut(info, "blocked_clients:")
	n, _, _ := strings.Cut(rest, "\r")
	return n
}

// awaitBlocked waits until n clients wait in blocking commands.
func awaitBlocked(t testing.TB, c *client, n string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for blockedClients(c) != n {
		if time.Now().After(deadline) {
			t.Fatalf("%s clients are blocked, want %s", blockedClients(c), n)
		}
	}
}

func TestBlock(t *testing.T) {
	s := serve(t, newFake(t))
	a, b, other := dial(t, s), dial(t, s), dial(t, s)
	a.send("BLPOP q 0")
	awaitBlocked(t, other, "1")
	b.send("HELLO 3")
	if _, err := b.reply(); err != nil {
		t.Fatal(err)
	}
	b.send("BRPOP x q 0")
	awaitBlocked(t, other, "2")
	if list := other.do("CLIENT LIST"); strings.Count(list, " flags=b ") != 2 || !strings.Contains(list, " cmd=brpop ") {
		t.Errorf("CLIENT LIST does not show two blocked clients: %s", list)
	}
	other.expect("RPUSH q 1 2 3", ":3")
	a.want("*2\n$1\nq\n$1\n1")
	b.want("*2\n$1\nq\n$1\n3")
	awaitBlocked(t, other, "0")
	other.expect("LRANGE q 0 -1", "*1\n$1\n2", "BLPOP q 0", "*2\n$1\nq\n$1\n2")
}

// TestBlock_Max checks that Limits.MaxBlocked bounds the connections that wait, and
// that clients that are refused again and again do not count as blocked.
func TestBlock_Max(t *testing.T) {
	s := serve(t, newFake(t), func(c *resp.Config) { c.Limits.MaxBlocked = 1 })
	other := dial(t, s)
	const refusal = "-BUSY too many clients of this node wait in blocking commands, use another node " +
		"(--max-blocked-clients)\n"
	var refused sync.WaitGroup
	done := make(chan struct{})
	first := dial(t, s)
	first.send("BLPOP q 0")
	awaitBlocked(t, other, "1")
	for range 8 {
		c := dial(t, s)
		refused.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				c.send("BLPOP r 0.001")
				if got, err := c.reply(); err != nil || got != refusal {
					t.Errorf("a client beyond the limit got %q, %v", got, err)
					return
				}
			}
		})
	}
	for range 200 {
		if n := blockedClients(other); n != "1" {
			t.Errorf("INFO shows %s blocked clients, want 1", n)
		}
	}
	close(done)
	refused.Wait()
	other.expect("RPUSH q 1", ":1")
	first.want("*2\n$1\nq\n$1\n1")
	awaitBlocked(t, other, "0")
	first.send("BLPOP q 0")
	awaitBlocked(t, other, "1")
	other.expect("RPUSH q 2", ":1")
	first.want("*2\n$1\nq\n$1\n2")
}

// TestBlock_Resume checks a client in XREAD BLOCK whose waiter the cluster has
// dropped. The client receives the stream entries that were added since it
// began to wait.
func TestBlock_Resume(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	a, other := dial(t, s), dial(t, s)
	other.expect("XADD s 1-1 k old", "$3\n1-1")
	a.send("XREAD BLOCK 0 STREAMS s $")
	awaitBlocked(t, other, "1")
	var g fsm.Group
	g.Reset(2, 0)
	for _, line := range []string{fsm.SuspendCommand + " 1 n1 1 end", "XADD s 2-1 k new"} {
		var args [][]byte
		for _, word := range strings.Fields(line) {
			args = append(args, []byte(word))
		}
		g.Command(f.machine.Table().Find(args[0]), 0, args)
	}
	if _, err := (&fakeExecutor{cluster: f}).Do(&g, false, nil); err != nil {
		t.Fatal(err)
	}
	a.want("*1\n*2\n$1\ns\n*1\n*2\n$3\n2-1\n*2\n$1\nk\n$3\nnew")
}

// TestBlock_Pipeline checks that commands before a blocking command are
// answered before it waits. Commands after it are answered later, in order.
func TestBlock_Pipeline(t *testing.T) {
	s := serve(t, newFake(t))
	a, other := dial(t, s), dial(t, s)
	a.send("SET k 1", "GET k", "BLPOP q 0", "INCR k", "BLPOP q 0", "PING", "MULTI", "BLPOP q 0", "EXEC", "GET k")
	a.want("+OK", "$1\n1")
	other.expect("GET k", "$1\n1", "RPUSH q x", ":1")
	a.want("*2\n$1\nq\n$1\nx", ":2")
	awaitBlocked(t, other, "1")
	a.send("SET late 1") // sent while the second BLPOP waits
	a.send("GET late", "ECHO "+strings.Repeat("x", 100_000))
	other.expect("EXISTS late", ":0", "RPUSH q y", ":1")
	a.want("*2\n$1\nq\n$1\ny", "+PONG", "+OK", "+QUEUED", "*1\n*-1", "$1\n2", "+OK", "$1\n1", "$100000\n"+strings.Repeat("x", 100_000))
	a.expect("PING", "+PONG")
}

func TestBlock_Timeout(t *testing.T) {
	s := serve(t, newFake(t))
	c := dial(t, s)
	for _, line := range []string{"BLPOP q 0.1", "BLMOVE q r LEFT LEFT 0.1", "BZMPOP 0.1 2 q r MIN"} {
		start := time.Now()
		c.expect(line, "*-1")
		if d := time.Since(start); d < 100*time.Millisecond {
			t.Errorf("%s took %v, want at least 100ms", line, d)
		}
	}
	c.expect("HELLO 3 FOO", "-ERR Syntax error in HELLO option 'FOO'", "RPUSH q x", ":1", "LLEN q", ":1")
}

// TestBlock_LockTimeout checks that LOCK ACQUIRE returns the same null at the
// end of a wait as without a wait. Other blocking commands return a null array.
func TestBlock_LockTimeout(t *testing.T) {
	s := serve(t, newFake(t))
	a, other := dial(t, s), dial(t, s)
	other.expect("SET k owner", "+OK", "LOCK ACQUIRE k me PX 1000", "$-1", "LOCK ACQUIRE k me PX 1000 WAIT 1", "$-1")
	id := strings.TrimSuffix(strings.TrimPrefix(a.do("CLIENT ID"), ":"), "\n")
	a.send("LOCK ACQUIRE k me PX 1000 WAIT 0")
	awaitBlocked(t, other, "1")
	other.expect("CLIENT UNBLOCK "+id, ":1")
	a.want("$-1")
}

func TestBlock_Unblock(t *testing.T) {
	s := serve(t, newFake(t))
	a, other := dial(t, s), dial(t, s)
	id := strings.TrimSuffix(strings.TrimPrefix(a.do("CLIENT ID"), ":"), "\n")
	other.expect("CLIENT UNBLOCK "+id, ":0")
	for _, c := range []struct{ how, want string }{{"", "*-1"}, {" TIMEOUT", "*-1"}, {" ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK"}} {
		a.send("BLPOP q 0")
		awaitBlocked(t, other, "1")
		other.expect("CLIENT UNBLOCK "+id+c.how, ":1")
		a.want(c.want)
		a.expect("PING", "+PONG")
		other.expect("CLIENT UNBLOCK "+id, ":0", "RPUSH q x", ":1", "DEL q", ":1")
	}
}

// TestBlock_Gone checks that a client that disconnects or is killed receives no
// element.
func TestBlock_Gone(t *testing.T) {
	s := serve(t, newFake(t))
	other := dial(t, s)
	for name, leave := range map[string]func(c *client, id string){
		"closes":           func(c *client, id string) { _ = c.conn.Close() },
		"sends and closes": func(c *client, id string) { c.send("PING", "PING"); _ = c.conn.Close() },
		"sends much and closes": func(c *client, id string) {
			sendMuch(c, 2<<20)
			_ = c.conn.Close()
		},
		"sends much and resets": func(c *client, id string) {
			sendMuch(c, 2<<20)
			_ = c.conn.(*net.TCPConn).SetLinger(0)
			_ = c.conn.Close()
		},
		"sends a large command and closes": func(c *client, id string) {
			c.send("PING", "SET k "+strings.Repeat("v", 900<<10), "SET k "+strings.Repeat("v", 900<<10))
			_ = c.conn.Close()
		},
		"sends too much":     func(c *client, id string) { sendMuch(c, 65<<20) },
		"is killed":          func(c *client, id string) { other.expect("CLIENT KILL ID "+id, ":1") },
		"is killed, sending": func(c *client, id string) { c.send("PING"); other.expect("CLIENT KILL ID "+id, ":1") },
	} {
		c := dial(t, s)
		id := strings.TrimSuffix(strings.TrimPrefix(c.do("CLIENT ID"), ":"), "\n")
		c.send("BLPOP q 0")
		awaitBlocked(t, other, "1")
		leave(c, id)
		awaitBlocked(t, other, "0")
		if got := other.do("RPUSH q x"); got != ":1\n" {
			t.Errorf("client that %s: RPUSH returned %q, want :1", name, got)
		}
		if got := other.do("DEL q"); got != ":1\n" {
			t.Errorf("client that %s: another client's element is gone, want it to stay in the list", name)
		}
	}
}

// sendMuch sends PING commands of size bytes together. It ignores errors, because
// the server may close the connection.
func sendMuch(c *client, size int) {
	ping := encode("PING")
	_, _ = io.WriteString(c.conn, strings.Repeat(ping, size/len(ping)))
}

// TestBlock_Stop checks that a server that stops ends the waits and closes the
// connections.
func TestBlock_Stop(t *testing.T) {
	f := newFake(t)
	s := serve(t, f)
	a, other := dial(t, s), dial(t, s)
	a.send("PING", "BLPOP q 0", "PING")
	awaitBlocked(t, other, "1")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	a.want("+PONG")
	if got, err := a.reply(); err != io.EOF {
		t.Errorf("the client got %q, %v, want the end of the connection", got, err)
	}
	if n := f.machine.Waiting(); n != 0 {
		t.Errorf("%d waiters are left, want 0", n)
	}
}

// TestBlock_Deadlines checks that the deadline for the rest of a command
// (Limits.CommandTimeout) does not apply to a client that waits.
func TestBlock_Deadlines(t *testing.T) {
	s := serve(t, newFake(t), withPassword("secret"), func(c *resp.Config) {
		c.Limits.CommandTimeout = time.Second
		c.Limits.HandshakeTimeout, c.Limits.UnauthIdle = 10*time.Second, 10*time.Second
	})
	a, other := dial(t, s), dial(t, s)
	other.expect("AUTH secret", "+OK")
	a.expect("AUTH secret", "+OK")
	a.send("BLPOP q 1.5")
	awaitBlocked(t, other, "1")
	if _, err := io.WriteString(a.conn, "*1\r\n$4\r\nPI"); err != nil { // half a command
		t.Fatal(err)
	}
	a.want("*-1")
	if _, err := io.WriteString(a.conn, "NG\r\n"); err != nil {
		t.Fatal(err)
	}
	a.want("+PONG")
}

// TestBlock_Revoked checks that a client that waits gets an error when its user
// loses the permission for the command. That client gets no element; the next
// client in the queue gets it. A change that keeps the permission does not end
// the wait.
func TestBlock_Revoked(t *testing.T) {
	s := serve(t, newFake(t))
	admin, second := dial(t, s), dial(t, s)
	const denied = "-NOPERM this user has no permissions to run the 'blpop' command"
	for _, tc := range []struct{ name, before, change, want string }{
		{"command", "on nopass ~* +@all -del", "-blpop", denied},
		{"command of a user without limits", "on nopass ~* &* +@all", "-blpop", denied},
		{"key", "on nopass ~* +@all -del", "resetkeys ~other", "-NOPERM this user has no permissions to access one of the keys used as arguments"},
		{"another command", "on nopass ~* +@all -del", "-get", ""},
		{"another command of a user without limits", "on nopass ~* &* +@all", "-get", ""},
		{"all granted", "on nopass ~* +@all -del", "+@all &*", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			admin.expect("ACL SETUSER bob reset "+tc.before, "+OK")
			first := dial(t, s)
			first.expect("AUTH bob any", "+OK")
			first.send("BLPOP q 0")
			awaitBlocked(t, admin, "1")
			second.send("BLPOP q 0")
			awaitBlocked(t, admin, "2")
			admin.expect("ACL SETUSER bob "+tc.change, "+OK")
			if tc.want != "" {
				first.want(tc.want)
				awaitBlocked(t, admin, "1")
				admin.expect("RPUSH q x", ":1")
				second.want("*2\n$1\nq\n$1\nx")
				if log := admin.do("ACL LOG 1"); !strings.Contains(log, "bob") {
					t.Errorf("ACL LOG does not contain the user bob: %q", log)
				}
				first.expect("PING", "+PONG")
				return
			}
			// The connection waits again now, behind the other client.
			admin.expect("RPUSH q x y", ":2")
			second.want("*2\n$1\nq\n$1\nx")
			first.want("*2\n$1\nq\n$1\ny")
			first.expect("PING", "+PONG")
		})
	}
	admin.expect("ACL SETUSER bob reset on nopass ~* +@all -del", "+OK")
	first := dial(t, s)
	first.expect("AUTH bob any", "+OK")
	first.send("BLPOP q 0")
	awaitBlocked(t, admin, "1")
	admin.expect("ACL DELUSER bob", ":1")
	awaitBlocked(t, admin, "0")
	admin.expect("RPUSH q x", ":1", "LLEN q", ":1")
}

// TestBlock_RevokedWithOldFeatures checks that the node of the client ends the
// wait below FeatureBudget, where the state machine does not end the waits of a
// user whose rules have changed.
func TestBlock_RevokedWithOldFeatures(t *testing.T) {
	s := serve(t, newFakeAt(t, fsm.FeatureBudget-1))
	admin, first, second := dial(t, s), dial(t, s), dial(t, s)
	admin.expect("ACL SETUSER bob on nopass ~* +@all -del", "+OK")
	first.expect("AUTH bob any", "+OK")
	first.send("BLPOP q 0")
	awaitBlocked(t, admin, "1")
	second.send("BLPOP q 0")
	awaitBlocked(t, admin, "2")
	admin.expect("ACL SETUSER bob -blpop", "+OK")
	first.want("-NOPERM this user has no permissions to run the 'blpop' command")
	awaitBlocked(t, admin, "1")
	admin.expect("RPUSH q x", ":1")
	second.want("*2\n$1\nq\n$1\nx")
}
