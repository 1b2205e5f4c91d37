package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

func secret(b byte) []byte { return bytes.Repeat([]byte{b}, rpc.MinSecret) }

// twoNodes starts nodes a and b and returns them with their logs. change edits
// their configurations, which by default contain no secret.
func twoNodes(t *testing.T, change func(a, b *rpc.Config)) (a, b *rpc.Mux, logA, logB *testutil.Log) {
	t.Helper()
	network := newVirtualNet()
	cfgA, cfgB := network.node("a"), network.node("b")
	logA, logB = &testutil.Log{}, &testutil.Log{}
	cfgA.Logger, cfgB.Logger = newLogger(logA), newLogger(logB)
	change(&cfgA, &cfgB)
	return listen(t, cfgA), listen(t, cfgB), logA, logB
}

func TestSecret_BothHaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, _, _ := twoNodes(t, func(a, b *rpc.Config) { a.Secret, b.Secret = secret(1), secret(1) })
		b.Handle(rpc.ServiceWrite, echo)
		stream := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		for _, text := range []string{"", "short", strings.Repeat("long", 100_000)} {
			go func() {
				if err := stream.Send(1, []byte(text)); err != nil {
					t.Errorf("send: %v", err)
				}
			}()
			if _, got := mustRecv(t, stream); got != text {
				t.Errorf("%d bytes came back, want %d", len(got), len(text))
			}
		}
		// Raft's connections are checked too.
		layer := b.RaftLayer()
		go func() {
			c, err := layer.Accept()
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			_, _ = io.Copy(c, c) // until the dialer hangs up
		}()
		c, err := a.RaftLayer().Dial("b:1", time.Second)
		if err != nil {
			t.Fatalf("dial raft: %v", err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("vote")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "vote" {
			t.Errorf("raft connection brought %q, %v", got, err)
		}
	})
}

// TestSecret_Differs checks that streams and raft connections between nodes
// with different secrets, or with only one secret, are refused before
// Config.Authorize is called, and that both sides log the reason.
func TestSecret_Differs(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b []byte
		text string // text of the acceptor
	}{
		{"different", secret(1), secret(2), `nodes "a" and "b" have different ones`},
		{"dialer has none", nil, secret(2), `node "a" has none, node "b" has one`},
		{"acceptor has none", secret(1), nil, `node "a" has one, node "b" has none`},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, logA, logB := twoNodes(t, func(a, b *rpc.Config) {
					a.Secret, b.Secret = test.a, test.b
					b.Authorize = func(rpc.Hello) error {
						t.Error("asked to authorize a node without the secret")
						return nil
					}
				})
				b.Handle(rpc.ServiceAdmin, func(*rpc.Stream) { t.Error("handler ran") })
				b.RaftLayer()
				if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceAdmin, "b"); !errors.Is(err, rpc.ErrSecret) {
					t.Errorf("stream: got %v, want %v", err, rpc.ErrSecret)
				}
				if _, err := a.RaftLayer().Dial("b:1", time.Second); !errors.Is(err, rpc.ErrSecret) {
					t.Errorf("raft: got %v, want %v", err, rpc.ErrSecret)
				}
				synctest.Wait()
				if lines := logA.Lines("cluster secret does not match"); len(lines) != 1 || !strings.Contains(lines[0], "remote=b:1") {
					t.Errorf("dialer logged %q, want one line that names b:1", lines)
				}
				if lines := logB.Lines("cluster secret does not match: " + test.text); len(lines) != 1 {
					t.Errorf("acceptor logged %q, want one line with the reason", lines)
				}
			})
		})
	}
}

