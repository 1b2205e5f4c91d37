package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"net"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/resp"
)

// Leads implements resp.Topology.
func (a clusterAdapter) Leads() bool {
	id, ok := a.Node.Leader()
	return ok && id == a.ID()
}

// Leader implements resp.Topology.
func (a clusterAdapter) Leader() (resp.Peer, bool) {
	id, ok := a.Node.Leader()
	return a.peer(id), ok
}

// AwaitLeader implements resp.Topology.
func (a clusterAdapter) AwaitLeader(ctx context.Context) (resp.Peer, bool) {
	id, ok := a.Node.AwaitLeader(ctx)
	return a.peer(id), ok
}

// ConfirmLeader implements resp.Topology.
func (a clusterAdapter) ConfirmLeader(ctx context.Context) (resp.Peer, error) {
	id, err := a.Node.ConfirmLeader(ctx)
	return a.peer(id), err
}

// Peers implements resp.Topology.
func (a clusterAdapter) Peers() []resp.Peer {
	contacts := a.PeerHealth()
	out := make([]resp.Peer, len(contacts))
	for i, c := range contacts {
		out[i] = a.peerOf(c)
	}
	return out
}

// Term implements resp.Topology.
func (a clusterAdapter) Term() uint64 { return a.Status().Term }

// peer returns the member with an id, or the zero Peer if there is none.
func (a clusterAdapter) peer(id string) resp.Peer {
	for _, c := range a.PeerHealth() {
		if c.ID == id {
			return a.peerOf(c)
		}
	}
	return resp.Peer{}
}

func (a clusterAdapter) peerOf(c cluster.PeerHealth) resp.Peer {
	// The id is equal on every node, and survives restarts and the loss of
	// data.
	id := sha1.Sum([]byte(a.ClusterID() + "/" + c.ID))
	p := resp.Peer{
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
