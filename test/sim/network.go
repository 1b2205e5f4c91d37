package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// network connects the nodes of one history. A connection is two byte queues in
// memory, one per direction. Like TCP, a connection does not lose, duplicate or
// reorder bytes. A link only delays bytes, or keeps them for as long as the
// link is cut. The network uses the virtual time of the bubble.
//
// One mutex guards everything. A goroutine that holds the mutex must not wait
// for anything else, because the bubble's time stands still while a goroutine
// waits for a mutex.
type network struct {
	mu    sync.Mutex
	rng   *rand.Rand
	hosts map[string]*listener // by host; the network refuses dials to other hosts
	links map[direction]*link
	conns map[*conn]bool // both ends of each connection
	tapes []*tape
	seen  effects
}

// effects counts the effects of the network on connections. A fault without an
// effect does not count as seen.
type effects struct {
	held      int64 // writes to a link that was cut
	unreached int64 // dials over a link that was cut
	refused   int64 // dials to a closed port
	late      int64 // writes that a slow link delayed
	broken    int64 // ends of connections, two each, that a crash, a reset or a restart broke
	replayed  int64 // old requests that were sent to their receiver again
}

// direction names one direction of a link by its two hosts.
type direction struct{ from, to string }

// link is the state of one direction. The zero value is a healthy link.
type link struct {
	cuts int           // number of faults that cut the link; bytes pass if it is 0
	slow time.Duration // added to each delivery, plus a random delay of up to the same length
}

const (
	latency = 150 * time.Microsecond // delay of one direction, plus a random delay of up to the same length
	// retransmit bounds a random delay. When a cut ends, the bytes that the link
	// has kept arrive after latency plus this delay.
	retransmit = 200 * time.Millisecond
)

func newNetwork(rng *rand.Rand) *network {
	return &network{rng: rng, hosts: make(map[string]*listener), links: make(map[direction]*link),
		conns: make(map[*conn]bool)}
}

func (n *network) link(d direction) *link {
	l := n.links[d]
	if l == nil {
		l = &link{}
		n.links[d] = l
	}
	return l
}

// cut cuts directions until the returned function is called.
func (n *network) cut(ds []direction) (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range ds {
		n.link(d).cuts++
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, d := range ds {
			n.mend(d)
		}
	}
}

func (n *network) mend(d direction) {
	l := n.link(d)
	if l.cuts--; l.cuts > 0 {
		return
	}
	for c := range n.conns {
		if c.out.dir == d {
			c.out.release(n.rng)
		}
	}
}

// slow sets the delay that is added to one direction; 0 means none.
func (n *network) slow(d direction, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link(d).slow = by
}

// effects returns the counts so far.
func (n *network) effects() effects {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// reset breaks the connections between nodes a and b, or all connections of a
// if b is "".
func (n *network) reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		d := c.out.dir
		if d.from == a && (b == "" || d.to == b) || d.to == a && (b == "" || d.from == b) {
			c.breakOff(syscall.ECONNRESET)
		}
	}
}

// unplug disconnects a node from the others. If resets is true, the node
// behaves like a killed process: its port refuses connections from now on, and
// its connections are reset. Otherwise the node behaves like a machine without
// power, which answers nothing until the node listens again.
func (n *network) unplug(id string, resets bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.hosts[id]
	if l != nil {
		l.closed = true
		l.changed.Broadcast()
		delete(n.hosts, id)
	}
	if !resets {
		n.hosts[id] = &listener{n: n, id: id, dark: true}
	}
	for c := range n.conns {
		switch {
		case c.out.dir.from == id: // this end belongs to the dead process
			c.breakOff(net.ErrClosed)
		case c.out.dir.to == id && resets && n.link(c.in.dir).cuts == 0:
			c.breakOff(syscall.ECONNRESET)
		case c.out.dir.to == id: // the peer gets no reset; its connection breaks when the host is back
			c.in.lost, c.out.lost = true, true
		}
	}
}

