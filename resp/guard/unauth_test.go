package guard

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// TestListenerMaxUnauthAddr checks that connections that do not log in cannot
// keep other connections from the same address from logging in.
func TestListenerMaxUnauthAddr(t *testing.T) {
	l := DefaultLimits()
	l.MaxUnauthAddr = 3
	s := serveTest(t, l, "pw", nil)
	var silent []net.Conn
	for range 10 {
		silent = append(silent, dial(t, s))
	}
	testutil.Eventually(t, "3 open unauthenticated connections", func() bool { return s.Unauthenticated() == 3 && s.Open() == 3 })
	for i, c := range silent[:7] {
		if _, err := io.ReadAll(c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("connection %d: got the error %v, want the end of the connection", i, err)
		}
	}
	for range 5 {
		c := dial(t, s)
		got := make([]byte, 5)
		if _, err := io.WriteString(c, authLine); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "+OK\r\n" {
			t.Fatalf("the login got %q, %v, want +OK", got, err)
		}
	}
}

// TestUnauthConns_Most checks that a connection beyond the limit replaces a
// connection of the address that has the most connections.
func TestUnauthConns_Most(t *testing.T) {
	l := Limits{MaxUnauth: 5}
	var u unauthConns
	guard := func(addr string) *Conn { return &Conn{unauthState: unauthState{unauthAddr: addr}} }
	first := guard("a")
	for _, g := range []*Conn{first, guard("a"), guard("a"), guard("b"), guard("b")} {
		if u.add(g, &l) != nil {
			t.Fatal("add evicted a connection below the limit, want none evicted")
		}
	}
	if got := u.add(guard("c"), &l); got != first {
		t.Errorf("evicted %v, want the oldest of a", got)
	}
	u.remove(first) // first was evicted before
	if u.len() != 5 {
		t.Errorf("%d connections are left, want 5", u.len())
	}
}

// TestUnauthRate checks that the rate of the input before a login is limited. Empty
// lines count too.
func TestUnauthRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DefaultLimits()
		limits.HandshakeTimeout, limits.UnauthTotal = 0, 0
		p := testutil.NewListener(testutil.Addr("client"))
		l := NewListener(p, limits, Hooks{})
		near, far := net.Pipe()
		go func() { _ = p.Deliver(t.Context(), far) }() // if this fails, Accept fails
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			buf := make([]byte, 4096)
			for {
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		}()
		begun := time.Now()
		lines := bytes.Repeat([]byte("\r\n"), 4096)
		for sent := 0; sent < 8<<20; sent += len(lines) {
			if _, err := near.Write(lines); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 7*time.Second || took > 10*time.Second {
			t.Errorf("8 MiB of empty lines were read in %v, want about 8 s", took)
		}
		if err := errors.Join(near.Close(), l.Close()); err != nil {
			t.Fatal(err)
		}
		<-read
	})
}

// TestUnauthConns_Debt checks that input beyond the rate delays reads for at most a
// second, and does not delay other connections after that.
func TestUnauthConns_Debt(t *testing.T) {
	var u unauthConns
	const rate = 1 << 20
	now := time.Now()
	for range 1000 {
		if wait := u.charge(rate, rate, now); wait > unauthPause {
			t.Fatalf("a read must wait %v, want at most %v", wait, unauthPause)
		}
	}
	if wait := u.charge(1, rate, now.Add(2*unauthPause)); wait > unauthPause/100 {
		t.Errorf("another connection must wait %v after a pause in the input, want no wait", wait)
	}
}
