package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// joinedListener is the listener of the client port that also accepts connections
// from within the process. They are pipes, so they need neither TLS nor a file
// descriptor.
type joinedListener struct {
	net.Listener

	accepted chan acceptResult
	pipes    chan net.Conn
	closing  chan struct{}
	close    sync.Once
	ended    chan struct{} // closed when accept has returned
}

// acceptResult is a result of Accept of the inner listener.
type acceptResult struct {
	conn net.Conn
	err  error
}

// joinListener returns a listener around ln. Close ends its goroutine.
func joinListener(ln net.Listener) *joinedListener {
	l := &joinedListener{
		Listener: ln, accepted: make(chan acceptResult), pipes: make(chan net.Conn), closing: make(chan struct{}),
		ended: make(chan struct{}),
	}
	go l.accept()
	return l
}

// accept passes on what the inner listener accepts, until it is closed.
func (l *joinedListener) accept() {
	defer close(l.ended)
	for {
		c, err := l.Listener.Accept()
		select {
		case l.accepted <- acceptResult{c, err}:
		case <-l.closing:
			if c != nil {
				c.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept implements net.Listener.
func (l *joinedListener) Accept() (net.Conn, error) {
	select {
	case r := <-l.accepted:
		return r.conn, r.err
	case c := <-l.pipes:
		return c, nil
	case <-l.closing:
		return nil, fmt.Errorf("accept: %w", net.ErrClosed)
	}
}

// Close implements net.Listener. It waits for the goroutine of the listener.
func (l *joinedListener) Close() error {
	l.close.Do(func() { close(l.closing) })
	err := l.Listener.Close()
	<-l.ended
	return err
}

// dial returns a connection to the port from within the process. The port sees
// from as the address of the client.
func (l *joinedListener) dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case l.pipes <- pipeConn{server, l.Addr(), from}:
		return client, nil
	case <-l.closing:
		return nil, fmt.Errorf("the client port is closed: %w", net.ErrClosed)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeConn is the server's end of a pipe, with addresses.
type pipeConn struct {
	net.Conn
	local, remote net.Addr
}

// LocalAddr implements net.Conn.
func (c pipeConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c pipeConn) RemoteAddr() net.Addr { return c.remote }
