package rpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// serve performs the acceptor's half of the handshake. It then passes the
// connection to raft or runs the handler of the service. serve owns the
// connection until raft takes it or the handler returns.
func (m *Mux) serve(c *conn) {
	hello, handler, layer, err := m.welcome(c)
	if err != nil {
		c.drop()
		m.logHandshake(c, hello, err)
		return
	}
	if layer != nil {
		c.peer = hello.NodeID
		err = m.assign(c, func() { c.layer = layer })
		if err == nil {
			err = layer.deliver(c)
		}
		if err != nil {
			c.drop()
			m.logHandshake(c, hello, err)
		}
		return
	}
	stream := newStream(c, hello, &m.cfg)
	if err := m.start(c, stream); err != nil {
		c.drop()
		m.logHandshake(c, hello, err)
		return
	}
	handler(stream)
	if err := stream.drainAndClose(); err != nil {
		m.log.Debug("cannot close stream", "remote", c.RemoteAddr(), "error", err)
	}
}

// welcome is the acceptor's half of the handshake. It returns the dialer's
// hello, and either the handler or the raft layer that the connection is for.
func (m *Mux) welcome(c *conn) (hello Hello, handler func(*Stream), layer *raftLayer, err error) {
	fail := func(err error) (Hello, func(*Stream), *raftLayer, error) { return hello, nil, nil, err }

	if err := c.SetDeadline(time.Now().Add(m.cfg.HandshakeTimeout)); err != nil {
		return fail(fmt.Errorf("set handshake deadline: %w", err))
	}
	var prelude bytes.Buffer
	hello, rest, err := readPrelude(io.TeeReader(c, &prelude))
	if err != nil {
		var unknown layoutError
		switch {
		case errors.As(err, &unknown):
			return fail(m.refuse(c, ReasonLayout, err.Error()))
		case errors.Is(err, ErrBadHello):
			return fail(m.refuse(c, ReasonMalformed, err.Error()))
		case redisClient(err) && m.cfg.ClientHint != "":
			return fail(errors.Join(err, m.hint(c)))
		}
		return fail(err)
	}
	dialogue, key, err := m.challenge(c, hello, prelude.Bytes(), rest)
	if err != nil {
		return fail(err)
	}
	if m.cfg.Authorize != nil {
		if err := m.cfg.Authorize(hello); err != nil {
			reason := ReasonUnauthorized
			if errors.Is(err, ErrNotMember) {
				reason = ReasonNotMember
			}
			return fail(m.refuse(c, reason, err.Error()))
		}
	}
	self := m.self(hello.Service, hello.NodeID)
	if hello.To != "" && hello.To != self.NodeID {
		return fail(m.refuse(c, ReasonWrongNode, fmt.Sprintf("this is node %q, not %q", self.NodeID, hello.To)))
	}
	m.mu.Lock()
	if hello.Service == ServiceRaft {
		layer = m.layer
	} else {
		handler = m.handlers[hello.Service]
	}
	if handler != nil || layer != nil {
		// The connection must be marked before the answer is sent. Once a
		// dialer has read the answer, its connection must not be closed to make
		// room for another connection.
		m.welcomedLocked(c)
	}
	m.mu.Unlock()
	if handler == nil && layer == nil {
		return fail(m.refuse(c, ReasonNoService,
			fmt.Sprintf("node %q does not serve %s connections (yet)", self.NodeID, hello.Service)))
	}

	answer, err := appendAnswer(nil, self)
	if err != nil {
		return fail(fmt.Errorf("own hello: %w", err))
	}
	if _, err := c.Write(answer); err != nil {
		return fail(fmt.Errorf("send answer: %w", err))
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return fail(fmt.Errorf("clear handshake deadline: %w", err))
	}
	if err := m.seal(c, key, prelude.Bytes(), dialogue, answer); err != nil {
		return fail(err)
	}
	return hello, handler, layer, nil
}

// hintTimeout is how long a Redis client may take to read the hint and to close
// its connection.
const hintTimeout = 500 * time.Millisecond

