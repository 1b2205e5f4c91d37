package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// joinedListener is the listener of the client port. It also accepts connections
// from within the process. These are socket pairs and need no TLS.
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

// joinListener returns a joinedListener that accepts the connections of ln. Its
// method Close ends the goroutine that joinListener starts.
func joinListener(ln net.Listener) *joinedListener {
	l := &joinedListener{
		Listener: ln, accepted: make(chan acceptResult), pipes: make(chan net.Conn), closing: make(chan struct{}),
		ended: make(chan struct{}),
	}
	go l.accept()
	return l
}

// accept passes the connections of the inner listener to Accept, until the inner
// listener is closed.
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

// dial returns a connection to the port from within the process. The argument
// from is the address of the client, as the port sees it.
func (l *joinedListener) dial(ctx context.Context, from net.Addr) (net.Conn, error) {
	server, client, err := socketPair()
	if err != nil {
		return nil, err
	}
	select {
	case l.pipes <- pipeConn{server, l.Addr(), from}:
		return client, nil
	case <-l.closing:
		err = fmt.Errorf("the client port is closed: %w", net.ErrClosed)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, server.Close(), client.Close())
}

// socketPair returns the two ends of a connection within the process. The kernel
// buffers the written bytes, so a client may send a whole pipeline before it
// reads the first reply. With net.Pipe, which has no buffer, both ends would
// then wait for each other.
func socketPair() (a, b net.Conn, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the client port within the process: %w", err)
	}
	ends := [2]net.Conn{}
	errs := [2]error{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		ends[i], errs[i] = net.FileConn(f) // duplicates the descriptor
		f.Close()
	}
	if err := errors.Join(errs[:]...); err != nil {
		for _, c := range ends {
			if c != nil {
				c.Close()
			}
		}
		return nil, nil, fmt.Errorf("connect to the client port within the process: %w", err)
	}
	return ends[0], ends[1], nil
}

// pipeConn is the server's end of a socket pair, with addresses.
type pipeConn struct {
	net.Conn
	local, remote net.Addr
}

// OwnNode implements resp.OwnConn.
func (pipeConn) OwnNode() {}

// LocalAddr implements net.Conn.
func (c pipeConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c pipeConn) RemoteAddr() net.Addr { return c.remote }
