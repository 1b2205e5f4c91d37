package transport

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Silence measures for how long each other node has sent nothing to this node's
// raft. A leader sends a heartbeat after 10 % to 20 % of raft's
// HeartbeatTimeout. A leader that has sent nothing for longer than
// [Silence.Left] allows probably hangs, or cannot be reached.
//
// The limit follows the pauses that this node has observed, as in the failure
// detectors of Chen, Toueg and Aguilera ("On the Quality of Service of Failure
// Detectors", 2002): twice the longest pause of the last 10 to 20 s, plus 50
// ms. So a leader whose heartbeats are late because its processor is busy gets
// more time. A pause that is not shorter than the longest time passed to
// NewSilence does not count. This limit is never below the shortest or above
// the longest time that was passed to NewSilence.
//
// A pause is the time from the answer of this node to the next request. While a
// request is unanswered, this node may be writing to a slow disk, and the
// leader waits for the answer. During that time, another limit applies: twice
// the longest time that was passed to NewSilence. There is still a limit,
// because the leader may have stopped in the middle of the request.
//
// The methods are safe for concurrent use. The zero Silence counts no node as
// silent.
type Silence struct {
	shortest, longest time.Duration

	mu    sync.Mutex
	nodes map[string]*pauses
}

// pauses are the pauses between the requests of one node.
type pauses struct {
	last time.Time // time of the last byte that arrived, or of the last answer
	open int       // number of requests that this node has not answered

	started         time.Time     // beginning of the current period of 10 s
	current, before time.Duration // the longest pause of the current period and of the one before
}

const (
	pausePeriod = 10 * time.Second
	pauseMargin = 50 * time.Millisecond
)

// NewSilence returns a Silence whose limit for a pause is at least shortest and
// at most longest. If shortest is 0, no node counts as silent.
func NewSilence(shortest, longest time.Duration) *Silence {
	return &Silence{shortest: shortest, longest: longest, nodes: make(map[string]*pauses)}
}

// Left returns how much longer a node may send nothing before it counts as
// silent. The result is 0 or negative if the node is silent. known is false if
// this node has received no request of that node yet, or if no node ever counts
// as silent.
func (s *Silence) Left(node string) (left time.Duration, known bool) {
	if s == nil || s.shortest == 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.nodes[node]
	if p == nil {
		return 0, false
	}
	limit := min(max(2*max(p.current, p.before)+pauseMargin, s.shortest), s.longest)
	if p.open > 0 {
		limit = 2 * s.longest
	}
	return limit - time.Since(p.last), true
}

// began records that bytes of a node have arrived. first says that these bytes
// begin a request.
func (s *Silence) began(node string, first bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.nodes[node]
	if p == nil {
		p = &pauses{last: now, started: now}
		s.nodes[node] = p
	}
	if pause := now.Sub(p.last); p.open == 0 && pause < s.longest {
		if now.Sub(p.started) > pausePeriod {
			p.started, p.before, p.current = now, p.current, 0
		}
		p.current = max(p.current, pause)
	}
	p.last = now
	if first {
		p.open++
	}
}

// ended records that a request of a node was answered, or that its connection
// has ended before the answer.
func (s *Silence) ended(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.nodes[node]
	p.open--
	p.last = time.Now()
}

// listened is a StreamLayer whose accepted connections report to a Silence.
type listened struct {
	raft.StreamLayer
	silence *Silence
}

// Accept implements net.Listener.
func (l listened) Accept() (net.Conn, error) {
	c, err := l.StreamLayer.Accept()
	if err != nil {
		return nil, err
	}
	peer, ok := c.(interface{ PeerID() string })
	if !ok || l.silence.shortest == 0 {
		return c, nil
	}
	return &heardConn{Conn: c, node: peer.PeerID(), silence: l.silence}, nil
}

// heardConn is a connection on which another node sends requests to this node,
// one after the other. It reports each arriving request, and its answer, to the
// Silence.
type heardConn struct {
	net.Conn
	node    string
	silence *Silence

	mu     sync.Mutex
	open   bool // a request has arrived, at least in part, and is not answered
	closed bool
}

// Read implements net.Conn.
func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			c.silence.began(c.node, !c.open)
			c.open = true
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *heardConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.end(false)
	return n, err
}

// Close implements net.Conn.
func (c *heardConn) Close() error {
	c.end(true)
	return c.Conn.Close()
}

func (c *heardConn) end(closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = c.closed || closed
	if c.open {
		c.open = false
		c.silence.ended(c.node)
	}
}