// TestSecret_OlderAcceptor checks that a dialer whose secret is not optional
// refuses an older acceptor, and that a dialer whose secret is optional connects
// to it. Such an acceptor does not know secrets and welcomes every node.
func TestSecret_OlderAcceptor(t *testing.T) {
	for _, optional := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			network := newVirtualNet()
			cfg := network.node("a")
			cfg.Secret, cfg.SecretOptional = secret(1), optional
			a := listen(t, cfg)
			b := listen(t, network.node("b"))
			b.Handle(rpc.ServiceWrite, echo)
			// This relay drops the bytes that older versions do not read.
			relay := network.listen("old:1")
			go func() {
				front, err := relay.Accept()
				if err != nil {
					t.Errorf("accept: %v", err)
					return
				}
				defer front.Close()
				back, err := network.dial(t.Context(), "b:1")
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				defer back.Close()
				_, prelude, err := rpc.ReadHello(front)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				prelude = prelude[:len(prelude)-51]
				prelude[6] -= 51
				go func() {
					_, _ = back.Write(prelude)
					_, _ = io.Copy(back, front)
				}()
				_, _ = io.Copy(front, back)
			}()
			stream, err := a.Dial(t.Context(), "old:1", rpc.ServiceWrite, "b")
			if !optional {
				if !errors.Is(err, rpc.ErrSecret) {
					t.Errorf("got %v, want %v", err, rpc.ErrSecret)
				}
				return
			}
			if err != nil {
				t.Fatalf("dial with an optional secret: %v", err)
			}
			// The stream carries no data here: the relay changes the prelude, from which
			// both sides derive their records.
			stream.Close()
		})
	}
}

// TestSecret_Optional checks that nodes with and without the secret can connect
// while an operator distributes the secret to one node after the other, and
// that nodes with different secrets still cannot.
func TestSecret_Optional(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b []byte
		ok   bool
	}{
		{"both", secret(1), secret(1), true},
		{"one", secret(1), nil, true},
		{"the other", nil, secret(1), true},
		{"different", secret(1), secret(2), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b, _, _ := twoNodes(t, func(a, b *rpc.Config) {
					a.Secret, b.Secret, a.SecretOptional, b.SecretOptional = test.a, test.b, true, true
				})
				b.Handle(rpc.ServiceWrite, echo)
				stream, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "b")
				if !test.ok {
					if !errors.Is(err, rpc.ErrSecret) {
						t.Errorf("got %v, want %v", err, rpc.ErrSecret)
					}
					return
				}
				if err != nil {
					t.Fatalf("dial: %v", err)
				}
				defer stream.Close()
				mustSend(t, stream, 1, "hello")
				if _, got := mustRecv(t, stream); got != "hello" {
					t.Errorf("got %q, want hello", got)
				}
			})
		})
	}
}

// tamper forwards the bytes of both directions. Before it forwards bytes that
// the dialer sends, it calls change with the offset of these bytes and with the
// bytes, which change may modify.
type tamper struct {
	net.Conn
	change func(at int, b []byte)
	at     int
}

func (c *tamper) Write(p []byte) (int, error) {
	p = bytes.Clone(p)
	c.change(c.at, p)
	c.at += len(p)
	return c.Conn.Write(p)
}

// TestSecret_EveryByteCounts checks that the acceptor receives no frame if one
// bit is flipped in any byte that the dialer sends: in the prelude, the proof
// or the record.
func TestSecret_EveryByteCounts(t *testing.T) {
	const frame = "transfer 100 to alice"
	run := func(at int) (got string, size int, err error) {
		synctest.Test(t, func(t *testing.T) {
			var wire *tamper
			a, b, _, _ := twoNodes(t, func(a, b *rpc.Config) {
				a.Secret, b.Secret = secret(1), secret(1)
				a.HandshakeTimeout, b.HandshakeTimeout = time.Second, time.Second
				inner := a.Dialer
				a.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
					c, err := inner(ctx, addr)
					if err != nil {
						return nil, err
					}
					wire = &tamper{Conn: c, change: func(begin int, p []byte) {
						if begin <= at && at < begin+len(p) {
							p[at-begin] ^= 1
						}
					}}
					return wire, nil
				}
			})
			received := make(chan string, 1)
			b.Handle(rpc.ServiceWrite, func(s *rpc.Stream) {
				_, payload, err := s.Recv()
				if err == nil {
					received <- string(payload)
				}
			})
			var stream *rpc.Stream
			if stream, err = a.Dial(t.Context(), "b:1", rpc.ServiceWrite, ""); err == nil {
				_ = stream.Send(1, []byte(frame)) // the test checks what the acceptor has received, not this error
				time.Sleep(2 * time.Second)       // advances the clock: b may wait for bytes that never come
				stream.Close()
			}
			synctest.Wait()
			select {
			case got = <-received:
			default:
			}
			size = wire.at
		})
		return got, size, err
	}
	got, size, err := run(-1)
	if got != frame || err != nil {
		t.Fatalf("without a change, the acceptor received %q, %v, want the frame", got, err)
	}
	for at := range size {
		if got, _, _ := run(at); got != "" {
			t.Errorf("byte %d of %d was changed, and the acceptor still received %q", at, size, got)
		}
	}
}

