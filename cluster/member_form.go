package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Forming a cluster: raft accepts a first configuration from any node, so if
// two nodes both wrote one, there would be two clusters. Here only one node may
// write it: the node with the lowest id in --peers. It does so only after every
// other node has reported that its directory is empty and that it was started
// with the same --peers. Before it writes the configuration, it sends the
// cluster's id to all nodes, and they make the id durable.
//
// A node that finds an existing cluster joins it if an operator has added the
// node: see member_admit.go. If the cluster counts the node as a voter, its
// directory has been wiped, and with it the record of its votes. If such a node
// came back under its old name, a leader could be elected that lacks
// acknowledged entries. Only the leader can say whether the node is a voter,
// because it answers from the committed configuration: any other member may
// have missed the change that added or removed the node.
//
// The node makes the leader's answer durable before it asks to be admitted, and
// the leader admits only non-voters. So if an empty directory says that it
// joins, its node has not taken part in the cluster yet, and may ask again.
// What the node may do while it reads the log is described in raftlog/votes.go.

// probeEvery is the time between attempts to form or join a cluster.
const probeEvery = 200 * time.Millisecond

// former forms the cluster, or joins it.
type former struct{ node *Node }

// form waits until raft may start. It returns a configuration if this node is
// the one that writes the first configuration, and nil otherwise.
func (f *former) form() (*raft.Configuration, error) {
	n := f.node
	empty, err := n.stores.Empty()
	if err != nil {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
	if !empty {
		return nil, nil
	}
	var complained string
	for {
		c, done, err := f.formOnce()
		if err != nil && !errors.Is(err, errWaiting) || done {
			return c, err
		}
		if text := err.Error(); text != complained {
			complained = text
			n.log.Info("waiting to form or join the cluster", "reason", text)
			n.setPhase(text)
		}
		select {
		case <-n.ctx.Done():
			return nil, n.ctx.Err()
		case <-time.After(probeEvery):
		}
	}
}

func (n *Node) setPhase(text string) {
	n.mu.Lock()
	n.phase = text
	n.mu.Unlock()
}

var errWaiting = errors.New("waiting")

func (f *former) formOnce() (c *raft.Configuration, done bool, err error) {
	n := f.node
	mine := n.stores.Identity()
	var absent []string
	var refused error // refusal of the members that were found
	var differs error // a node without data has other --peers
	clusterID := mine.ClusterID
	features := n.reports() // highest feature version that all nodes found so far know
	for _, p := range n.cfg.Peers {
		if p.ID == n.cfg.NodeID {
			continue
		}
		var r adminReply
		err := n.peers.ask(p.Addr, p.ID, adminRequest{Op: opProbe}, &r)
		features = min(features, r.Features)
		switch {
		case err != nil:
			if errors.Is(err, rpc.ErrSecret) {
				absent = append(absent, p.ID+" (cluster secret does not match)")
				continue
			}
			absent = append(absent, p.ID)
		case r.Member:
			err := f.join(p, r)
			if !errors.Is(err, errWaiting) {
				return nil, err == nil, err
			}
			if refused == nil {
				refused = err // another member may know the leader
			}
		case r.Peers != n.peerList():
			if differs == nil { // ignored if there is a cluster to join
				differs = fmt.Errorf("%w: %w: %s has %q, this node %q", errWaiting, ErrPeersDiffer, p.ID, r.Peers, n.peerList())
			}
		case r.ClusterID != "" && clusterID != "" && r.ClusterID != clusterID:
			return nil, false, fmt.Errorf("%w: %s", ErrOtherCluster, p.ID)
		case r.ClusterID != "":
			clusterID = r.ClusterID // sent by an earlier attempt that was interrupted
		}
	}
	if len(n.cfg.Peers) == 0 {
		return nil, false, errors.New("data directory is empty and --peers names no nodes to form a cluster with")
	}
	if refused != nil {
		return nil, false, refused
	}
	if differs != nil {
		return nil, false, differs
	}
	if mine.Joins {
		return nil, false, fmt.Errorf("%w for a member of the cluster", errWaiting)
	}
	lowest := n.cfg.Peers[0].ID == n.cfg.NodeID
	if !lowest && n.stores.Identity().ClusterID != "" {
		return nil, true, nil // the lowest node has sent the cluster id and brings the configuration
	}
	if len(absent) > 0 {
		return nil, false, fmt.Errorf("%w for peers: %s", errWaiting, strings.Join(absent, ", "))
	}
	if !lowest {
		return nil, false, fmt.Errorf("%w for %s to form the cluster", errWaiting, n.cfg.Peers[0].ID)
	}
	if clusterID == "" {
		clusterID = newClusterID()
	}
	n.members.found(features)
	if err := n.stores.SetClusterID(clusterID, false); err != nil {
		return nil, false, err
	}
	config := &raft.Configuration{}
	for _, p := range n.cfg.Peers {
		config.Servers = append(config.Servers,
			raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
		if p.ID == n.cfg.NodeID {
			continue
		}
		req := adminRequest{Op: opForm, ClusterID: clusterID, Features: features}
		if err := n.peers.ask(p.Addr, p.ID, req, &adminReply{}); err != nil {
			return nil, false, fmt.Errorf("%w for %s: %w", errWaiting, p.ID, err)
		}
		failpoint.Hit(failpoint.FormConfirmed)
	}
	n.log.Info("forming cluster", "cluster", clusterID, "peers", n.peerList())
	return config, true, nil
}

// join asks the cluster that peer p belongs to for membership.
func (f *former) join(p Peer, r adminReply) error {
	n := f.node
	mine := n.stores.Identity()
	known := slices.ContainsFunc(r.Members, func(m Member) bool { return m.ID == n.cfg.NodeID })
	switch {
	case mine.ClusterID != "" && mine.ClusterID != r.ClusterID:
		return fmt.Errorf("%w: %s belongs to %s, this node to %s", ErrOtherCluster, p.ID, r.ClusterID, mine.ClusterID)
	case mine.ClusterID != "" && !mine.Joins && known:
		return nil // a founding node without entries yet: the first leader may need its vote
	case r.Leader == "" && mine.ClusterID == "" && known:
		return fmt.Errorf("%w for the cluster to have a leader, "+
			"because only a leader can say whether this node may join: %s knows it as a member", errWaiting, p.ID)
	case r.Leader == "":
		return fmt.Errorf("%w for the cluster to have a leader", errWaiting)
	}
	ask := func(op string) (answer adminReply, err error) {
		req := adminRequest{Op: op, Node: n.cfg.NodeID, Addr: n.cfg.AdvertisePeerAddr, Features: n.reports()}
		err = n.peers.ask(r.LeaderAddr, r.Leader, req, &answer)
		return answer, err
	}
	if mine.ClusterID == "" {
		vacant, err := ask(opVacant)
		if err := f.joinError(vacant, err); err != nil {
			return err
		}
		if err := n.stores.SetClusterID(vacant.ClusterID, true); err != nil {
			return err
		}
		failpoint.Hit(failpoint.JoinNoted)
	}
	joined, err := ask(opJoin)
	if err := f.joinError(joined, err); err != nil {
		return err
	}
	failpoint.Hit(failpoint.JoinAnswered)
	if err := n.stores.SetJoined(joined.Index, joined.Term); err != nil {
		return err
	}
	failpoint.Hit(failpoint.JoinedNoted)
	n.log.Info("joined cluster", "cluster", n.ClusterID(), "leader", r.Leader)
	return nil
}

func newClusterID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// peerList formats --peers in a canonical form for comparison.
func (n *Node) peerList() string {
	var b strings.Builder
	for i, p := range n.cfg.Peers {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(p.ID + "=" + p.Addr)
	}
	return b.String()
}

// helloOf returns what this node reports about itself on every connection to a
// peer.
func helloOf(stores Stores) rpc.Hello {
	id := stores.Identity()
	return rpc.Hello{ClusterID: id.ClusterID, NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot}
}

// sessionOf returns the session of a node's current start. The session's name
// contains the identity of the data directory. A node that joins again with an
// empty directory counts its starts from 1 again, and its session must differ
// from the earlier ones.
func sessionOf(h rpc.Hello) fsm.SessionID {
	return fsm.SessionID{NodeID: h.NodeID + "@" + h.Instance, Boot: h.Boot}
}

// memberOf returns the id of the member that owns a session.
func memberOf(id fsm.SessionID) string {
	return id.NodeID[:max(strings.LastIndexByte(id.NodeID, '@'), 0)]
}

// sameCluster returns an error if a node belongs to another cluster.
func (n *Node) sameCluster(h rpc.Hello) error {
	mine := n.stores.Identity().ClusterID
	if h.ClusterID != "" && mine != "" && h.ClusterID != mine {
		return fmt.Errorf("%w: %s belongs to %s, %s to %s", ErrOtherCluster, h.NodeID, h.ClusterID, n.cfg.NodeID, mine)
	}
	return nil
}

// authorize returns an error if another node may not open a connection to this
// one.
func (n *Node) authorize(h rpc.Hello) error {
	if err := n.sameCluster(h); err != nil {
		return err
	}
	mine := n.stores.Identity().ClusterID
	if h.Service == rpc.ServiceAdmin {
		return nil
	}
	if h.ClusterID == "" || mine == "" {
		return errors.New("cluster is not formed yet")
	}
	r := n.raft.running()
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
	return fmt.Errorf("%s is not a member of this cluster", h.NodeID)
}

// Ready waits until the node has a link to a leader, so that it can serve
// clients.
func (n *Node) Ready(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !n.Linked() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w", ctx.Err())
		case <-n.ctx.Done():
			return outcome.ErrClosed
		case <-t.C:
		}
	}
	return nil
}

// Linked reports whether the node currently has a link to a leader.
func (n *Node) Linked() bool {
	n.forwarder.mu.Lock()
	defer n.forwarder.mu.Unlock()
	return n.forwarder.writes != nil
}
