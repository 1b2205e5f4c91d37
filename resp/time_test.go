package resp_test

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/resp"
	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// dialIn connects a client to a server in the same synctest bubble.
func dialIn(t testing.TB, l *testutil.Listener) *client {
	t.Helper()
	conn, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, conn)
}

// inBubble runs f with a server in a synctest bubble, which has a fake clock.
func inBubble(t *testing.T, f func(t *testing.T, l *testutil.Listener), change ...func(*resp.Config)) {
	inBubbleWith(t, func(t *testing.T, l *testutil.Listener, _ *resp.Server) { f(t, l) }, change...)
}

// inBubbleWith is like inBubble, for a test that needs the server.
func inBubbleWith(t *testing.T, f func(t *testing.T, l *testutil.Listener, s *resp.Server), change ...func(*resp.Config)) {
	synctest.Test(t, func(t *testing.T) {
		l := testutil.NewListener(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
		limits := guard.DefaultLimits()
		limits.HandshakeTimeout, limits.UnauthIdle, limits.CommandTimeout, limits.WriteTimeout = 0, 0, 0, 0
		s := serve(t, newFake(t), append(change, func(c *resp.Config) { c.Listener, c.Limits = l, limits })...)
		f(t, l, s)
	})
}

// TestAuth_WrongPasswords checks that wrong passwords delay further attempts
// and finally end the connection.
func TestAuth_WrongPasswords(t *testing.T) {
	inBubbleWith(t, func(t *testing.T, l *testutil.Listener, s *resp.Server) {
		const wrong = "-WRONGPASS invalid username-password pair or user is disabled."
		c := dialIn(t, l)
		for i, want := range []time.Duration{0, 100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000} {
			start := time.Now()
			c.expect([]string{"AUTH wrong", "HELLO 3 AUTH default wrong"}[i%2], wrong)
			if got := time.Since(start); got != want*time.Millisecond {
				t.Errorf("wrong password %d was answered after %v, want %v", i+1, got, want*time.Millisecond)
			}
		}
		c.wantEOF()
		if n := metric(t, s, "holdfast_client_refused_total", "reason", "failed_logins"); n != 1 {
			t.Errorf("%v connections were closed because of failed logins, want 1", n)
		}
		// The right password resets the count of wrong passwords.
		c = dialIn(t, l)
		c.expect("AUTH wrong", wrong, "AUTH wrong", wrong, "AUTH right", "+OK")
		start := time.Now()
		c.expect("AUTH wrong", wrong)
		if got := time.Since(start); got != 0 {
			t.Errorf("the first wrong password after a login was answered after %v, want no delay", got)
		}
	}, withPassword("right"))
}

func TestPause(t *testing.T) {
	inBubble(t, func(t *testing.T, l *testutil.Listener) {
		a, b := dialIn(t, l), dialIn(t, l)
		took := func(c *client, line, reply string, want time.Duration) {
			t.Helper()
			start := time.Now()
			c.expect(line, reply)
			if got := time.Since(start); got != want {
				t.Errorf("%s took %v, want %v", line, got, want)
			}
		}
		// ALL delays connection commands and reads too.
		a.expect("CLIENT PAUSE 1000", "+OK")
		took(b, "PING", "+PONG", time.Second)
		took(b, "PING", "+PONG", 0)
		a.expect("CLIENT PAUSE 1000 all", "+OK")
		took(b, "GET a", "$-1", time.Second)
		// WRITE delays only writes, even in transactions.
		a.expect("CLIENT PAUSE 3000 WRITE", "+OK")
		took(b, "GET a", "$-1", 0)
		b.expect("MULTI", "+OK", "GET a", "+QUEUED")
		took(b, "EXEC", "*1\n$-1", 0)
		b.expect("MULTI", "+OK", "SET a 1", "+QUEUED")
		took(b, "EXEC", "*1\n+OK", 3*time.Second)
		// A later pause neither shortens a pause nor lets more commands
		// through.
		a.expect("CLIENT PAUSE 2000 ALL", "+OK")
		c := dialIn(t, l)
		done := make(chan time.Duration)
		go func() {
			start := time.Now()
			c.send("GET a")
			_, _ = c.reply()
			done <- time.Since(start)
		}()
		synctest.Wait()
		d := dialIn(t, l)
		go func() { d.send("CLIENT PAUSE 1 WRITE") }() // the pause delays this command too
		if got := <-done; got != 2*time.Second {
			t.Errorf("GET took %v, want 2s", got)
		}
		if r, err := d.reply(); r != "+OK\n" {
			t.Errorf("CLIENT PAUSE during a pause got %q, %v, want +OK", r, err)
		}
		time.Sleep(time.Second) // the pause ends, by the clock of the bubble
		a.expect("CLIENT PAUSE 5000 WRITE", "+OK", "CLIENT PAUSE 10 WRITE", "+OK")
		took(b, "SET a 2", "+OK", 5*time.Second)
		// UNPAUSE ends the pause, even a pause of ALL.
		a.expect("CLIENT PAUSE 60000 ALL", "+OK")
		go func() {
			start := time.Now()
			c.send("SET a 3")
			_, _ = c.reply()
			done <- time.Since(start)
		}()
		time.Sleep(time.Second)
		took(a, "CLIENT UNPAUSE", "+OK", 0)
		if got := <-done; got != time.Second {
			t.Errorf("SET took %v, want 1s", got)
		}
	})
}

func TestDebugSleep(t *testing.T) {
	inBubble(t, func(t *testing.T, l *testutil.Listener) {
		for line, want := range map[string]time.Duration{
			"DEBUG SLEEP 0.5": 500 * time.Millisecond, "DEBUG SLEEP 1e9": time.Minute, "DEBUG SLEEP nan": 0, "DEBUG SLEEP -1": 0, "DEBUG SLEEP x": 0,
		} {
			c, other := dialIn(t, l), dialIn(t, l)
			start := time.Now()
			c.send(line)
			other.expect("PING", "+PONG")
			if got := time.Since(start); got != 0 {
				t.Errorf("%s delayed another connection for %v, want no delay", line, got)
			}
			c.want("+OK")
			if got := time.Since(start); got != want {
				t.Errorf("%s took %v, want %v", line, got, want)
			}
		}
	})
}
