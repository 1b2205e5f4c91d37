package serve

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/resp/topology"
)

// Leads implements topology.Source.
func (a clusterAdapter) Leads() bool {
	id, ok := a.Node.Leader()
	return ok && id == a.ID()
}

// Leader implements topology.Source.
func (a clusterAdapter) Leader() (topology.Peer, bool) {
	id, ok := a.Node.Leader()
	return a.peer(id), ok
}

// AwaitLeader implements topology.Source.
func (a clusterAdapter) AwaitLeader(ctx context.Context) (topology.Peer, bool) {
	id, ok := a.Node.AwaitLeader(ctx)
	return a.peer(id), ok
}

// ConfirmLeader implements topology.Source.
func (a clusterAdapter) ConfirmLeader(ctx context.Context) (topology.Peer, error) {
	id, err := a.Node.ConfirmLeader(ctx)
	return a.peer(id), err
}

// Peers implements topology.Source.
func (a clusterAdapter) Peers() []topology.Peer {
	health := a.PeerHealth()
	out := make([]topology.Peer, len(health))
	for i, c := range health {
		out[i] = a.peerOf(c)
	}
	return out
}

// Term implements topology.Source.
func (a clusterAdapter) Term() uint64 { return a.Status().Term }

// peer returns the member with an id, or the zero Peer if there is none.
func (a clusterAdapter) peer(id string) topology.Peer {
	for _, c := range a.PeerHealth() {
		if c.ID == id {
			return a.peerOf(c)
		}
	}
	return topology.Peer{}
}

func (a clusterAdapter) peerOf(c cluster.PeerHealth) topology.Peer {
	// The id of a member is the same on every node. It does not change when the
	// member restarts or loses its data.
	id := sha1.Sum([]byte(a.ClusterID() + "/" + c.ID))
	p := topology.Peer{
		Node: c.ID, ID: hex.EncodeToString(id[:]), RunID: c.RunID, Offset: c.Applied, Heard: c.Heard,
		Voter: c.Voter, Alive: c.Alive, Self: c.ID == a.ID(),
	}
	p.Host, p.Port = hostPort(c.ClientAddr)
	p.SentinelHost, p.SentinelPort = hostPort(c.SentinelAddr)
	_, p.BusPort = hostPort(c.PeerAddr)
	return p
}

// hostPort splits an address. Both parts are "" if the address is not known.
func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", ""
	}
	return host, port
}
