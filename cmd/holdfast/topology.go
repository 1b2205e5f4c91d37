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
func (a clusterAdapter) Leader() (resp.Place, bool) {
	id, ok := a.Node.Leader()
	return a.place(id), ok
}

// AwaitLeader implements resp.Topology.
func (a clusterAdapter) AwaitLeader(ctx context.Context) (resp.Place, bool) {
	id, ok := a.Node.AwaitLeader(ctx)
	return a.place(id), ok
}

// ConfirmLeader implements resp.Topology.
func (a clusterAdapter) ConfirmLeader(ctx context.Context) (resp.Place, error) {
	id, err := a.Node.ConfirmLeader(ctx)
	return a.place(id), err
}

// Places implements resp.Topology.
func (a clusterAdapter) Places() []resp.Place {
	contacts := a.Contacts()
	out := make([]resp.Place, len(contacts))
	for i, c := range contacts {
		out[i] = a.placeOf(c)
	}
	return out
}

// Term implements resp.Topology.
func (a clusterAdapter) Term() uint64 { return a.Status().Term }

// place returns the place of a member, the zero Place if there is none.
func (a clusterAdapter) place(id string) resp.Place {
	for _, c := range a.Contacts() {
		if c.ID == id {
			return a.placeOf(c)
		}
	}
	return resp.Place{}
}

func (a clusterAdapter) placeOf(c cluster.Contact) resp.Place {
	// The same on every node, and through restarts and losses of the data.
	id := sha1.Sum([]byte(a.ClusterID() + "/" + c.ID))
	p := resp.Place{
		Node: c.ID, ID: hex.EncodeToString(id[:]), RunID: c.RunID, Offset: c.Applied, Heard: c.Heard,
		Voter: c.Voter, Alive: c.Alive, Self: c.ID == a.ID(),
	}
	p.Host, p.Port = hostPort(c.ClientAddr)
	p.SentinelHost, p.SentinelPort = hostPort(c.SentinelAddr)
	_, p.BusPort = hostPort(c.PeerAddr)
	return p
}

// hostPort splits an address; both parts are "" if it is not known.
func hostPort(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", ""
	}
	return host, port
}
