package rpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

func TestDial_BothSidesLearnThePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		streams := make(chan *rpc.Stream)
		b.Handle(rpc.ServiceRead, handOver(streams))

		ours := dial(t, a, "b:1", rpc.ServiceRead, "b")
		theirs := <-streams

		want := rpc.Hello{Service: rpc.ServiceRead, Proto: rpc.Proto, ClusterID: "c1", NodeID: "a", Instance: "disk-of-a", Boot: 7, To: "b"}
		if got := theirs.Peer(); got != want {
			t.Errorf("acceptor's peer: got %+v, want %+v", got, want)
		}
		want = rpc.Hello{Service: rpc.ServiceRead, Proto: rpc.Proto, ClusterID: "c1", NodeID: "b", Instance: "disk-of-b", Boot: 7, To: "a"}
		if got := ours.Peer(); got != want {
			t.Errorf("dialer's peer: got %+v, want %+v", got, want)
		}
	})
}

func TestDial_Refused(t *testing.T) {
	authorize := func(h rpc.Hello) error {
		if h.NodeID == "stranger" {
			return errors.New("no stranger in here")
		}
		return nil
	}
	for _, test := range []struct {
		name, dialer, to string
		service          rpc.Service
		reason           rpc.Reason
		text             string
	}{
		{"unauthorized", "stranger", "b", rpc.ServiceWrite, rpc.ReasonUnauthorized, "no stranger in here"},
		{"another node", "a", "c", rpc.ServiceWrite, rpc.ReasonWrongNode, `this is node "b", not "c"`},
		{"no handler", "a", "b", rpc.ServiceAdmin, rpc.ReasonNoService, "does not serve admin connections"},
		{"unknown service", "a", "b", 99, rpc.ReasonNoService, "does not serve service-99 connections"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newVirtualNet()
				cfg := network.node("b")
				cfg.Authorize = authorize
				b := listen(t, cfg)
				b.Handle(rpc.ServiceWrite, func(*rpc.Stream) { t.Error("handler ran") })
				a := listen(t, network.node(test.dialer))

				_, err := a.Dial(t.Context(), "b:1", test.service, test.to)

				var refused *rpc.RefusedError
				if !errors.As(err, &refused) {
					t.Fatalf("got %v, want a RefusedError", err)
				}
				if got, want := refused.Reason, test.reason; got != want {
					t.Errorf("reason: got %d, want %d", got, want)
				}
				if !strings.Contains(refused.Text, test.text) {
					t.Errorf("text: got %q, want it to contain %q", refused.Text, test.text)
				}
				if got, want := refused.Addr, "b:1"; got != want {
					t.Errorf("addr: got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestDial_LongRefusalIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		cfg := network.node("b")
		cfg.Authorize = func(rpc.Hello) error { return errors.New("x" + strings.Repeat("é", 5000)) }
		listen(t, cfg)
		a := listen(t, network.node("a"))

		_, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "")

		var refused *rpc.RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("got %v, want a RefusedError", err)
		}
		if got, want := refused.Text, "x"+strings.Repeat("é", 2047); got != want {
			t.Errorf("text: got %d bytes, want %d", len(got), len(want))
		}
	})
}

func TestDial_RaftWithoutLayerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a := listen(t, network.node("a"))
		listen(t, network.node("b"))

		_, err := a.RaftLayer().Dial("b:1", time.Second)

		var refused *rpc.RefusedError
		if !errors.As(err, &refused) || refused.Reason != rpc.ReasonNoService {
			t.Errorf("got %v, want ReasonNoService", err)
		}
		if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceRaft, ""); err == nil {
			t.Error("a framed stream for raft was dialed")
		}
	})
}

func TestDial_HandlerRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a, b := listen(t, network.node("a")), listen(t, network.node("b"))
		b.Handle(rpc.ServiceWrite, echo)
		dial(t, a, "b:1", rpc.ServiceWrite, "")
		b.Handle(rpc.ServiceWrite, nil)

		_, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "")

		var refused *rpc.RefusedError
		if !errors.As(err, &refused) || refused.Reason != rpc.ReasonNoService {
			t.Errorf("got %v, want ReasonNoService", err)
		}
	})
}

