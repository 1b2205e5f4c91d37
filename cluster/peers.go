package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/storage"
	"github.com/holdfast-kv/holdfast/rpc"
)

// addressBook finds the addresses of the members. It looks first in --peers, so
// that a restart can change addresses, and then in the configuration in the
// log.
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
// dials by address alone, and must not accept an acknowledgment from another
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
	mux  *rpc.Mux
	ctx  context.Context // ends with the node
	kept keptStreams
}

// askStatus asks a node for its status. It keeps the stream for the next call,
// because every node asks every other node once a second.
func (p *peers) askStatus(ctx context.Context, addr, id string, reply *adminReply) error {
	req := adminRequest{Op: opStatus}
	key := streamKey{addr, id}
	if kept, ok := p.kept.take(key); ok {
		err := p.exchange(ctx, kept.Stream, addr, id, req, reply)
		if err == nil {
			p.kept.put(key, kept)
			return nil
		}
		// The node may have been restarted since the last call.
		kept.Close()
		if ctx.Err() != nil {
			return err
		}
		*reply = adminReply{}
	}
	s, err := p.mux.Dial(ctx, addr, rpc.ServiceAdmin, id)
	if err != nil {
		return err
	}
	if err := p.exchange(ctx, s, addr, id, req, reply); err != nil {
		s.Close()
		return err
	}
	p.kept.put(key, keptStream{Stream: s, dialed: time.Now()})
	return nil
}

// statusOf returns the status of a member, or false if the member does not answer.
func (p *peers) statusOf(ctx context.Context, m member.Member) (st health.NodeStatus, ok bool) {
	var r adminReply
	addr := p.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr))
	if err := p.askStatus(ctx, string(addr), m.ID, &r); err != nil || r.Status == nil {
		return st, false
	}
	return *r.Status, true
}

// streamKey says which node an admin stream leads to.
type streamKey struct{ addr, id string }

// keptStreams are admin streams on which no request is under way, at most one for
// each node. The Mux closes them when the node stops.
type keptStreams struct {
	mu  sync.Mutex
	all map[streamKey]keptStream
}

type keptStream struct {
	*rpc.Stream
	dialed, used time.Time
}

// keepStream is how long a stream is kept without a request, so that streams to
// removed members are closed. streamAge is how long a stream may be used. Only
// the handshake of a new stream checks whether this node may still open streams,
// so a new stream must replace an old one from time to time.
const (
	keepStream = 10 * time.Second
	streamAge  = time.Minute
)

// take removes the kept stream to a node, and returns it. It returns false if
// there is none. It also closes old streams.
func (k *keptStreams) take(key streamKey) (found keptStream, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, s := range k.all {
		switch {
		case time.Since(s.used) > keepStream || time.Since(s.dialed) > streamAge:
			s.Close()
			delete(k.all, other)
		case other == key:
			found, ok = s, true
			delete(k.all, key)
		}
	}
	return found, ok
}

// put keeps a stream, unless there is one to the same node.
func (k *keptStreams) put(key streamKey, s keptStream) {
	s.used = time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.all[key]; ok {
		s.Close()
		return
	}
	if k.all == nil {
		k.all = make(map[streamKey]keptStream)
	}
	k.all[key] = s
}

// ask sends one request to a node and waits up to adminTimeout for the reply.
func (p *peers) ask(addr, id string, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(p.ctx, adminTimeout)
	defer cancel()
	return p.askContext(ctx, addr, id, req, reply)
}

// askContext is like ask, with the time limit of ctx.
func (p *peers) askContext(ctx context.Context, addr, id string, req adminRequest, reply *adminReply) error {
	s, err := p.mux.Dial(ctx, addr, rpc.ServiceAdmin, id)
	if err != nil {
		if req.changes() {
			return unreached(id, err)
		}
		return err
	}
	defer s.Close()
	return p.exchange(ctx, s, addr, id, req, reply)
}

// exchange sends one request on an admin stream and waits for the reply. If ctx
// ends first, it closes the stream.
func (p *peers) exchange(
	ctx context.Context, s *rpc.Stream, addr, id string, req adminRequest, reply *adminReply,
) error {
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

// hello returns the identity that this node reports on every connection to a
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
		// node may have been down while the current leader was added. If it
		// refused that leader, it would never receive the change. raft makes
		// sure that this node does not vote for a node that it does not know.
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
