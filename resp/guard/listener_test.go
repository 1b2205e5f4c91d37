package guard

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/redcon"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// dial opens a connection to the server. It does not wait until the server has
// accepted the connection.
func dial(t *testing.T, s *testServer) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestListenerMaxClients(t *testing.T) {
	l := DefaultLimits()
	l.MaxClients = 3
	s := serveTest(t, l, "", nil)
	var open []net.Conn
	for range 3 {
		c := dial(t, s)
		pingBystander(t, c, "dial")
		open = append(open, c)
	}
	for range 5 {
		refused := dial(t, s)
		if _, err := io.WriteString(refused, pingLine); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(refused); string(got) != "-ERR max number of clients reached\r\n" || err != nil {
			t.Errorf("a connection beyond the limit got %q, %v, want the error for too many clients", got, err)
		}
		refused.Close()
	}
	for _, c := range open {
		pingBystander(t, c, "refusals")
	}
	if got := s.Open(); got != 3 {
		t.Errorf("open: got %d, want 3", got)
	}
	open[0].Close()
	testutil.Eventually(t, "the count of connections to drop", func() bool { return s.Open() == 2 })
	pingBystander(t, dial(t, s), "a connection was closed")
}

func TestListenerMaxUnauth(t *testing.T) {
	l := DefaultLimits()
	l.MaxUnauth = 2
	s := serveTest(t, l, "pw", nil)
	auth := func(c net.Conn) {
		t.Helper()
		got := make([]byte, 5)
		if _, err := io.WriteString(c, authLine); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "+OK\r\n" {
			t.Fatalf("AUTH got %q, %v, want +OK", got, err)
		}
	}
	for range 5 { // each connection makes room when it authenticates
		auth(dial(t, s))
	}
	oldest := dial(t, s)
	testutil.Eventually(t, "the oldest connection to be counted", func() bool { return s.Unauthenticated() == 1 })
	second := dial(t, s)
	testutil.Eventually(t, "the second connection to be counted", func() bool { return s.Unauthenticated() == 2 })
	third := dial(t, s) // replaces the oldest
	if _, err := io.ReadAll(oldest); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading from the oldest connection: %v, want its end", err)
	}
	auth(second)
	auth(third)
	auth(dial(t, s))
	testutil.Eventually(t, "8 open connections, all authenticated", func() bool { return s.Open() == 8 && s.Unauthenticated() == 0 })
}

func TestCloseCountsOnce(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	owner := NewListener(nil, DefaultLimits(), Hooks{})
	g := owner.admit(near)
	if owner.Open() != 1 || owner.Unauthenticated() != 1 {
		t.Fatalf("after admit, %d connections are open and %d unauthenticated, want 1 and 1", owner.Open(), owner.Unauthenticated())
	}
	g.SetAuthenticated(true)
	g.SetAuthenticated(false)
	g.SetAuthenticated(false)
	if owner.Unauthenticated() != 1 {
		t.Errorf("unauthenticated: got %d, want 1", owner.Unauthenticated())
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			g.SetAuthenticated(true)
		})
	}
	all.Wait()
	if owner.Open() != 0 || owner.Unauthenticated() != 0 {
		t.Errorf("after Close, %d connections are open and %d unauthenticated, want none", owner.Open(), owner.Unauthenticated())
	}
}

// A fakeListener returns the values in its queue.
type fakeListener struct {
	accepts chan any // error or net.Conn
	calls   atomic.Int64
	closed  chan struct{}
}

func (l *fakeListener) Accept() (net.Conn, error) {
	l.calls.Add(1)
	select {
	case a := <-l.accepts:
		if err, ok := a.(error); ok {
			return nil, err
		}
		return a.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *fakeListener) Close() error   { close(l.closed); return nil }
func (l *fakeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestListenerBacksOff checks that Accept pauses for increasing times while there
// are no free file descriptors, and continues afterwards.
func TestListenerBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeListener{accepts: make(chan any, 100), closed: make(chan struct{})}
		for range 12 {
			fake.accepts <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		near, far := net.Pipe()
		defer far.Close()
		fake.accepts <- near
		var pauses []time.Duration
		l := NewListener(fake, DefaultLimits(), Hooks{AcceptError: func(err error, pause time.Duration) {
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("the hook AcceptError got %v, want EMFILE", err)
			}
			pauses = append(pauses, pause)
		}})
		began := time.Now()
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		var sum time.Duration
		for _, p := range pauses {
			sum += p
		}
		if got := time.Since(began); got != sum || len(pauses) != 12 || pauses[0] != 5*time.Millisecond || pauses[11] != time.Second {
			t.Errorf("Accept took %v with the pauses %v, want 12 pauses from 5ms to 1s and no other delay", got, pauses)
		}

		// Close ends a pause, and Accept returns.
		fake.accepts <- syscall.EMFILE
		done := make(chan error)
		go func() {
			_, err := l.Accept()
			done <- err
		}()
		synctest.Wait()
		began = time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, net.ErrClosed) || time.Since(began) != 0 {
			t.Errorf("Accept returned %v %v after Close, want net.ErrClosed at once", err, time.Since(began))
		}
		if err := l.Close(); err != nil {
			t.Errorf("the second Close returned %v, want nil", err)
		}
	})
}

// TestListenerRefusalDoesNotStall checks that clients that do not read the
// refusal delay neither the Accept of the next connection nor Close.
func TestListenerRefusalDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeListener{accepts: make(chan any, 1000), closed: make(chan struct{})}
		limits := DefaultLimits()
		limits.MaxClients = 1
		refused := 0
		l := NewListener(fake, limits, Hooks{Refused: func(net.Addr, bool) { refused++ }})
		near, far := net.Pipe()
		defer far.Close()
		fake.accepts <- near
		first, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 3 * maxRefusals {
			near, far := net.Pipe() // a write to near blocks
			defer far.Close()
			fake.accepts <- near
		}
		second := make(chan error)
		go func() {
			_, err := l.Accept()
			second <- err
		}()
		synctest.Wait()
		if got := time.Since(began); refused != 3*maxRefusals || got != 0 {
			t.Errorf("Accept refused %d connections in %v, want %d without a delay", refused, got, 3*maxRefusals)
		}
		first.Close()
		near2, far2 := net.Pipe()
		defer far2.Close()
		fake.accepts <- near2
		if err := <-second; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if got, most := time.Since(began), refusalTime; got > most {
			t.Errorf("Close took %v, want at most %v", got, most)
		}
	})
}

// TestOverTLS checks that the guard checks the decrypted bytes.
func TestOverTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	limits := DefaultLimits()
	limits.MaxClients = 1
	l := NewListener(tls.NewListener(ln, config), limits, Hooks{})
	done := make(chan error, 1)
	go func() {
		done <- redcon.Serve(l, testHandler(""), func(c redcon.Conn) bool {
			c.NetConn().(*Conn).SetAuthenticated(true)
			return true
		}, nil)
	}()
	roots := x509.NewCertPool()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots.AddCert(cert)
	dial := func() *tls.Conn {
		t.Helper()
		c, err := tls.Dial("tcp", ln.Addr().String(), &tls.Config{RootCAs: roots})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	pingBystander(t, c, "dial")
	refused := dial()
	if got, err := io.ReadAll(refused); string(got) != tooManyClients || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	refused.Close()
	if _, err := io.WriteString(c, pingLine+"*1\r\n$9223372036854775807\r\n"+pingLine); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); string(got) != pongLine+protocolError(badBulk) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	c.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