// listen connects a node to the network and opens its port. The remaining
// connections of the node's former process break.
func (n *network) listen(id string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.out.dir.to == id || c.out.dir.from == id {
			c.breakOff(syscall.ECONNRESET)
		}
	}
	l := &listener{n: n, id: id}
	l.changed.L = &n.mu
	n.hosts[id] = l
	return l
}

// listener is a node's port.
type listener struct {
	n       *network
	id      string
	dark    bool // true for a host without power, which does not even refuse connections
	closed  bool
	pending []net.Conn // connections that Accept has not returned yet
	changed sync.Cond
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for !l.closed && len(l.pending) == 0 {
		l.changed.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	c := l.pending[0]
	l.pending = l.pending[1:]
	return c, nil
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.closed = true
	if l.n.hosts[l.id] == l {
		delete(l.n.hosts, l.id)
	}
	l.changed.Broadcast()
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return testutil.Addr(address(l.id)) }

func address(id string) string { return id + ":7000" }

// dialPoll is the interval at which a dial over a cut link tries again.
const dialPoll = 50 * time.Millisecond

// dialer returns the dial function of one start of a node. The dial function
// blocks while the function alive returns false.
func (n *network) dialer(from string, alive func() bool) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to := testutil.Host(addr)
		met := false
		for {
			n.mu.Lock()
			l := n.hosts[to]
			// A handshake needs both directions. A node can always
			// reach itself.
			blocked := from != to && (n.link(direction{from, to}).cuts > 0 || n.link(direction{to, from}).cuts > 0) ||
				l != nil && l.dark || !alive()
			wait := 2 * (latency + n.link(direction{from, to}).slow)
			if blocked {
				wait = dialPoll
				if !met {
					n.seen.unreached++
				}
				met = true
			}
			n.mu.Unlock()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(wait):
			}
			if blocked {
				continue
			}
			n.mu.Lock()
			l = n.hosts[to]
			if l == nil || l.closed {
				n.seen.refused++
				n.mu.Unlock()
				return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
			}
			if l.dark || !alive() {
				n.mu.Unlock()
				continue
			}
			near, far := n.pair(from, to)
			near.out.tape = n.newTape(from, to)
			l.pending = append(l.pending, far)
			l.changed.Broadcast()
			n.mu.Unlock()
			return near, nil
		}
	}
}

// pair makes a connection and returns its two ends. The caller must hold n.mu.
func (n *network) pair(from, to string) (near, far *conn) {
	there, back := newHalf(n, direction{from, to}), newHalf(n, direction{to, from})
	near = &conn{n: n, in: back, out: there}
	far = &conn{n: n, in: there, out: back}
	near.peer, far.peer = far, near
	n.conns[near], n.conns[far] = true, true
	return near, far
}

// half is one direction of a connection.
type half struct {
	n       *network
	dir     direction
	ready   []chunk // chunks that can be read, in order of arrival
	held    []chunk // chunks that were written while the link was cut
	last    time.Time
	changed sync.Cond
	lost    bool // an end has disappeared without closing the connection; bytes are dropped
	shut    bool // an end of file was written
	tape    *tape
}

// chunk is one write. Nil data marks the end of the stream.
type chunk struct {
	at   time.Time
	data []byte
}

func newHalf(n *network, d direction) *half {
	h := &half{n: n, dir: d}
	h.changed.L = &n.mu
	return h
}

// push sends bytes. The caller must hold n.mu.
func (h *half) push(data []byte) {
	if h.lost {
		return
	}
	l := h.n.link(h.dir)
	if l.cuts > 0 && h.dir.from != h.dir.to || len(h.held) > 0 {
		h.held = append(h.held, chunk{data: data})
		h.n.seen.held++
		return
	}
	delay := latency + time.Duration(h.n.rng.Int64N(int64(latency)))
	if l.slow > 0 {
		delay += l.slow + time.Duration(h.n.rng.Int64N(int64(l.slow)))
		h.n.seen.late++
	}
	h.schedule(data, time.Now().Add(delay))
}