func TestListen_ShortSecret(t *testing.T) {
	cfg := tcpNode("a")
	cfg.Secret = secret(1)[1:]
	if _, err := rpc.Listen(cfg); err == nil || !strings.Contains(err.Error(), "31 bytes, fewer than 32") {
		t.Errorf("got %v, want an error about a secret of 31 bytes", err)
	}
}

// TestSecret_Replaced checks that two nodes can connect after each step in
// which an operator replaces their secret. The operator makes two rounds over
// the nodes. In the first round, each node gets the new secret and keeps the
// previous one. In the second round, each node loses the previous secret, and
// its connections that were authenticated with the previous secret end.
func TestSecret_Replaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, logA, logB := twoNodes(t, func(a, b *rpc.Config) { a.Secret, b.Secret = secret(1), secret(1) })
		a.Handle(rpc.ServiceWrite, echo)
		b.Handle(rpc.ServiceWrite, echo)
		talk := func(s *rpc.Stream) {
			t.Helper()
			mustSend(t, s, 1, "hello")
			if _, got := mustRecv(t, s); got != "hello" {
				t.Errorf("got %q, want hello", got)
			}
		}
		first := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		talk(first)
		for _, node := range []*rpc.Mux{a, b} {
			if err := node.SetSecrets(secret(2), secret(1)); err != nil {
				t.Fatal(err)
			}
			talk(dial(t, a, "b:1", rpc.ServiceWrite, "b"))
			talk(dial(t, b, "a:1", rpc.ServiceWrite, "a"))
			talk(first)
		}
		second := dial(t, a, "b:1", rpc.ServiceWrite, "b")
		for _, node := range []*rpc.Mux{b, a} {
			if err := node.SetSecrets(secret(2), nil); err != nil {
				t.Fatal(err)
			}
			talk(dial(t, a, "b:1", rpc.ServiceWrite, "b"))
			talk(dial(t, b, "a:1", rpc.ServiceWrite, "a"))
			if _, _, err := first.Recv(); err == nil {
				t.Error("a connection of the previous secret continues")
			}
			talk(second)
		}
		for _, log := range []*testutil.Log{logA, logB} {
			if lines := log.Lines("cluster secret does not match"); len(lines) > 0 {
				t.Errorf("logged %q, want no line about secrets", lines)
			}
		}
		if err := a.SetSecrets(secret(3)[1:], nil); err == nil || !strings.Contains(err.Error(), "31 bytes, fewer than 32") {
			t.Errorf("a short secret: %v, want an error about its 31 bytes", err)
		}
		if err := a.SetSecrets(nil, nil); err == nil {
			t.Error("SetSecrets has removed the last secret, want an error")
		}
		if err := a.SetSecrets(secret(3), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Dial(t.Context(), "b:1", rpc.ServiceWrite, "b"); !errors.Is(err, rpc.ErrSecret) {
			t.Errorf("dial with a third secret: %v, want ErrSecret", err)
		}
	})
}
