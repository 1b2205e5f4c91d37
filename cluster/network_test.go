package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// network connects the nodes of one test. Each connection is a pair of socket
// pairs with a relay between them. So both ends are real connections with
// buffers, deadlines and half-close, and the test can delay the bytes of each
// direction separately. As with TCP over a network that drops packets, bytes
// arrive late but are not lost.
type network struct {
	mu      sync.Mutex
	closed  bool
	hosts   map[string]*listener // by node id; a node without an entry does not listen
	cut     map[direction]bool
	changed chan struct{} // closed when cut changes
	relays  map[*relay]bool
	refused map[refusal]bool
	late    []*straggler // apply to future connections
	wg      sync.WaitGroup

	// held counts the bytes that had to wait at a cut link, and reads counts
	// the held bytes of read streams. The counters show that a fault took
	// effect.
	held, reads atomic.Int64
	dropped     atomic.Int64 // dials that had to wait at a cut link
}

// direction is one direction of a link.
type direction struct{ from, to string }

// refusal names a node and one of its services that other nodes cannot reach.
type refusal struct {
	service rpc.Service
	to      string
}

func newNetwork(t testing.TB) *network {
	n := &network{
		hosts:   make(map[string]*listener),
		cut:     make(map[direction]bool),
		changed: make(chan struct{}),
		relays:  make(map[*relay]bool),
		refused: make(map[refusal]bool),
	}
	t.Cleanup(n.close)
	return n
}

func (n *network) close() {
	n.mu.Lock()
	n.closed = true
	for r := range n.relays {
		r.close()
	}
	n.mu.Unlock()
	n.wg.Wait()
}

// address returns the address that a node announces.
func address(id string) string { return id + ":7000" }

// listener is a node's end of the network.
type listener struct {
	*testutil.Listener
	n  *network
	id string
}

func (n *network) listen(id string) *listener {
	l := &listener{Listener: testutil.NewListener(testutil.Addr(address(id))), n: n, id: id}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[id] = l
	return l
}

// Close closes the port and removes it from the network, unless a later start
// of the node listens there.
func (l *listener) Close() error {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	if l.n.hosts[l.id] == l {
		delete(l.n.hosts, l.id)
	}
	return l.Listener.Close()
}

// dialer returns the function with which a node dials other nodes. from is the
// id of the node that dials.
func (n *network) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		to := testutil.Host(addr)
		// A handshake needs both directions. While one of them is cut, no
		// answer arrives.
		if err := n.open(ctx, nil, direction{from, to}, direction{to, from}); err != nil {
			return nil, err
		}
		n.mu.Lock()
		l := n.hosts[to]
		n.mu.Unlock()
		if l == nil {
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		}
		r := &relay{n: n, from: from, to: to, done: make(chan struct{})}
		ours, theirs, err := r.start()
		if err != nil {
			return nil, err
		}
		if err = l.Deliver(ctx, theirs); err == nil {
			return ours, nil
		}
		r.close()
		return nil, errors.Join(err, ours.Close(), theirs.Close())
	}
}

