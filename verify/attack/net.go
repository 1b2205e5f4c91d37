package attack

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/rpc"
	"github.com/holdfast-kv/holdfast/verify/load"
)

// clientSide names the client's end of a connection, for all clients.
const clientSide = "client"

// hop is one direction of a connection: its sender, its receiver, and its
// service.
type hop struct {
	from, to string
	service  rpc.Service // 0 for clients
	toDialer bool        // true for replies, false for requests
}

// effect describes how a proxy treats the bytes of one direction.
type effect struct {
	block   bool
	delay   time.Duration
	rate    int  // bytes per second, 0 for no limit
	corrupt bool // flip one bit of every other chunk
}

// rule is an active effect. It counts how often it affects a chunk.
type rule struct {
	match  func(hop) bool
	effect effect
	hits   atomic.Int64 // how often the rule has affected a chunk
}

// network is the set of proxies in front of the nodes. It has two goroutines
// for each direction of a connection and one for each listener. They end with
// shut.
type network struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	rules   []*rule
	changed chan struct{} // closed when the rules change
	conns   map[*pair]bool
	fronts  []*front
}

// front is the proxy of one port of one node.
type front struct {
	net    *network
	node   string
	client bool // a client port: its clients do not send a node id
	addr   string
	behind string // the node's own address

	mu sync.Mutex
	ln net.Listener // nil while the node is down
}

// pair is a connection through a proxy.
type pair struct {
	dialer, acceptor net.Conn
	from, to         string
	service          rpc.Service
}

func newNetwork() *network {
	n := &network{changed: make(chan struct{}), conns: make(map[*pair]bool)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n
}

// front creates a proxy at addr. The proxy connects to the address behind.
func (n *network) front(node, addr, behind string, client bool) *front {
	f := &front{net: n, node: node, addr: addr, behind: behind, client: client}
	n.mu.Lock()
	n.fronts = append(n.fronts, f)
	n.mu.Unlock()
	return f
}

// open makes the proxy accept connections. The port of a dead process refuses
// connections, so the proxy of a dead node must refuse them too: see
// front.close.
func (f *front) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ln != nil {
		return nil
	}
	ln, err := net.Listen("tcp", f.addr)
	if err != nil {
		return fmt.Errorf("proxy of %s: %w", f.node, err)
	}
	f.ln = ln
	f.net.wg.Add(1)
	go func() {
		defer f.net.wg.Done()
		f.accept(ln)
	}()
	return nil
}

// close makes the proxy refuse connections.
func (f *front) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ln != nil {
		discard(f.ln.Close())
		f.ln = nil
	}
}

// discard ignores an error that does not matter, such as the error of closing an
// unused connection.
func discard(error) {}

func (f *front) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		f.net.wg.Add(1)
		go func() {
			defer f.net.wg.Done()
			f.serve(c)
		}()
	}
}

// serve connects c to the node behind the proxy and carries the traffic between
// them.
func (f *front) serve(c net.Conn) {
	p := &pair{dialer: c, from: clientSide, to: f.node}
	var said []byte
	if !f.client {
		discard(c.SetReadDeadline(time.Now().Add(5 * time.Second)))
		h, b, err := rpc.ReadHello(c)
		if err != nil {
			discard(c.Close())
			return
		}
		discard(c.SetReadDeadline(time.Time{}))
		p.from, p.service, said = h.NodeID, h.Service, b
	}
	to, err := (&net.Dialer{Timeout: time.Second}).DialContext(f.net.ctx, "tcp", f.behind)
	if err != nil {
		discard(c.Close())
		return
	}
	p.acceptor = to
	if !f.net.add(p) {
		p.close()
		return
	}
	f.net.wg.Add(2)
	go func() {
		defer f.net.wg.Done()
		f.net.carry(p, p.dialer, p.acceptor, hop{p.from, p.to, p.service, false}, said)
	}()
	go func() {
		defer f.net.wg.Done()
		f.net.carry(p, p.acceptor, p.dialer, hop{p.to, p.from, p.service, true}, nil)
	}()
}

