package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/rpc"
)

// addressBook knows the addresses of the members. It uses --peers first, so that
// a restart can change addresses, and then the configuration in the log.
type addressBook struct {
	cfg  *Config
	raft *raftInstance
}

// ServerAddr implements raft.ServerAddressProvider.
func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if peer, ok := b.cfg.peer(string(id)); ok {
		return raft.ServerAddress(peer.Addr), nil
	}
	if m, ok := member.Find(b.raft.members(), string(id)); ok {
		return raft.ServerAddress(m.Addr), nil
	}
	return "", fmt.Errorf("no address for node %s", id)
}

// idAt returns the id of the member at an address, or "" if there is none. raft
// dials by address alone, and must not accept an acknowledgement from another
// node that now has that address.
func (b addressBook) idAt(addr string) string {
	for _, p := range b.cfg.Peers {
		if p.Addr == addr {
			return p.ID
		}
	}
	for _, m := range b.raft.members() {
		if m.Addr == addr {
			return m.ID
		}
	}
	return ""
}

// addressOf returns the address of a member: the one in --peers, or else
// fallback.
func (b addressBook) addressOf(id raft.ServerID, fallback raft.ServerAddress) raft.ServerAddress {
	if peer, ok := b.cfg.peer(string(id)); ok {
		return raft.ServerAddress(peer.Addr)
	}
	return fallback
}

// peers sends requests to the other nodes, on the admin stream.
type peers struct {
	addressBook
	mux *rpc.Mux
	ctx context.Context // ends with the node
}

// ask sends one request to a node and waits up to adminTimeout for the reply.
func (p *peers) ask(addr, id string, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(p.ctx, adminTimeout)
	defer cancel()
	return p.askContext(ctx, addr, id, req, reply)
}

// askContext is like ask, with another time limit.
func (p *peers) askContext(ctx context.Context, addr, id string, req adminRequest, reply *adminReply) error {
	s, err := p.mux.Dial(ctx, addr, rpc.ServiceAdmin, id)
	if err != nil {
		if req.changes() {
			return unreached(id, err)
		}
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	payload, err := json.Marshal(req)
	if err != nil {
		return err
	}
	sent := p.cfg.Clock.Mono()
	// From here on, the other node may have executed the request.
	unanswered := func(err error) error {
		if req.changes() {
			return outcome.NewChangeUnknown(fmt.Errorf("%s has not answered: %w", cmp.Or(id, addr), err))
		}
		return err
	}
	if err := s.Send(frameAsk, payload); err != nil {
		return unanswered(err)
	}
	_, payload, err = s.Recv()
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // the cancellation closed the stream
		}
		return unanswered(err)
	}
	reply.took = p.cfg.Clock.Mono() - sent
	if err := json.Unmarshal(payload, reply); err != nil {
		return unanswered(fmt.Errorf("answer of %s: %w", addr, err))
	}
	return reply.failure()
}

// handshake decides which nodes may open a connection to this one.
type handshake struct {
	*environment
	raft *raftInstance
}

// hello returns what this node reports about itself on every connection to a
// peer.
func (hs handshake) hello() rpc.Hello { return helloOf(hs.stores.Identity()) }

func helloOf(id storage.Identity) rpc.Hello {
	return rpc.Hello{ClusterID: id.ClusterID, NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot}
}

// sameCluster returns an error if a node belongs to another cluster.
func (hs handshake) sameCluster(h rpc.Hello) error {
	mine := hs.stores.Identity().ClusterID
	if h.ClusterID != "" && mine != "" && h.ClusterID != mine {
		return fmt.Errorf("%w: %s belongs to %s, %s to %s", ErrOtherCluster, h.NodeID, h.ClusterID, hs.cfg.NodeID, mine)
	}
	return nil
}

// authorize returns an error if another node may not open a connection to this
// one.
func (hs handshake) authorize(h rpc.Hello) error {
	if err := hs.sameCluster(h); err != nil {
		return err
	}
	mine := hs.stores.Identity().ClusterID
	if h.Service == rpc.ServiceAdmin {
		return nil
	}
	if h.ClusterID == "" || mine == "" {
		return errors.New("cluster is not formed yet")
	}
	r := hs.raft.running()
	if r == nil {
		return errors.New("node is still starting")
	}
	if h.Service == rpc.ServiceRaft {
		// Accept nodes that are not members as far as this node knows. This
		// node may have been down while the current leader was added, and would
		// never receive the change otherwise. raft makes sure that this node
		// does not vote for a node that it does not know.
		return nil
	}
	servers := r.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return nil // the first configuration has not arrived yet
	}
	for _, s := range servers {
		if string(s.ID) == h.NodeID {
			return nil
		}
	}
	return fmt.Errorf("%s is %w", h.NodeID, rpc.ErrNotMember)
}
