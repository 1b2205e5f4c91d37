// Package topology describes the members of the cluster as clients see them:
// their addresses, and which member leads. The client port needs this
// information to act as a Redis Sentinel or as a Redis Cluster.
package topology

import (
	"context"
	"strconv"
	"time"
)

// Source is the node, which knows the members and the leader. Its methods may
// be called from any goroutine.
type Source interface {
	// Leads reports whether this node leads.
	Leads() bool
	// Leader returns the leader and true. If there is no leader, it returns the
	// last known leader and false. Before the first leader is known, it returns
	// the zero Peer and false.
	Leader() (Peer, bool)
	// AwaitLeader is like Leader, but waits for a leader until ctx ends.
	AwaitLeader(ctx context.Context) (Peer, bool)
	// ConfirmLeader waits until a majority has confirmed the leader, and returns
	// the leader. Confirmations from before the call do not count.
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
	// Host and Port are the address of the peer's client port. SentinelHost and
	// SentinelPort are the address of its Sentinel port. BusPort is its port
	// for other nodes. Each of these fields is "" if it is not known or does
	// not exist.
	Host, Port                 string
	SentinelHost, SentinelPort string
	BusPort                    string
	RunID                      string    // identifies the run of the peer's process
	Offset                     uint64    // applied index of the peer
	Heard                      time.Time // when the peer last answered
	Voter, Alive, Self         bool
}

// Known reports whether the address of the peer's client port is known, so that
// clients can connect to the peer.
func (p Peer) Known() bool { return p.Port != "" }

// Addr returns host:port as Redis prints it: IPv6 addresses without brackets.
func (p Peer) Addr() string { return p.Host + ":" + p.Port }

// PortNumber returns a port as a number, or 0 if it is not known.
func PortNumber(port string) int64 {
	n, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Self returns this node, or the zero Peer before Raft runs.
func Self(t Source) Peer {
	for _, p := range t.Peers() {
		if p.Self {
			return p
		}
	}
	return Peer{}
}

// TransferLimit bounds how long a transfer of leadership at a client's request
// may take.
const TransferLimit = 5 * time.Second
