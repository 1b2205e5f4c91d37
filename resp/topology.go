package resp

import (
	"context"
	"strconv"
	"time"
)

// Mode is the kind of server that a port presents to clients that find the
// leader by themselves.
type Mode int

const (
	// Standalone is a plain server. Every node calls itself a master, because
	// every node takes writes.
	Standalone Mode = iota
	// Monitored is a plain server beside a Sentinel port. The leader calls
	// itself a master, the followers call themselves its replicas. All of them
	// still take writes.
	Monitored
	// Clustered is a node of a Redis Cluster with one shard. Only the leader
	// takes commands with keys; the followers redirect them to the leader.
	Clustered
	// Sentinel is a Redis Sentinel. It has no data commands.
	Sentinel
)

// String returns the name that INFO and HELLO print.
func (m Mode) String() string {
	switch m {
	case Clustered:
		return "cluster"
	case Sentinel:
		return "sentinel"
	}
	return "standalone"
}

// Topology is what the modes other than Standalone need from the node. Its
// methods may be called from any goroutine.
type Topology interface {
	// Leads reports whether this node leads.
	Leads() bool
	// Leader returns the leader and true. Without a leader it returns the last
	// one, or the zero Peer before the first, and false.
	Leader() (Peer, bool)
	// AwaitLeader is Leader, but waits for a leader until ctx ends.
	AwaitLeader(ctx context.Context) (Peer, bool)
	// ConfirmLeader returns the leader after a majority has confirmed it. The
	// confirmation began after the call.
	ConfirmLeader(ctx context.Context) (Peer, error)
	// Peers returns the members in an order that does not change.
	Peers() []Peer
	// Watch returns a channel that receives a token after each change of the
	// results of Leader or Peers, until stop is called.
	Watch() (changed <-chan struct{}, stop func())
	// Term returns the current term. It grows with every election.
	Term() uint64
}

// Peer is a member of the cluster with its addresses.
type Peer struct {
	Node string // node id: "n1"
	ID   string // 40 hex digits; it never changes
	// Host and Port are the address of its client port, SentinelHost and
	// SentinelPort that of its Sentinel port. BusPort is the port for other
	// nodes. They are "" if they are not known or do not exist.
	Host, Port                 string
	SentinelHost, SentinelPort string
	BusPort                    string
	RunID                      string    // of its process
	Offset                     uint64    // its applied index
	Heard                      time.Time // when it answered last
	Voter, Alive, Self         bool
}

// known reports whether clients can be sent to the peer.
func (p Peer) known() bool { return p.Port != "" }

// addr returns host:port as Redis prints it: IPv6 addresses without brackets.
func (p Peer) addr() string { return p.Host + ":" + p.Port }

// portNumber returns a port as a number, or 0 if it is not known.
func portNumber(port string) int64 {
	n, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// follows reports whether this node calls itself a replica, and returns the
// leader. up reports whether there is a leader at present.
func (s *Server) follows() (leader Peer, up, yes bool) {
	if s.cfg.Mode != Monitored && s.cfg.Mode != Clustered || s.cfg.Topology.Leads() {
		return Peer{}, true, false
	}
	leader, up = s.cfg.Topology.Leader()
	switch {
	case up && leader.Self: // elected after the check above
		return leader, true, false
	case leader.Self: // this node led until now, and cannot be its own replica
		return Peer{Port: "0"}, false, true
	case !leader.known():
		leader.Port = "0"
	}
	return leader, up, true
}
