package resp

import "github.com/holdfast-kv/holdfast/resp/topology"

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

// follows reports whether this node calls itself a replica, and returns the
// leader. up reports whether there is a leader at present.
func (s *Server) follows() (leader topology.Peer, up, yes bool) {
	if s.cfg.Mode != Monitored && s.cfg.Mode != Clustered || s.cfg.Topology.Leads() {
		return topology.Peer{}, true, false
	}
	leader, up = s.cfg.Topology.Leader()
	switch {
	case up && leader.Self: // elected after the check above
		return leader, true, false
	case leader.Self: // this node led until now, and cannot be its own replica
		return topology.Peer{Port: "0"}, false, true
	case !leader.Known():
		leader.Port = "0"
	}
	return leader, up, true
}
