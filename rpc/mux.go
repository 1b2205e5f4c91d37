package rpc

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Mux owns a node's peer port, and every connection that was accepted on it or
// dialed from it. All methods may be called from any goroutine.
//
// A Mux has one goroutine that accepts connections. Each accepted connection
// has a goroutine that performs the handshake and then runs the handler or
// passes the connection to raft. Each stream has a goroutine that writes. Close
// ends all goroutines and waits for them.
type Mux struct {
	cfg      Config
	log      hclog.Logger
	ring     atomic.Pointer[keyring] // nil without a secret
	listener net.Listener
	addr     address
	ctx      context.Context // ends with the Mux
	cancel   context.CancelFunc
	notPeers throttle // log lines about other programs and failed handshakes
	refusals refusals // log lines about refused nodes
	secrets  throttle // log lines about secrets that do not match
	limited  throttle // log lines about MaxConns
	accepts  throttle // log lines about errors of Accept
	wg       sync.WaitGroup

	// closeOnce guards closeErr, the error of closing the listener.
	closeOnce sync.Once
	closeErr  error

	mu sync.Mutex
	// After Listen, a goroutine of wg is started only under mu and while closed
	// is false. Otherwise Close might miss it.
	closed   bool
	handlers map[Service]func(*Stream)
	layer    *raftLayer // nil until RaftLayer is called, and after the layer's Close
	// conns contains the open connections. The value is the connection's
	// element in handshaking; it is nil after the handshake and for dialed
	// connections.
	conns       map[*conn]*list.Element
	handshaking *list.List // accepted *conn whose handshake is not finished, oldest first
	accepted    int        // number of accepted connections in conns
}

// Listen opens the peer port and starts accepting. Until Handle and RaftLayer
// are called, connections are refused with ReasonNoService.
func Listen(cfg Config) (*Mux, error) {
	cfg.fill()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	ring, err := newKeyring(cfg.Secret, cfg.PreviousSecret, cfg.SecretOptional)
	if err != nil {
		return nil, err
	}
	listener := cfg.Listener
	if listener == nil {
		lc := net.ListenConfig{KeepAliveConfig: KeepAlive}
		var err error
		if listener, err = lc.Listen(context.Background(), "tcp", cfg.BindAddr); err != nil {
			return nil, fmt.Errorf("listen for peers: %w", err)
		}
	}
	addr, err := advertised(cfg.AdvertiseAddr, listener.Addr())
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	m := &Mux{
		cfg:         cfg,
		log:         cfg.Logger,
		listener:    listener,
		addr:        addr,
		handlers:    make(map[Service]func(*Stream)),
		conns:       make(map[*conn]*list.Element),
		handshaking: list.New(),
	}
	m.ring.Store(ring)
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.acceptLoop)
	return m, nil
}

// Addr returns the advertised address. Its String is what other nodes dial,
// possibly a DNS name.
func (m *Mux) Addr() net.Addr { return m.addr }

// BoundAddr returns the address that the port is bound to.
func (m *Mux) BoundAddr() net.Addr { return m.listener.Addr() }

// Handle sets the handler of accepted streams of service s. Each stream has a
// goroutine that runs h. When h returns, the Mux writes the frames that h sent,
// for at most Config.WriteTimeout, and closes the stream. If h is nil, the Mux
// refuses new connections for the service, and existing streams stay open. A
// second handler for a service, or a handler for ServiceRaft, is a mistake in
// the program, and Handle panics.
func (m *Mux) Handle(s Service, h func(*Stream)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == ServiceRaft {
		panic("rpc: raft connections are served by RaftLayer")
	}
	if h == nil {
		delete(m.handlers, s)
		return
	}
	if m.handlers[s] != nil {
		panic("rpc: second handler for service " + s.String())
	}
	m.handlers[s] = h
}

// Close closes the port and all connections, accepted and dialed. It waits
// until all handlers have returned and all goroutines have ended. Streams end
// with ErrClosed. Further calls also wait.
func (m *Mux) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.shut() })
	m.wg.Wait()
	return m.closeErr
}

