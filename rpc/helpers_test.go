package rpc_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// virtualNet is a network of net.Pipe connections, for tests inside synctest
// bubbles. It connects nodes in memory, each by its address.
type virtualNet struct {
	mu    sync.Mutex
	ports map[string]*testutil.Listener
}

func newVirtualNet() *virtualNet { return &virtualNet{ports: make(map[string]*testutil.Listener)} }

func (n *virtualNet) listen(addr string) *testutil.Listener {
	l := testutil.NewListener(testutil.Addr(addr))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ports[addr] = l
	return l
}

func (n *virtualNet) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.ports[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("no listener at %s", addr)
	}
	return l.Dial(ctx)
}

// node returns a config for a node with this id on the virtual network. The
// address of the node is "<id>:1".
func (n *virtualNet) node(id string) rpc.Config {
	return rpc.Config{
		Listener: n.listen(id + ":1"),
		Dialer:   n.dial,
		Self:     func() rpc.Hello { return hello(id) },
	}
}

func hello(id string) rpc.Hello {
	return rpc.Hello{ClusterID: "c1", NodeID: id, Instance: "disk-of-" + id, Boot: 7}
}

// tcpNode returns a config for a node with this id on a free loopback port.
func tcpNode(id string) rpc.Config {
	return rpc.Config{BindAddr: "127.0.0.1:0", Self: func() rpc.Hello { return hello(id) }}
}

// listen starts a Mux that is closed at the end of the test.
func listen(t testing.TB, cfg rpc.Config) *rpc.Mux {
	t.Helper()
	m, err := rpc.Listen(cfg)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close mux: %v", err)
		}
	})
	return m
}

// dial opens a stream that is closed at the end of the test.
func dial(t testing.TB, m *rpc.Mux, addr string, s rpc.Service, to string) *rpc.Stream {
	t.Helper()
	stream, err := m.Dial(t.Context(), addr, s, to)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(func() {
		if err := stream.Close(); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return stream
}

// echo sends every frame back.
func echo(s *rpc.Stream) {
	for {
		typ, payload, err := s.Recv()
		if err != nil || s.Send(typ, payload) != nil {
			return
		}
	}
}

// handOver returns a handler that sends each stream on the channel and then
// waits for the stream to end.
func handOver(streams chan<- *rpc.Stream) func(*rpc.Stream) {
	return func(s *rpc.Stream) {
		streams <- s
		<-s.Done()
	}
}

func mustSend(t testing.TB, s *rpc.Stream, typ byte, payload string) {
	t.Helper()
	if err := s.Send(typ, []byte(payload)); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func mustRecv(t testing.TB, s *rpc.Stream) (byte, string) {
	t.Helper()
	typ, payload, err := s.Recv()
	if err != nil {
		t.Fatalf("recv: %v", err)
	}
	return typ, string(payload)
}

// newLogger returns a logger that writes to log.
func newLogger(log *testutil.Log) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "rpc", Output: log, Level: hclog.Debug})
}
