package resp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// guardTooManyClients is the exact line that go-redis and redis-py recognize.
const guardTooManyClients = "-ERR max number of clients reached\r\n"

const (
	guardKeepAlive    = 60 * time.Second
	guardRefusals     = 64                     // maximum number of farewells at a time
	guardRefusalTime  = 500 * time.Millisecond // maximum duration of a farewell
	guardAcceptPause  = 5 * time.Millisecond
	guardAcceptPauses = time.Second // maximum pause
)

// A GuardListener is a net.Listener whose connections are Guards. It enforces
// MaxClients and MaxUnauth. Its Accept returns no error except that the
// listener was closed. After any other error, such as a lack of file
// descriptors, redcon would call Accept again at once and spin.
type GuardListener struct {
	net.Listener
	limits Limits
	hooks  GuardHooks

	open   atomic.Int64
	unauth unauthConns

	mu        sync.Mutex // guards closed and closeErr, and orders the start of a farewell and Close
	closed    bool
	closeErr  error
	closing   chan struct{} // closed by Close
	refusals  chan struct{} // one token for each farewell in progress
	farewells sync.WaitGroup
}

// NewGuardListener returns a GuardListener around ln. With TLS, ln must be the
// tls.Listener: then the limits apply to the decrypted bytes, and the handshake
// runs on the connection's goroutine. l must be valid.
func NewGuardListener(ln net.Listener, l Limits, hooks GuardHooks) *GuardListener {
	return &GuardListener{
		Listener: ln,
		limits:   l,
		hooks:    hooks,
		closing:  make(chan struct{}),
		refusals: make(chan struct{}, guardRefusals),
	}
}

// Open returns the number of accepted connections that have not been closed.
func (l *GuardListener) Open() int { return int(l.open.Load()) }

// Unauthenticated returns the number of open connections that have not
// authenticated.
func (l *GuardListener) Unauthenticated() int { return l.unauth.len() }

// Accept returns the next connection within the limits, as a *Guard. Its error
// always wraps net.ErrClosed. After any other error, it reports the error,
// pauses and tries again.
func (l *GuardListener) Accept() (net.Conn, error) {
	pause := time.Duration(0)
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			pause = min(max(2*pause, guardAcceptPause), guardAcceptPauses)
			l.acceptError(fmt.Errorf("accept connection: %w", err), pause)
			if !l.sleep(pause) {
				return nil, fmt.Errorf("accept connection: %w", net.ErrClosed)
			}
			continue
		}
		pause = 0
		if g := l.admit(c); g != nil {
			return g, nil
		}
	}
}

// Close stops Accept. It waits for the farewells to refused connections, which
// take at most guardRefusalTime. It does not close accepted connections.
func (l *GuardListener) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
		l.closeErr = l.Listener.Close()
	}
	err := l.closeErr
	l.mu.Unlock()
	l.farewells.Wait()
	return err
}

// admit counts c and returns its Guard, or refuses c and returns nil.
func (l *GuardListener) admit(c net.Conn) *Guard {
	if open := l.open.Add(1); l.limits.MaxClients > 0 && open > int64(l.limits.MaxClients) {
		l.open.Add(-1)
		if l.hooks.Refused != nil {
			l.hooks.Refused(c.RemoteAddr(), false)
		}
		l.refuse(c)
		return nil
	}
	if err := guardSetKeepAlive(c); err != nil {
		l.acceptError(fmt.Errorf("set keepalive: %w", err), 0)
	}
	if err := guardBoundUnsent(c); err != nil {
		l.acceptError(fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err), 0)
	}
	g := newGuard(c, &l.limits, &l.hooks, l)
	if evicted := l.unauth.add(g, &l.limits); evicted != nil {
		l.evict(evicted)
	}
	return g
}

// evict closes a connection that has not authenticated, because a newer one
// takes its place among the unauthenticated connections.
func (l *GuardListener) evict(g *Guard) {
	if l.hooks.Refused != nil {
		l.hooks.Refused(g.RemoteAddr(), true)
	}
	if err := g.Close(); err != nil {
		l.acceptError(fmt.Errorf("close unauthenticated connection: %w", err), 0)
	}
}

// refuse sends the error line to c on another goroutine, because the client may
// be slow to read it, and with TLS must complete the handshake first. In a
// flood of refused connections, those beyond guardRefusals are closed without
// the line.
func (l *GuardListener) refuse(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		select {
		case l.refusals <- struct{}{}:
			l.farewells.Go(func() { l.farewell(c) })
			return
		default:
		}
	}
	l.closeRefused(c)
}

// farewell is the goroutine of one refused connection. Close waits for it.
func (l *GuardListener) farewell(c net.Conn) {
	defer func() { <-l.refusals }()
	defer l.closeRefused(c)
	until := time.Now().Add(guardRefusalTime)
	if err := c.SetDeadline(until); err != nil {
		l.acceptError(fmt.Errorf("set deadline of refused connection: %w", err), 0)
		return
	}
	if _, err := c.Write([]byte(guardTooManyClients)); err != nil {
		return // the client has disconnected or does not read
	}
	guardLinger(c, make([]byte, 512), until)
}

func (l *GuardListener) closeRefused(c net.Conn) {
	if err := c.Close(); err != nil {
		l.acceptError(fmt.Errorf("close refused connection: %w", err), 0)
	}
}

func (l *GuardListener) acceptError(err error, pause time.Duration) {
	if l.hooks.AcceptError != nil {
		l.hooks.AcceptError(err, pause)
	}
}

// sleep waits for d and returns true, or returns false when the listener is
// closed.
func (l *GuardListener) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closing:
		return false
	}
}

// guardUnsent bounds the bytes of replies in the kernel that have not been sent
// yet. Otherwise a reply that the client does not read would fill the socket's
// buffer, several MiB by default. Bytes in flight do not count, so the bound
// does not slow down a fast client.
const guardUnsent = 256 << 10

// guardBoundUnsent sets TCP_NOTSENT_LOWAT to guardUnsent.
func guardBoundUnsent(c net.Conn) error {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c = t.NetConn()
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, guardUnsent)
	})
	return errors.Join(err, failed)
}

// guardSetKeepAlive makes the kernel detect a dead peer: after 60 seconds of
// silence and one minute of unanswered probes.
func guardSetKeepAlive(c net.Conn) error {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c = t.NetConn()
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	return t.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable:   true,
		Idle:     guardKeepAlive,
		Interval: 15 * time.Second,
		Count:    4,
	})
}
