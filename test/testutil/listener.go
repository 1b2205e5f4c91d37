package testutil

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// Listener is a port in memory. Its Accept returns the connections that callers
// pass to Deliver.
type Listener struct {
	addr      net.Addr
	conns     chan net.Conn
	done      chan struct{}
	closeOnce sync.Once
}

// NewListener opens a port. addr is the address that Addr returns.
func NewListener(addr net.Addr) *Listener {
	return &Listener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.addr }

// Deliver waits until Accept returns the connection. If the port is closed, the
// error is ECONNREFUSED.
func (l *Listener) Deliver(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.done:
		return fmt.Errorf("connect to %s: %w", l.addr, syscall.ECONNREFUSED)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Dial connects to the port over a net.Pipe.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	if err := l.Deliver(ctx, far); err != nil {
		return nil, err
	}
	return near, nil
}

// Addr is the address of a port in memory.
type Addr string

// Network implements net.Addr.
func (Addr) Network() string { return "memory" }

func (a Addr) String() string { return string(a) }

// Host returns the host of an address, or the whole address if it has no port.
func Host(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