func TestDial_VerifyRejectsTheAcceptor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		b := listen(t, network.node("b"))
		b.Handle(rpc.ServiceWrite, echo)
		b.RaftLayer()
		wiped := errors.New("that disk is new")
		cfg := network.node("a")
		cfg.Verify = func(h rpc.Hello) error {
			if h.Instance == "disk-of-b" {
				return wiped
			}
			return nil
		}
		a := listen(t, cfg)

		if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "b"); !errors.Is(err, wiped) {
			t.Errorf("stream: got %v, want %v", err, wiped)
		}
		if _, err := a.RaftLayer().Dial("b:1", time.Second); !errors.Is(err, wiped) {
			t.Errorf("raft: got %v, want %v", err, wiped)
		}
	})
}

// TestDial_ErrWrongNode checks that the dialer detects a wrong node even if
// that node does not refuse the connection: here, a relay has changed To.
func TestDial_ErrWrongNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		calls := 0
		cfg := network.node("b")
		cfg.Self = func() rpc.Hello {
			calls++
			return hello("b")
		}
		b := listen(t, cfg)
		b.Handle(rpc.ServiceWrite, echo)
		a := listen(t, network.node("a"))
		relay := network.listen("relay:1")
		go relayAs(t, relay, network, "b:1", "c", "b")

		_, err := a.Dial(t.Context(), "relay:1", rpc.ServiceWrite, "c")
		if !errors.Is(err, rpc.ErrWrongNode) {
			t.Errorf("got %v, want %v", err, rpc.ErrWrongNode)
		}
		if got, want := calls, 1; got != want {
			t.Errorf("the acceptor called Self %d times, want %d", got, want)
		}
	})
}

// relayAs forwards one connection. The bytes that the dialer sends must end
// with from. relayAs replaces this end with to, which has the same length.
func relayAs(t *testing.T, l net.Listener, network *virtualNet, addr, from, to string) {
	front, err := l.Accept()
	if err != nil {
		t.Errorf("relay: %v", err)
		return
	}
	defer front.Close()
	back, err := network.dial(t.Context(), addr)
	if err != nil {
		t.Errorf("relay: %v", err)
		return
	}
	defer back.Close()
	prelude := make([]byte, 4096)
	n, err := front.Read(prelude)
	if err != nil {
		t.Errorf("relay: %v", err)
		return
	}
	text := string(prelude[:n])
	text = text[:len(text)-len(from)] + to // To is the last field
	if _, err := back.Write([]byte(text)); err != nil {
		t.Errorf("relay: %v", err)
		return
	}
	_, _ = io.Copy(front, back) // ends when either side closes its connection
}

func TestAccept_OtherProgramsAreLoggedAndClosed(t *testing.T) {
	for _, test := range []struct{ greeting, guess string }{
		{"GET / HTTP/1.1\r\n\r\n", "looks like HTTP"},
		{"*1\r\n$4\r\nPING\r\n", "looks like a Redis client"},
		{"PING\r\n", "looks like a Redis client"},
		{"\x16\x03\x01\x02\x00\x01\x00", "looks like TLS"},
		{"\xf7HFx", "no known protocol"},
		{"\x00", "no known protocol"},
	} {
		t.Run(test.guess, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network, book := newVirtualNet(), &testutil.Log{}
				cfg := network.node("b")
				cfg.Logger = newLogger(book)
				listen(t, cfg)
				begin := time.Now()
				for range 10 {
					stranger, err := network.dial(t.Context(), "b:1")
					if err != nil {
						t.Fatal(err)
					}
					if _, err := stranger.Write([]byte(test.greeting)); err != nil && !errors.Is(err, io.ErrClosedPipe) {
						t.Fatalf("greet: %v", err)
					}
					if _, err := stranger.Read(make([]byte, 1)); err != io.EOF {
						t.Errorf("got %v, want %v", err, io.EOF)
					}
					stranger.Close()
				}
				synctest.Wait()

				if got := time.Since(begin); got != 0 {
					t.Errorf("closing took %v, want none", got)
				}
				lines := book.Lines("connection is probably not from a node")
				if got, want := len(lines), 1; got != want {
					t.Fatalf("got %d log lines, want %d", got, want)
				}
				if !strings.Contains(lines[0], test.guess) {
					t.Errorf("got %q, want it to contain %q", lines[0], test.guess)
				}
			})
		})
	}
}

func TestDial_ErrNotPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a := listen(t, network.node("a"))
		web := network.listen("web:1")
		go func() {
			c, err := web.Accept()
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			defer c.Close()
			if _, err := c.Read(make([]byte, 4096)); err != nil {
				t.Errorf("read: %v", err)
			}
			if _, err := c.Write([]byte("HTTP/1.1 400 Bad Request\r\n")); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("write: %v", err)
			}
		}()

		_, err := a.Dial(t.Context(), "web:1", rpc.ServiceWrite, "")
		if !errors.Is(err, rpc.ErrNotPeer) || !strings.Contains(err.Error(), "looks like HTTP") {
			t.Errorf("got %v, want %v that looks like HTTP", err, rpc.ErrNotPeer)
		}
	})
}