// hint answers a Redis client that has connected to the peer port.
func (m *Mux) hint(c *conn) error {
	if err := c.SetDeadline(time.Now().Add(hintTimeout)); err != nil {
		return err
	}
	// Client libraries send further commands after an error, and report the
	// error of the last command. So send the hint again after each read, up to
	// 16 times in all. If the connection were closed while bytes are unread,
	// TCP would send a reset, and the client might not get the hint.
	buf := make([]byte, 4<<10)
	for range 16 {
		if _, err := io.WriteString(c, "-ERR "+m.cfg.ClientHint+"\r\n"); err != nil {
			return fmt.Errorf("send hint: %w", err)
		}
		_, err := c.Read(buf)
		if errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refusal is the error that welcome returns for a dialer that it has refused.
type refusal struct {
	reason Reason
	text   string
}

func (r *refusal) Error() string { return r.text }

// refuse sends the dialer the reason of a refusal, and returns the refusal as
// an error.
func (m *Mux) refuse(c *conn, reason Reason, text string) error {
	err := &refusal{reason, text}
	if _, sendErr := c.Write(appendRefusal(nil, reason, text)); sendErr != nil {
		return errors.Join(err, fmt.Errorf("send refusal: %w", sendErr))
	}
	return err
}

// logHandshake logs why a handshake failed. All lines except those at debug
// level are throttled: a port scanner, or a node with wrong flags, may retry
// forever.
func (m *Mux) logHandshake(c *conn, hello Hello, err error) {
	var refused *refusal
	switch {
	case errors.As(err, &refused) && refused.reason == ReasonSecret:
		if n, ok := m.secrets.allow(); ok {
			m.log.Error(refused.text, "remote", c.RemoteAddr(), "node", hello.NodeID,
				"service", hello.Service, "suppressed", n)
		}
	case errors.As(err, &refused):
		if n, ok := m.refusals.allow(hello.NodeID, refused); ok {
			m.log.Warn("connection refused", "remote", c.RemoteAddr(), "node", hello.NodeID, "cluster", hello.ClusterID,
				"service", hello.Service, "reason", refused.text, "suppressed", n)
		}
	case errors.Is(err, ErrNotPeer), errors.Is(err, os.ErrDeadlineExceeded):
		if n, ok := m.notPeers.allow(); ok {
			m.log.Warn("connection is probably not from a node", "remote", c.RemoteAddr(), "error", err,
				"suppressed", n)
		}
	case errors.Is(err, ErrBadHello): // this node's hello; a bad hello of the dialer is a refusal
		if n, ok := m.notPeers.allow(); ok {
			m.log.Error("cannot send the hello of this node", "error", err, "suppressed", n)
		}
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, ErrClosed):
		// The client may be a health check that only connects. Or the Mux has
		// closed the connection, either to make room for another connection or
		// because the Mux itself is closed.
		m.log.Debug("handshake ended", "remote", c.RemoteAddr(), "error", err)
	default:
		if n, ok := m.notPeers.allow(); ok {
			m.log.Warn("handshake failed", "remote", c.RemoteAddr(), "error", err, "suppressed", n)
		}
	}
}

// Bounds of the log lines about refused nodes. A node that was removed may keep
// running for weeks, and is refused for the same reason each time. So the pause
// between two log lines with the same node and reason doubles from
// throttlePause to maxRefusalPause. At most maxRefusalKinds pairs of node and
// reason are remembered, because a stranger may claim any name.
const (
	maxRefusalPause = time.Hour
	maxRefusalKinds = 100
)

// refusals limits the log lines about refused nodes.
type refusals struct {
	mu    sync.Mutex
	kinds map[refusalKind]*throttle
}

type refusalKind struct {
	node string
	refusal
}

// allow is like throttle.allow, for log lines about this node and this refusal.
func (r *refusals) allow(node string, why *refusal) (skipped int, ok bool) {
	r.mu.Lock()
	kind := refusalKind{node, *why}
	t := r.kinds[kind]
	if t == nil {
		if r.kinds == nil {
			r.kinds = make(map[refusalKind]*throttle)
		}
		if len(r.kinds) >= maxRefusalKinds {
			r.forget()
		}
		t = &throttle{longest: maxRefusalPause}
		r.kinds[kind] = t
	}
	r.mu.Unlock()
	return t.allow()
}

// forget forgets the kind whose next line is allowed first. Usually, this is a
// kind with a short pause, such as a name that a stranger has just invented,
// and not a removed node whose pause has grown. r.mu must be held.
func (r *refusals) forget() {
	var first refusalKind
	var at time.Time
	found := false
	for kind, t := range r.kinds {
		t.mu.Lock()
		if !found || t.next.Before(at) {
			first, at, found = kind, t.next, true
		}
		t.mu.Unlock()
	}
	delete(r.kinds, first)
}

// throttlePause is the minimum time between two log lines of a kind.
const throttlePause = 5 * time.Second

// throttle limits one kind of log line.
type throttle struct {
	longest time.Duration // if not 0, the pause doubles after each line, up to longest

	mu      sync.Mutex
	next    time.Time // earliest time of the next line
	pause   time.Duration
	skipped int // lines suppressed since the last line
}

// allow reports whether a line may be written now, and how many lines were
// suppressed before it.
func (t *throttle) allow() (skipped int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.next) {
		t.skipped++
		return 0, false
	}
	skipped, t.skipped = t.skipped, 0
	t.pause = max(throttlePause, min(2*t.pause, t.longest))
	t.next = now.Add(t.pause)
	return skipped, true
}
