package rpc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

func TestListen_Addresses(t *testing.T) {
	wildcard := tcpNode("a")
	wildcard.BindAddr = "0.0.0.0:0"
	if _, err := rpc.Listen(wildcard); err == nil || !strings.Contains(err.Error(), "AdvertiseAddr is required") {
		t.Errorf("wildcard: got %v, want an error that asks for AdvertiseAddr", err)
	}
	for _, bad := range []string{"0.0.0.0:7", "[::]:7", ":7", "no-port"} {
		cfg := tcpNode("a")
		cfg.AdvertiseAddr = bad
		if m, err := rpc.Listen(cfg); err == nil {
			t.Errorf("advertise %q: got no error", bad)
			m.Close()
		}
	}

	m := listen(t, tcpNode("a"))
	if got, want := m.Addr().String(), m.BoundAddr().String(); got != want {
		t.Errorf("default: got %q, want %q", got, want)
	}
	cfg := tcpNode("a")
	cfg.AdvertiseAddr = "node-a.example:7001"
	m = listen(t, cfg)
	for _, addr := range []net.Addr{m.Addr(), m.RaftLayer().Addr()} {
		if got, want := addr.Network()+" "+addr.String(), "tcp node-a.example:7001"; got != want {
			t.Errorf("DNS name: got %q, want %q", got, want)
		}
	}
	cfg = tcpNode("a")
	cfg.AdvertiseAddr = "localhost:0"
	m = listen(t, cfg)
	_, port, err := net.SplitHostPort(m.BoundAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Addr().String(), "localhost:"+port; got != want {
		t.Errorf("port 0: got %q, want %q", got, want)
	}
}

func TestListen_RejectsBadConfig(t *testing.T) {
	for name, change := range map[string]func(*rpc.Config){
		"Self":             func(c *rpc.Config) { c.Self = nil },
		"HandshakeTimeout": func(c *rpc.Config) { c.HandshakeTimeout = -1 },
		"WriteTimeout":     func(c *rpc.Config) { c.WriteTimeout = -1 },
		"MaxConns":         func(c *rpc.Config) { c.MaxConns = -1 },
		"MaxFrame":         func(c *rpc.Config) { c.MaxFrame = 2 << 30 },
		"MaxQueue":         func(c *rpc.Config) { c.MaxQueue = -1 },
	} {
		cfg := tcpNode("a")
		change(&cfg)
		if m, err := rpc.Listen(cfg); err == nil {
			t.Errorf("%s: got no error", name)
			m.Close()
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want an error that names the field", name, err)
		}
	}
}

func TestDefaultConfig(t *testing.T) {
	cfg := rpc.DefaultConfig()
	cfg.Self = func() rpc.Hello { return hello("a") }
	m := listen(t, cfg)
	if host, _, _ := net.SplitHostPort(m.Addr().String()); host != "127.0.0.1" {
		t.Errorf("got %q, want the loopback interface", host)
	}
	if got, want := cfg.MaxConns, 512; got != want {
		t.Errorf("MaxConns: got %d, want %d", got, want)
	}
}

func TestHandle_PanicsOnMistakes(t *testing.T) {
	m := listen(t, tcpNode("a"))
	m.Handle(rpc.ServiceWrite, echo)
	for name, s := range map[string]rpc.Service{"raft": rpc.ServiceRaft, "second": rpc.ServiceWrite} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Handle accepted a %s handler, want a panic", name)
				}
			}()
			m.Handle(s, echo)
		}()
	}
}

// TestClose_EndsEverything relies on the synctest bubble to prove that Close
// leaves no goroutine behind: synctest.Test fails if one is left.
func TestClose_EndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		streams := make(chan *rpc.Stream, 1)
		returned := false
		b.Handle(rpc.ServiceWrite, func(s *rpc.Stream) {
			streams <- s
			_, _, err := s.Recv()
			if err != rpc.ErrClosed {
				t.Errorf("handler: got %v, want %v", err, rpc.ErrClosed)
			}
			time.Sleep(time.Second) // Close must wait for this
			returned = true
		})
		raftB := b.RaftLayer()
		ours := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		<-streams
		if _, err := a.RaftLayer().Dial("b:1", time.Second); err != nil {
			t.Fatalf("raft dial: %v", err)
		}
		accepted, err := raftB.Accept()
		if err != nil {
			t.Fatalf("raft accept: %v", err)
		}
		silent, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		synctest.Wait()

		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if !returned {
			t.Error("Close did not wait for the handler")
		}
		if _, err := raftB.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("raft accept: got %v, want %v", err, net.ErrClosed)
		}
		if _, err := b.RaftLayer().Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("raft accept on a layer of a closed mux: got %v, want %v", err, net.ErrClosed)
		}
		if _, err := accepted.Read(make([]byte, 1)); err == nil {
			t.Error("the raft connection is still open")
		}
		if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("silent connection: got %v, want %v", err, io.EOF)
		}
		if _, _, err := ours.Recv(); err != io.EOF {
			t.Errorf("dialer: got %v, want %v", err, io.EOF)
		}
		if _, err := b.Dial(t.Context(), "a:1", rpc.ServiceWrite, ""); !errors.Is(err, rpc.ErrClosed) {
			t.Errorf("dial: got %v, want %v", err, rpc.ErrClosed)
		}
		if err := b.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

func TestClose_EndsDialledStreamsAndDialsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		b.Handle(rpc.ServiceWrite, echo)
		network.listen("hole:1") // accepts no connection
		stream := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		errs := make(chan error, 2)
		go func() {
			_, err := a.Dial(context.Background(), "hole:1", rpc.ServiceWrite, "")
			errs <- err
		}()
		go func() {
			_, _, err := stream.Recv()
			errs <- err
		}()
		synctest.Wait()
		begin := time.Now()
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, rpc.ErrClosed) {
				t.Errorf("got %v, want %v", err, rpc.ErrClosed)
			}
		}
		if got := time.Since(begin); got != 0 {
			t.Errorf("took %v, want no time", got)
		}
	})
}

func TestMaxConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newVirtualNet(), &testutil.Log{}
		cfg := network.node("b")
		cfg.MaxConns, cfg.Logger = 3, newLogger(book)
		b := listen(t, cfg)
		b.Handle(rpc.ServiceWrite, echo)
		a := listen(t, network.node("a"))

		// Silent connections fill the port. They are closed, oldest first, to
		// make room for connections that send data.
		silent := make([]net.Conn, 3)
		for i := range silent {
			c, err := network.dial(t.Context(), "b:1")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			synctest.Wait()
			silent[i] = c
		}
		streams := make([]*rpc.Stream, 3)
		for i := range streams {
			streams[i] = dial(t, a, "b:1", rpc.ServiceWrite, "b")
			if _, err := silent[i].Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("silent connection %d: got %v, want %v", i, err, io.EOF)
			}
		}
		// Now there are three connections that may not be closed.
		if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "b"); err == nil {
			t.Error("a fourth connection was accepted")
		}
		for _, stream := range streams {
			mustSend(t, stream, 1, "x")
			mustRecv(t, stream)
		}
		// A slot that becomes free can be taken.
		if err := streams[0].Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		synctest.Wait()
		dial(t, a, "b:1", rpc.ServiceWrite, "b")
		if got, want := len(book.Lines("peer connection limit reached")), 1; got != want {
			t.Errorf("got %d log lines, want %d", got, want)
		}
	})
}

// exhausted is a listener without file descriptors until a given time.
type exhausted struct {
	*testutil.Listener
	until time.Time
	mu    sync.Mutex
	calls int
}

func (l *exhausted) Accept() (net.Conn, error) {
	if time.Now().Before(l.until) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls++
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAccept_BacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newVirtualNet(), &testutil.Log{}
		cfg := network.node("b")
		l := &exhausted{Listener: network.listen("b:1"), until: time.Now().Add(10 * time.Second)}
		cfg.Listener, cfg.Logger = l, newLogger(book)
		b := listen(t, cfg)
		b.Handle(rpc.ServiceWrite, echo)
		a := listen(t, network.node("a"))
		time.Sleep(10 * time.Second)

		dial(t, a, "b:1", rpc.ServiceWrite, "b")
		// The first eight pauses (5, 10, 20, ... 640 ms) take 1.3 s in all.
		// Each later pause takes 1 s.
		if l.calls < 10 || l.calls > 20 {
			t.Errorf("got %d tries in 10 s, want 10 to 20", l.calls)
		}
		if got, want := len(book.Lines("accept failed")), 2; got != want {
			t.Errorf("got %d log lines in 10 s, want %d", got, want)
		}
	})
}

func TestClose_WhileAcceptBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		cfg := network.node("b")
		cfg.Listener = &exhausted{Listener: network.listen("b:1"), until: time.Now().Add(time.Hour)}
		b := listen(t, cfg)
		time.Sleep(time.Minute)
		begin := time.Now()
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if got := time.Since(begin); got != 0 {
			t.Errorf("took %v, want no time", got)
		}
	})
}

// TestAccept_HealthCheckIsQuiet checks that a load balancer that only connects
// causes no warning.
func TestAccept_HealthCheckIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newVirtualNet(), &testutil.Log{}
		cfg := network.node("b")
		cfg.Logger = newLogger(book)
		listen(t, cfg)
		c, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		synctest.Wait()
		if got := book.Lines("[WARN]"); len(got) > 0 {
			t.Errorf("got %q, want no warning", got)
		}
	})
}

func TestMux_OverTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"peer"},
		IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	conf := &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "peer",
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	secure := tcpNode("b")
	secure.Listener = l
	b := listen(t, secure)
	b.Handle(rpc.ServiceWrite, echo)
	cfg := tcpNode("a")
	dialer := &tls.Dialer{Config: conf}
	cfg.Dialer = func(ctx context.Context, addr string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", addr) }
	a := listen(t, cfg)

	stream := dial(t, a, b.Addr().String(), rpc.ServiceWrite, "b")
	want := strings.Repeat("secret", 1<<19) // 3 MiB: more than one write
	mustSend(t, stream, 1, want)
	if _, got := mustRecv(t, stream); got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}

	plain := listen(t, tcpNode("c"))
	if _, err := plain.Dial(t.Context(), b.Addr().String(), rpc.ServiceWrite, "b"); err == nil {
		t.Error("a dialer without TLS was accepted")
	}
}