// TestAccept_OtherLayout checks that the prelude of a node of a later version
// is read to its end, and that the node is refused with a text.
func TestAccept_OtherLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		listen(t, network.node("b"))
		c, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("\xf7HFP\x02\x00\x05hello")); err != nil {
			t.Fatalf("write: %v", err)
		}
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if got, want := string(answer[:6]), "\xf7HFP\x01"+string(byte(rpc.ReasonLayout)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got, want := string(answer[8:]), "unknown handshake layout 2"; !strings.Contains(got, want) {
			t.Errorf("got %q, want it to contain %q", got, want)
		}
	})
}

func TestAccept_MalformedHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		listen(t, network.node("b"))
		c, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The cluster id claims 127 bytes that are not there.
		if _, err := c.Write([]byte("\xf7HFP\x01\x00\x04\x02\x01\x00\x7f")); err != nil {
			t.Fatalf("write: %v", err)
		}
		answer, err := io.ReadAll(c)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if got, want := rpc.Reason(answer[5]), rpc.ReasonMalformed; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}

func TestAccept_SilentClientBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, book := newVirtualNet(), &testutil.Log{}
		cfg := network.node("b")
		cfg.Logger = newLogger(book)
		b := listen(t, cfg)
		b.Handle(rpc.ServiceWrite, echo)
		a := listen(t, network.node("a"))

		silent, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		slow, err := network.dial(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		begin := time.Now()
		for i := range len("\xf7HFP\x01\x00\x40") {
			if _, err := slow.Write([]byte("\xf7HFP\x01\x00\x40"[i : i+1])); err != nil {
				t.Fatalf("drip: %v", err)
			}
			time.Sleep(time.Millisecond)
		}

		stream := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		mustSend(t, stream, 1, "ping")
		if _, got := mustRecv(t, stream); got != "ping" {
			t.Errorf("got %q, want %q", got, "ping")
		}

		for _, c := range []net.Conn{silent, slow} {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("got %v, want %v", err, io.EOF)
			}
		}
		if got, want := time.Since(begin), 5*time.Second; got != want {
			t.Errorf("handshakes ended after %v, want %v", got, want)
		}
	})
}

func TestDial_Timeouts(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit time.Duration // time limit of the dialer's context; 0: none
		want  error
		after time.Duration
	}{
		{"handshake", 0, rpc.ErrHandshakeTimeout, 5 * time.Second},
		{"context", 2 * time.Second, context.DeadlineExceeded, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newVirtualNet()
				a := listen(t, network.node("a"))
				hole := network.listen("hole:1")
				go func() { // accepts the connection and the prelude, and never answers
					c, err := hole.Accept()
					if err != nil {
						t.Errorf("accept: %v", err)
						return
					}
					_, _ = io.Copy(io.Discard, c)
				}()
				ctx := t.Context()
				if test.limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.limit)
					defer cancel()
				}
				begin := time.Now()

				_, err := a.Dial(ctx, "hole:1", rpc.ServiceWrite, "")

				if !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				if errors.Is(err, os.ErrDeadlineExceeded) && test.want != context.DeadlineExceeded {
					t.Errorf("got %v: the deadline that the dialer sets is not the reason", err)
				}
				if got, want := time.Since(begin), test.after; got != want {
					t.Errorf("took %v, want %v", got, want)
				}
			})
		})
	}
}

func TestRaftDial_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		a := listen(t, network.node("a"))
		network.listen("hole:1") // accepts no connection
		begin := time.Now()

		_, err := a.RaftLayer().Dial("hole:1", time.Second)

		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if got, want := time.Since(begin), time.Second; got != want {
			t.Errorf("took %v, want %v", got, want)
		}
	})
}

func TestDial_HelloTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newVirtualNet()
		cfg := network.node("a")
		cfg.Self = func() rpc.Hello { return rpc.Hello{NodeID: strings.Repeat("a", 5000)} }
		a := listen(t, cfg)
		b := listen(t, network.node("b"))
		b.Handle(rpc.ServiceWrite, echo)

		if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, ""); !errors.Is(err, rpc.ErrBadHello) {
			t.Errorf("got %v, want %v", err, rpc.ErrBadHello)
		}
	})
}
