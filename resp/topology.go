package resp

import (
	"context"
	"strconv"
	"time"
)

// Mode is what a port pretends to be, for clients that look for the leader by
// themselves.
type Mode int

const (
	// Standalone is a plain server: every node calls itself a master, because
	// every node takes writes.
	Standalone Mode = iota
	// Monitored is a plain server beside a Sentinel port: the leader calls itself
	// a master, the others its replicas. All of them still take writes.
	Monitored
	// Clustered is a node of a Redis Cluster with one shard: only the leader takes
	// commands with keys, the others say where it is.
	Clustered
	// Sentinel is a Redis Sentinel. It has no data commands.
	Sentinel
)

// String returns the word that INFO and HELLO print.
func (m Mode) String() string {
	switch m {
	case Clustered:
		return "cluster"
	case Sentinel:
		return "sentinel"
	}
	return "standalone"
}

// Topology is what the modes other than Standalone ask of the node. Calls may
// come from any goroutine.
type Topology interface {
	// Leads reports whether this node leads.
	Leads() bool
	// Leader returns the leader, or while there is none the last one (the zero
	// Place before the first) and false.
	Leader() (Place, bool)
	// AwaitLeader is Leader, but waits for one until ctx ends.
	AwaitLeader(ctx context.Context) (Place, bool)
	// ConfirmLeader returns the leader after a majority has confirmed it, later
	// than the call began.
	ConfirmLeader(ctx context.Context) (Place, error)
	// Places returns the members in an order that does not change.
	Places() []Place
	// Watch returns a channel that holds a token after a change of what Leader or
	// Places say, until stop is called.
	Watch() (changed <-chan struct{}, stop func())
	// Term counts the changes of leader.
	Term() uint64
}

// Place is a member of the cluster and where it is reached.
type Place struct {
	Node string // its name: "n1"
	ID   string // 40 hex digits, for good
	// Host and Port are those of its client port, SentinelHost and SentinelPort
	// of its Sentinel port, BusPort that of its port for other nodes. They are ""
	// while they are not known, and where there is none.
	Host, Port                 string
	SentinelHost, SentinelPort string
	BusPort                    string
	RunID                      string    // of its process
	Offset                     uint64    // index of the last entry that it had applied
	Heard                      time.Time // when it answered last
	Voter, Alive, Self         bool
}

// known reports whether clients can be sent there.
func (p Place) known() bool { return p.Port != "" }

// addr is host:port as Redis prints it, IPv6 addresses without brackets too.
func (p Place) addr() string { return p.Host + ":" + p.Port }

// number returns a port as a number, 0 for none.
func number(port string) int64 {
	n, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// follows reports whether this node calls itself a replica, and of whom: up says
// that the leader is there.
func (s *Server) follows() (leader Place, up, yes bool) {
	if s.cfg.Mode != Monitored && s.cfg.Mode != Clustered || s.cfg.Topology.Leads() {
		return Place{}, true, false
	}
	leader, up = s.cfg.Topology.Leader()
	switch {
	case up && leader.Self: // since the line above
		return leader, true, false
	case leader.Self: // it led until now, and does not follow itself
		return Place{Port: "0"}, false, true
	case !leader.known():
		leader.Port = "0"
	}
	return leader, up, true
}