func (p *pair) close() {
	discard(p.dialer.Close())
	if p.acceptor != nil {
		discard(p.acceptor.Close())
	}
}

func (n *network) add(p *pair) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ctx.Err() != nil {
		return false
	}
	n.conns[p] = true
	return true
}

// chunk is the result of one read.
type chunk struct {
	at    time.Time
	bytes []byte
}

// carry copies bytes from one end to the other until one of them is closed.
func (n *network) carry(p *pair, from, to net.Conn, h hop, first []byte) {
	chunks := make(chan chunk, 256)
	gone := make(chan struct{}) // closed when the writer has stopped
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		defer close(chunks)
		if first != nil {
			chunks <- chunk{time.Now(), first}
		}
		for {
			buf := make([]byte, 16<<10)
			k, err := from.Read(buf)
			if k > 0 {
				select {
				case chunks <- chunk{time.Now(), buf[:k]}:
				case <-gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	n.deliver(p, to, h, chunks)
	close(gone)
	p.close()
	n.mu.Lock()
	delete(n.conns, p)
	n.mu.Unlock()
}

func (n *network) deliver(p *pair, to net.Conn, h hop, chunks <-chan chunk) {
	turn := 0
	for c := range chunks {
		turn++
		for {
			e, changed := n.effects(h)
			if e.block {
				select {
				case <-changed:
					continue
				case <-n.ctx.Done():
					return
				}
			}
			wait := time.Until(c.at.Add(e.delay))
			if e.rate > 0 {
				wait = max(wait, time.Duration(len(c.bytes))*time.Second/time.Duration(e.rate))
			}
			if wait > 0 && !load.Sleep(n.ctx, wait) {
				return
			}
			if e.corrupt && turn%2 == 0 {
				c.bytes[(len(c.bytes)/2+7*turn)%len(c.bytes)] ^= 1 << (turn % 8)
			}
			break
		}
		if _, err := to.Write(c.bytes); err != nil {
			return
		}
	}
}

// effects combines the rules that match a direction. It also returns a channel
// that is closed when the rules change.
func (n *network) effects(h hop) (e effect, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.rules {
		if !r.match(h) {
			continue
		}
		r.hits.Add(1)
		e.block = e.block || r.effect.block
		e.corrupt = e.corrupt || r.effect.corrupt
		e.delay = max(e.delay, r.effect.delay)
		if r.effect.rate > 0 && (e.rate == 0 || r.effect.rate < e.rate) {
			e.rate = r.effect.rate
		}
	}
	return e, n.changed
}

// apply activates a rule. The returned function removes the rule and returns how
// often the rule affected a chunk.
func (n *network) apply(match func(hop) bool, e effect) (lift func() int64) {
	r := &rule{match: match, effect: e}
	n.mu.Lock()
	n.rules = append(n.rules, r)
	n.tellLocked()
	n.mu.Unlock()
	return func() int64 {
		n.mu.Lock()
		defer n.mu.Unlock()
		for i := range n.rules {
			if n.rules[i] == r {
				n.rules = append(n.rules[:i:i], n.rules[i+1:]...)
				break
			}
		}
		n.tellLocked()
		return r.hits.Load()
	}
}

func (n *network) tellLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// reset closes the matching connections with an RST and returns their number.
func (n *network) reset(match func(hop) bool) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for p := range n.conns {
		if !match(hop{p.from, p.to, p.service, false}) {
			continue
		}
		for _, c := range []net.Conn{p.dialer, p.acceptor} {
			if tcp, ok := c.(*net.TCPConn); ok {
				discard(tcp.SetLinger(0))
			}
		}
		p.close()
		count++
	}
	return count
}

// shut ends all connections, listeners and goroutines.
func (n *network) shut() {
	n.cancel()
	n.mu.Lock()
	fronts := n.fronts
	for p := range n.conns {
		p.close()
	}
	n.mu.Unlock()
	for _, f := range fronts {
		f.close()
	}
	n.wg.Wait()
}

// clear removes all rules.
func (n *network) clear() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rules = nil
	n.tellLocked()
}
