package rpc

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"
)

// raftLayer provides raft.NetworkTransport with connections over the peer port.
type raftLayer struct {
	mux    *Mux
	conns  chan *conn    // from the handshake goroutines to Accept
	closed chan struct{} // closed by Close, under mux.mu
}

var _ raft.StreamLayer = (*raftLayer)(nil)

// RaftLayer returns the layer for raft.NetworkTransport. Raft connections are
// accepted until the layer is closed. The transport calls the layer's Close,
// which refuses further connections and closes the layer's connections, dialed
// and accepted, so that the transport's readers end. The Mux stays open. After
// Close, the next call of RaftLayer returns a new layer.
func (m *Mux) RaftLayer() raft.StreamLayer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.layer == nil {
		m.layer = &raftLayer{mux: m, conns: make(chan *conn), closed: make(chan struct{})}
		if m.closed {
			close(m.layer.closed)
		}
	}
	return m.layer
}

// Accept returns the next connection that another node's raft has opened.
func (l *raftLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept raft connection: %w", net.ErrClosed)
	}
}

// deliver passes an accepted connection to Accept. deliver fails if Accept does
// not take the connection within Config.HandshakeTimeout, because by then the
// dialer may have closed the connection.
func (l *raftLayer) deliver(c *conn) error {
	timer := time.NewTimer(l.mux.cfg.HandshakeTimeout)
	defer timer.Stop()
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return fmt.Errorf("deliver raft connection: %w", net.ErrClosed)
	case <-timer.C:
		return fmt.Errorf("deliver raft connection: not accepted within %v", l.mux.cfg.HandshakeTimeout)
	}
}

// Dial connects to the raft of the node at addr. With a timeout of 0, only
// Config.HandshakeTimeout applies.
func (l *raftLayer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	to := ""
	if l.mux.cfg.RaftPeer != nil {
		to = l.mux.cfg.RaftPeer(string(addr))
	}
	c, _, err := l.mux.dial(ctx, string(addr), ServiceRaft, to)
	if err != nil {
		return nil, err
	}
	if err := l.mux.assign(c, func() { c.layer = l }); err != nil {
		c.drop()
		return nil, dialError(ServiceRaft, string(addr), err)
	}
	return c, nil
}

// Addr returns the advertised address. Raft puts it into every request as the
// address of this node.
func (l *raftLayer) Addr() net.Addr { return l.mux.Addr() }

// Close ends Accept and closes all connections of this layer.
func (l *raftLayer) Close() error {
	m := l.mux
	m.mu.Lock()
	var conns []*conn
	if !l.isClosedLocked() {
		close(l.closed)
		for c := range m.conns {
			if c.layer == l {
				conns = append(conns, c)
			}
		}
	}
	if m.layer == l && !m.closed {
		m.layer = nil
	}
	m.mu.Unlock()
	for _, c := range conns {
		c.drop()
	}
	return nil
}

// isClosedLocked reports whether the layer is closed. The caller holds mux.mu.
func (l *raftLayer) isClosedLocked() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}