func (m *Mux) shut() error {
	m.mu.Lock()
	m.closed = true
	if m.layer != nil && !m.layer.isClosedLocked() {
		close(m.layer.closed)
	}
	type open struct {
		conn   *conn
		stream *Stream
	}
	all := make([]open, 0, len(m.conns))
	for c := range m.conns {
		all = append(all, open{c, c.stream})
	}
	m.mu.Unlock()

	m.cancel()
	err := m.listener.Close()
	for _, o := range all {
		if o.stream == nil {
			o.conn.drop()
		} else if err := o.stream.close(ErrClosed); err != nil {
			m.log.Debug("cannot close stream", "remote", o.conn.RemoteAddr(), "error", err)
		}
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close peer port: %w", err)
	}
	return nil
}

// acceptLoop accepts until the listener is closed. It does no I/O on the
// connections that it accepts, so a silent client occupies one goroutine and
// does not block the port.
func (m *Mux) acceptLoop() {
	const shortest, longest = 5 * time.Millisecond, time.Second
	pause := shortest
	for {
		raw, err := m.listener.Accept()
		if err == nil {
			pause = shortest
			m.admit(&conn{sealedConn: sealedConn{Conn: raw}, mux: m, accepted: true})
			continue
		}
		if m.ctx.Err() != nil {
			return
		}
		if errors.Is(err, net.ErrClosed) {
			m.log.Error("peer port closed unexpectedly", "error", err)
			return
		}
		// Usually the process has no free file descriptors (EMFILE): an
		// immediate retry would only use CPU time.
		if n, ok := m.accepts.allow(); ok {
			m.log.Error("accept failed", "error", err, "pause", pause, "suppressed", n)
		}
		select {
		case <-time.After(pause):
		case <-m.ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}

// admit starts the goroutine of an accepted connection. At the limit it first
// tries to close another connection to make room.
func (m *Mux) admit(c *conn) {
	var victim *conn
	m.mu.Lock()
	full := m.accepted >= m.cfg.MaxConns
	if full {
		// Connections without a finished handshake must not block new
		// connections.
		if oldest := m.handshaking.Front(); oldest != nil {
			victim = oldest.Value.(*conn)
			m.forgetLocked(victim)
		}
	}
	admitted := !m.closed && (!full || victim != nil)
	if admitted {
		m.conns[c] = m.handshaking.PushBack(c)
		m.accepted++
		m.wg.Go(func() { m.serve(c) })
	}
	m.mu.Unlock()

	if victim != nil {
		victim.drop()
	}
	if !admitted {
		c.drop()
	}
	if full {
		if n, ok := m.limited.allow(); ok {
			m.log.Warn("peer connection limit reached", "limit", m.cfg.MaxConns, "remote", c.RemoteAddr(),
				"admitted", admitted, "suppressed", n)
		}
	}
}

// track adds a dialed connection to the table.
func (m *Mux) track(c *conn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	m.conns[c] = nil
	return nil
}

// untrack removes a connection from the table. It may be called repeatedly.
func (m *Mux) untrack(c *conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forgetLocked(c)
}

func (m *Mux) forgetLocked(c *conn) {
	element, ok := m.conns[c]
	if !ok {
		return
	}
	delete(m.conns, c)
	if element != nil {
		m.handshaking.Remove(element)
	}
	if c.accepted {
		m.accepted--
	}
}

// welcomedLocked removes a connection from the list of the connections that may
// be closed to make room.
func (m *Mux) welcomedLocked(c *conn) {
	if element := m.conns[c]; element != nil {
		m.handshaking.Remove(element)
		m.conns[c] = nil
	}
}

// assign calls set while it holds the lock; set records the owner of a
// connection after its handshake. assign fails if the connection has been
// closed meanwhile, for example by Close of the Mux or of the raft layer.
func (m *Mux) assign(c *conn, set func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if _, ok := m.conns[c]; !ok {
		return net.ErrClosed
	}
	set()
	if c.layer != nil && c.layer.isClosedLocked() {
		return net.ErrClosed
	}
	return nil
}

// start makes s the stream of a connection and starts its writer.
func (m *Mux) start(c *conn, s *Stream) error {
	return m.assign(c, func() {
		c.stream = s
		m.wg.Go(s.writeLoop)
	})
}