func (h *half) schedule(data []byte, at time.Time) {
	if at.Before(h.last) {
		at = h.last
	}
	h.last = at
	h.ready = append(h.ready, chunk{at, data})
	time.AfterFunc(time.Until(at), func() {
		h.n.mu.Lock()
		h.changed.Broadcast()
		h.n.mu.Unlock()
	})
}

// release sends the bytes that were kept during a cut. The caller must hold
// n.mu.
func (h *half) release(rng *rand.Rand) {
	at := time.Now().Add(latency + time.Duration(rng.Int64N(int64(retransmit))))
	for _, c := range h.held {
		h.schedule(c.data, at)
	}
	h.held = nil
}

// conn is one end of a connection.
type conn struct {
	n       *network
	in, out *half
	peer    *conn
	closed  bool
	err     error // the reason if the connection was broken, nil if the owner closed it

	readBy, writeBy time.Time // deadlines; zero means none
	wake            *time.Timer
}

// breakOff breaks this end of the connection with an error. The caller must hold
// n.mu.
func (c *conn) breakOff(err error) {
	if c.closed {
		return
	}
	c.closed, c.err = true, err
	c.n.seen.broken++
	c.in.changed.Broadcast()
	delete(c.n.conns, c)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		h := c.in
		now := time.Now()
		switch {
		case c.err != nil:
			return 0, c.err
		case c.closed:
			return 0, net.ErrClosed
		case !c.readBy.IsZero() && !now.Before(c.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(h.ready) > 0 && !h.ready[0].at.After(now):
			first := &h.ready[0]
			if first.data == nil {
				return 0, io.EOF
			}
			k := copy(b, first.data)
			if first.data = first.data[k:]; len(first.data) == 0 {
				h.ready = slices.Delete(h.ready, 0, 1)
			}
			return k, nil
		}
		h.changed.Wait()
	}
}

// Write implements net.Conn. It never waits, because the simulated socket
// buffer has no limit.
func (c *conn) Write(b []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	switch h := c.out; {
	case c.err != nil:
		return 0, c.err
	case c.closed, h.shut:
		return 0, net.ErrClosed
	case !c.writeBy.IsZero() && !time.Now().Before(c.writeBy):
		return 0, os.ErrDeadlineExceeded
	case c.peer.closed && !h.lost && c.n.link(h.dir).cuts == 0:
		return 0, syscall.EPIPE
	case len(b) > 0:
		if h.tape != nil {
			h.tape.record(b)
		}
		h.push(slices.Clone(b))
	}
	return len(b), nil
}

// CloseWrite ends the outgoing direction.
func (c *conn) CloseWrite() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	c.shutLocked()
	return nil
}

func (c *conn) shutLocked() {
	if !c.out.shut && c.err == nil {
		c.out.shut = true
		c.out.push(nil)
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return nil
	}
	c.shutLocked()
	c.closed = true
	c.in.changed.Broadcast()
	if c.peer.closed {
		delete(c.n.conns, c)
		delete(c.n.conns, c.peer)
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return testutil.Addr(address(c.out.dir.from)) }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return testutil.Addr(address(c.out.dir.to)) }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { c.deadline(t, true, true); return nil }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { c.deadline(t, true, false); return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { c.deadline(t, false, true); return nil }

func (c *conn) deadline(t time.Time, read, write bool) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if write {
		c.writeBy = t // writes do not wait, so there is nothing to wake
	}
	if !read {
		return
	}
	c.readBy = t
	if c.wake != nil {
		c.wake.Stop()
		c.wake = nil
	}
	if t.IsZero() {
		return
	}
	wake := func() {
		c.n.mu.Lock()
		c.in.changed.Broadcast()
		c.n.mu.Unlock()
	}
	if d := time.Until(t); d > 0 {
		c.wake = time.AfterFunc(d, wake)
	} else {
		c.in.changed.Broadcast()
	}
}
