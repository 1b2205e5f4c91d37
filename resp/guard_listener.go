package resp

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// guardTooManyClients is the exact line that go-redis and redis-py look for.
const guardTooManyClients = "-ERR max number of clients reached\r\n"

const (
	guardKeepAlive    = 60 * time.Second
	guardRefusals     = 64                     // farewells under way at once
	guardRefusalTime  = 500 * time.Millisecond // longest farewell
	guardAcceptPause  = 5 * time.Millisecond
	guardAcceptPauses = time.Second // longest pause
)

// A GuardListener is a net.Listener whose connections are Guards. It holds the
// number of open connections within MaxClients and MaxUnauth, and it never hands
// redcon an Accept error other than that it was closed, because redcon would call
// Accept again at once and spin (out of file descriptors, for example).
type GuardListener struct {
	net.Listener
	limits Limits
	hooks  GuardHooks

	open   atomic.Int64
	unauth unauthConns

	mu        sync.Mutex // guards closed and closeErr, and starting farewells against Close
	closed    bool
	closeErr  error
	closing   chan struct{} // closed by Close
	refusals  chan struct{} // one token for each farewell under way
	farewells sync.WaitGroup
}

// NewGuardListener returns a GuardListener around ln. For TLS, ln is the
// tls.Listener, so that limits apply to what was decrypted and the handshake runs
// on the connection's own goroutine. l must be valid.
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

// Unauthenticated returns how many of the open connections have not authenticated.
func (l *GuardListener) Unauthenticated() int { return l.unauth.len() }

// Accept returns the next connection within the limits, as a *Guard. Its error
// is always net.ErrClosed: after any other it pauses, reports it and tries again.
func (l *GuardListener) Accept() (net.Conn, error) {
	pause := time.Duration(0)
	for {
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			pause = min(max(2*pause, guardAcceptPause), guardAcceptPauses)
			l.acceptError(fmt.Errorf("accept client: %w", err), pause)
			if !l.sleep(pause) {
				return nil, fmt.Errorf("accept client: %w", net.ErrClosed)
			}
			continue
		}
		pause = 0
		if g := l.admit(c); g != nil {
			return g, nil
		}
	}
}

// Close stops Accept. It waits for the farewells to refused connections, at most
// half a second, and leaves accepted connections alone.
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

// admit counts c in and returns its Guard, or refuses it and returns nil.
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
	g := newGuard(c, &l.limits, &l.hooks, l)
	if evicted := l.unauth.add(g, &l.limits); evicted != nil {
		l.evict(evicted)
	}
	return g
}

// evict closes a connection that has not authenticated, so that another one gets
// its place.
func (l *GuardListener) evict(g *Guard) {
	if l.hooks.Refused != nil {
		l.hooks.Refused(g.RemoteAddr(), true)
	}
	if err := g.Close(); err != nil {
		l.acceptError(fmt.Errorf("close client that has not logged in: %w", err), 0)
	}
}

// refuse tells c why on a goroutine of its own, since a peer may be slow to take
// it (and must first shake hands, with TLS). In a flood of connections that are
// refused, those beyond guardRefusals are closed without a word.
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
		l.acceptError(fmt.Errorf("refuse client: %w", err), 0)
		return
	}
	if _, err := c.Write([]byte(guardTooManyClients)); err != nil {
		return // the peer went away first, or does not read: nobody to tell
	}
	guardLinger(c, make([]byte, 512), until)
}

func (l *GuardListener) closeRefused(c net.Conn) {
	if err := c.Close(); err != nil {
		l.acceptError(fmt.Errorf("close refused client: %w", err), 0)
	}
}

func (l *GuardListener) acceptError(err error, pause time.Duration) {
	if l.hooks.AcceptError != nil {
		l.hooks.AcceptError(err, pause)
	}
}

// sleep waits for d and returns true, or false when the listener is closed.
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

// guardSetKeepAlive makes the kernel notice a peer that is gone: after 60 s of
// silence, and a minute of unanswered probes.
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
