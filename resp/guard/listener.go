package guard

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// tooManyClients is the exact line that go-redis and redis-py recognize.
const tooManyClients = "-ERR max number of clients reached\r\n"

// KeepAlive is how long a connection may be silent before the kernel probes
// whether the client is still there.
const KeepAlive = 60 * time.Second

const (
	maxRefusals    = 64                     // maximum number of error lines that are being sent
	refusalTime    = 500 * time.Millisecond // maximum time for sending one error line
	acceptPause    = 5 * time.Millisecond
	maxAcceptPause = time.Second // maximum pause of Accept after an error
)

// A Listener is a net.Listener whose connections are Conns. It enforces
// MaxClients, MaxUnauth and MaxUnauthAddr. Its Accept returns an error only if the
// listener is closed. If Accept returned other errors too, such as a lack of file
// descriptors, redcon would call it again at once and spin.
type Listener struct {
	net.Listener
	limits Limits
	hooks  Hooks

	open   atomic.Int64
	unauth unauthConns
	early  earlyConns

	mu       sync.Mutex // guards closed and closeErr, and ensures that refusing does not grow after Close
	closed   bool
	closeErr error
	closing  chan struct{} // closed by Close
	refusals chan struct{} // one token for each error line that is being sent
	refusing sync.WaitGroup
}

// NewListener returns a Listener around ln. With TLS, ln must be the
// tls.Listener: then the limits apply to the decrypted bytes, and the handshake
// runs on the connection's goroutine. l must be valid.
func NewListener(ln net.Listener, l Limits, hooks Hooks) *Listener {
	return &Listener{
		Listener: ln,
		limits:   l,
		hooks:    hooks,
		early:    newEarlyConns(),
		closing:  make(chan struct{}),
		refusals: make(chan struct{}, maxRefusals),
	}
}

// Open returns the number of accepted connections that have not been closed.
func (l *Listener) Open() int { return int(l.open.Load()) }

// Unauthenticated returns the number of open connections that have not
// authenticated.
func (l *Listener) Unauthenticated() int { return l.unauth.len() }

// Accept returns the next connection within the limits, as a *Conn. The error that
// Accept returns always wraps net.ErrClosed. If accepting a connection fails for
// another reason, Accept reports that to Hooks.AcceptError, pauses and tries again.
func (l *Listener) Accept() (net.Conn, error) {
	pause := time.Duration(0)
	for {
		l.early.wait(l.closing)
		c, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			pause = min(max(2*pause, acceptPause), maxAcceptPause)
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

// Close stops Accept. It waits until the error lines to refused connections have
// been sent, which takes at most refusalTime. It does not close accepted
// connections.
func (l *Listener) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
		l.closeErr = l.Listener.Close()
	}
	err := l.closeErr
	l.mu.Unlock()
	l.refusing.Wait()
	return err
}

// admit counts c and returns its Conn, or refuses c and returns nil.
func (l *Listener) admit(c net.Conn) *Conn {
	if open := l.open.Add(1); l.limits.MaxClients > 0 && open > int64(l.limits.MaxClients) {
		l.open.Add(-1)
		if l.hooks.Refused != nil {
			l.hooks.Refused(c.RemoteAddr(), false)
		}
		l.refuse(c)
		return nil
	}
	if err := setKeepAlive(c); err != nil {
		l.acceptError(fmt.Errorf("set keepalive: %w", err), 0)
	}
	if err := boundUnsent(c); err != nil {
		l.acceptError(fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err), 0)
	}
	g := newConn(c, &l.limits, &l.hooks, l)
	g.startEarly()
	if evicted := l.unauth.add(g, &l.limits); evicted != nil {
		l.evict(evicted)
	}
	return g
}

// evict closes a connection that has not authenticated, because a newer
// connection takes its place among the unauthenticated connections.
func (l *Listener) evict(g *Conn) {
	if l.hooks.Refused != nil {
		l.hooks.Refused(g.RemoteAddr(), true)
	}
	if err := g.Close(); err != nil {
		l.acceptError(fmt.Errorf("close unauthenticated connection: %w", err), 0)
	}
}

// refuse sends the error line to c on another goroutine, because the client may be
// slow to read it, and with TLS must complete the handshake first. While
// maxRefusals error lines are being sent, refuse closes further connections without
// the line.
func (l *Listener) refuse(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		select {
		case l.refusals <- struct{}{}:
			l.refusing.Go(func() { l.sendRefusal(c) })
			return
		default:
		}
	}
	l.closeRefused(c)
}

// sendRefusal is the goroutine of one refused connection. Close waits for it.
func (l *Listener) sendRefusal(c net.Conn) {
	defer func() { <-l.refusals }()
	defer l.closeRefused(c)
	until := time.Now().Add(refusalTime)
	if err := c.SetDeadline(until); err != nil {
		l.acceptError(fmt.Errorf("set deadline of refused connection: %w", err), 0)
		return
	}
	if _, err := c.Write([]byte(tooManyClients)); err != nil {
		return // the client has disconnected or does not read
	}
	linger(c, make([]byte, 512), until)
}

func (l *Listener) closeRefused(c net.Conn) {
	if err := c.Close(); err != nil {
		l.acceptError(fmt.Errorf("close refused connection: %w", err), 0)
	}
}

func (l *Listener) acceptError(err error, pause time.Duration) {
	if l.hooks.AcceptError != nil {
		l.hooks.AcceptError(err, pause)
	}
}

// sleep waits for d and returns true, or returns false when the listener is
// closed.
func (l *Listener) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.closing:
		return false
	}
}

// maxUnsent bounds the bytes of replies in the kernel that have not been sent
// yet. Otherwise a reply that the client does not read would fill the socket's
// buffer, several MiB by default. Bytes in flight do not count, so the bound
// does not slow down a fast client.
const maxUnsent = 256 << 10

// boundUnsent sets TCP_NOTSENT_LOWAT to maxUnsent.
func boundUnsent(c net.Conn) error {
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
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
	return errors.Join(err, failed)
}

// setKeepAlive makes the kernel detect a dead peer: after 60 seconds of
// silence and one minute of unanswered probes.
func setKeepAlive(c net.Conn) error {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c = t.NetConn()
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	return t.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable:   true,
		Idle:     KeepAlive,
		Interval: 15 * time.Second,
		Count:    4,
	})
}