// open waits until none of the links is cut.
func (n *network) open(ctx context.Context, done <-chan struct{}, links ...direction) error {
	counted := false
	for {
		n.mu.Lock()
		blocked, changed := false, n.changed
		for _, l := range links {
			blocked = blocked || l.from != l.to && n.cut[l]
		}
		n.mu.Unlock()
		if !blocked {
			return nil
		}
		if !counted && len(links) == 2 {
			counted = true
			n.dropped.Add(1)
		}
		select {
		case <-changed:
		case <-done:
			return net.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *network) set(cut bool, links ...direction) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range links {
		if cut {
			n.cut[l] = true
		} else {
			delete(n.cut, l)
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// hold delays, from now on, everything that one node sends to certain other
// nodes.
func (n *network) hold(from string, to ...string) {
	for _, id := range to {
		n.set(true, direction{from, id})
	}
}

// release undoes hold.
func (n *network) release(from string, to ...string) {
	for _, id := range to {
		n.set(false, direction{from, id})
	}
}

// heal opens all links. The delayed bytes arrive now.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	close(n.changed)
	n.changed = make(chan struct{})
}

// unplug ends a node's connections and its listener at once, as the death of
// the process does.
func (n *network) unplug(id string) {
	n.mu.Lock()
	l := n.hosts[id]
	for r := range n.relays {
		if r.from == id || r.to == id {
			r.close()
		}
	}
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
}

// relay carries one connection.
type relay struct {
	n        *network
	from, to string
	near     *net.UnixConn // the relay's end of the dialer's connection
	far      *net.UnixConn // the relay's end of the acceptor's connection
	done     chan struct{}
	service  atomic.Uint32 // service that the dialer asked for, 0 before it asks
	frozen   atomic.Bool   // discards all bytes, and neither end notices
	mute     atomic.Bool   // discards the bytes to the dialer, and neither end notices
	// forth delays the bytes from the dialer, and back the bytes to the dialer,
	// until the channel is closed. nil means no delay.
	forth, back atomic.Pointer[chan struct{}]
	once        sync.Once
}

func (r *relay) start() (ours, theirs net.Conn, err error) {
	a, near, err := socketPair()
	if err != nil {
		return nil, nil, err
	}
	b, far, err := socketPair()
	if err != nil {
		return nil, nil, errors.Join(err, a.Close(), near.Close())
	}
	r.near, r.far = near, far
	r.n.mu.Lock()
	defer r.n.mu.Unlock()
	if r.n.closed {
		return nil, nil, errors.Join(net.ErrClosed, a.Close(), near.Close(), b.Close(), far.Close())
	}
	r.n.relays[r] = true
	r.n.wg.Go(func() {
		var both sync.WaitGroup
		both.Go(func() { r.pump(far, near, direction{r.from, r.to}) })
		both.Go(func() { r.pump(near, far, direction{r.to, r.from}) })
		both.Wait()
		r.close()
		r.n.mu.Lock()
		delete(r.n.relays, r)
		r.n.mu.Unlock()
	})
	return a, b, nil
}

// close resets the connection. Both ends notice.
func (r *relay) close() {
	r.once.Do(func() {
		close(r.done)
		// An error from closing a socket pair means nothing here.
		_ = r.near.Close()
		_ = r.far.Close()
	})
}

// serviceAt is the offset at which the dialer's first bytes name the service:
// see package rpc.
const serviceAt = 7

// freeze discards, from now on, everything that the existing connections for a
// service from one node to another carry, in both directions. It returns the
// number of these connections.
func (n *network) freeze(service rpc.Service, from, to string) int {
	return n.each(service, from, to, func(r *relay) { r.frozen.Store(true) })
}

// stall delays the bytes that the acceptor sends on the existing connections for
// a service, until flow is called. The argument from is the dialer, and the
// argument to is the acceptor.
func (n *network) stall(service rpc.Service, from, to string) (flow func()) {
	stalled := make(chan struct{})
	n.each(service, from, to, func(r *relay) { r.back.Store(&stalled) })
	return func() { close(stalled) }
}

// delay is like stall, for the opposite direction: it delays the bytes that the
// dialer sends. They arrive when flow is called, even if the dialer has abandoned
// the connection by then. All bytes that the acceptor sends are discarded.
func (n *network) delay(service rpc.Service, from, to string) (flow func()) {
	stalled := make(chan struct{})
	n.each(service, from, to, func(r *relay) {
		r.mute.Store(true)
		r.forth.Store(&stalled)
	})
	return func() { close(stalled) }
}

// straggler delays the bytes that one connection carries to the acceptor.
type straggler struct {
	service  rpc.Service
	from, to string
	after    int // how many writes of the dialer pass first
	flow     chan struct{}
	caught   chan struct{} // closed when something is delayed
}

// straggle delays the bytes on the next connection for a service from one node
// to another. The first writes of the dialer pass at once; the argument after
// is their number. The later writes arrive when flow is called, even if the
// dialer already uses a newer connection. caught is closed when something is
// delayed.
func (n *network) straggle(service rpc.Service, from, to string, after int) (caught <-chan struct{}, flow func()) {
	s := &straggler{service, from, to, after, make(chan struct{}), make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.late = append(n.late, s)
	return s.caught, func() { close(s.flow) }
}

// straggler returns the straggler that applies to a connection, or nil if none
// does.
func (n *network) straggler(r *relay) *straggler {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, s := range n.late {
		if s.service == rpc.Service(r.service.Load()) && s.from == r.from && s.to == r.to {
			n.late = slices.Delete(n.late, i, i+1)
			return s
		}
	}
	return nil
}

// reset breaks the connections for a service from one node to another, and
// returns their number.
func (n *network) reset(service rpc.Service, from, to string) int {
	return n.each(service, from, to, (*relay).close)
}

// refuse breaks every connection for a service from other nodes to a node, from
// now on. Connections of a node to itself remain, because a node that campaigns
// reaches itself by such a connection.
func (n *network) refuse(service rpc.Service, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[refusal{service, to}] = true
	for r := range n.relays {
		if r.to == to && r.from != to && r.service.Load() == uint32(service) {
			r.close()
		}
	}
}

// admit undoes refuse.
func (n *network) admit(service rpc.Service, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refused, refusal{service, to})
}

func (n *network) isRefused(service rpc.Service, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refused[refusal{service, to}]
}

// mute is like freeze, but discards only the bytes that the acceptor sends.
func (n *network) mute(service rpc.Service, from, to string) int {
	return n.each(service, from, to, func(r *relay) { r.mute.Store(true) })
}

func (n *network) each(service rpc.Service, from, to string, f func(*relay)) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	found := 0
	for r := range n.relays {
		if r.from == from && r.to == to && r.service.Load() == uint32(service) {
			f(r)
			found++
		}
	}
	return found
}

func (r *relay) pump(dst, src *net.UnixConn, way direction) {
	buf := make([]byte, 32<<10)
	var late *straggler
	for writes := 0; ; writes++ {
		k, err := src.Read(buf)
		if way.from == r.from && k > serviceAt {
			if r.service.CompareAndSwap(0, uint32(buf[serviceAt])) {
				late = r.n.straggler(r)
			}
			if r.from != r.to && r.n.isRefused(rpc.Service(r.service.Load()), r.to) {
				r.close()
			}
		}
		if r.frozen.Load() || r.mute.Load() && way.to == r.from {
			if err != nil {
				r.close()
				return
			}
			continue
		}
		if late != nil && writes == late.after {
			r.forth.Store(&late.flow)
			close(late.caught)
		}
		stalled := r.forth.Load()
		if way.to == r.from {
			stalled = r.back.Load()
		}
		if stalled != nil {
			select {
			case <-*stalled:
			case <-r.done:
				return
			}
		}
		if r.n.isCut(way) {
			r.n.held.Add(int64(k))
			if r.service.Load() == uint32(rpc.ServiceRead) {
				r.n.reads.Add(int64(k))
			}
		}
		if r.n.open(context.Background(), r.done, way) != nil {
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) && dst.CloseWrite() == nil {
				return
			}
			r.close()
			return
		}
		if _, err := dst.Write(buf[:k]); err != nil {
			r.close()
			return
		}
	}
}

func (n *network) isCut(way direction) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[way]
}

func socketPair() (a, b *net.UnixConn, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	conn := func(fd int) (*net.UnixConn, error) {
		f := os.NewFile(uintptr(fd), "socketpair")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			return nil, err
		}
		return c.(*net.UnixConn), nil
	}
	a, errA := conn(fds[0])
	b, errB := conn(fds[1])
	if err := errors.Join(errA, errB); err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return a, b, nil
}
