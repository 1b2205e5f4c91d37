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
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Forming a cluster. Raft accepts a first configuration from anybody, so two
// nodes that both believe to be first would make two clusters. Here one node
// alone may: the one with the lowest id among --peers, and only after every
// other one has said that its directory is empty and that it was started with
// the same --peers. It tells all of them the cluster's id, which they make
// durable, before it writes the first configuration.
//
// A node that finds an existing cluster joins it if an operator has added it:
// see admission.go. If the cluster counts it as a voter, its directory has been
// wiped, and with it the memory of its votes, so that letting it back under its
// old name could elect a leader without acknowledged entries. Whether it does is a
// question to the leader, who answers by what is committed: any other member may
// have slept through the change that let the node in, or that removed it.
//
// What the leader has answered is made durable before the node asks to be
// taken in, and the leader takes in non-voters only. So an empty directory that
// says that it joins belongs to a node that has not taken part yet; it may ask
// again. What it may do while it reads the log is in suffrage.go.

// probeEvery paces the attempts to form or join.
const probeEvery = 200 * time.Millisecond

// form returns when raft may start, with a configuration if this node is the
// one to write it.
func (n *Node) form() (*raft.Configuration, error) {
	empty, err := n.stores.Empty()
	if err != nil {
		return nil, fmt.Errorf("read data directory: %w", err)
	}
	if !empty {
		return nil, nil
	}
	var complained string
	for {
		c, done, err := n.formOnce()
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

// unformed is the stable store of a node that is about to form its cluster. raft
// writes the first term and then the first entry, and takes a term for the sign of
// a cluster: after a crash between the two it would neither form one nor lead.
// form has made sure that there is nothing else.
type unformed struct{ raft.StableStore }

// GetUint64 implements raft.StableStore. raft asks for the current term only.
func (unformed) GetUint64([]byte) (uint64, error) { return 0, nil }

func (n *Node) setPhase(text string) {
	n.mu.Lock()
	n.phase = text
	n.mu.Unlock()
}

var errWaiting = errors.New("waiting")

func (n *Node) formOnce() (c *raft.Configuration, done bool, err error) {
	mine := n.stores.Identity()
	var absent []string
	var refused error // by the members that were found
	var differs error // with what another node without data was told
	clusterID := mine.ClusterID
	features := n.reports() // of all that were found
	for _, p := range n.cfg.Peers {
		if p.ID == n.cfg.NodeID {
			continue
		}
		var r adminReply
		err := n.ask(p.Addr, p.ID, adminRequest{Op: opProbe}, &r)
		features = min(features, r.Features)
		switch {
		case err != nil:
			if errors.Is(err, rpc.ErrSecret) {
				absent = append(absent, p.ID+" (cluster secret does not match)")
				continue
			}
			absent = append(absent, p.ID)
		case r.Member:
			err := n.join(p, r)
			if !errors.Is(err, errWaiting) {
				return nil, err == nil, err
			}
			if refused == nil {
				refused = err // another one may know who leads
			}
		case r.Peers != n.peerList():
			if differs == nil { // which does not matter if there is a cluster to join
				differs = fmt.Errorf("%w: %w: %s has %q, this node %q", errWaiting, ErrPeersDiffer, p.ID, r.Peers, n.peerList())
			}
		case r.ClusterID != "" && clusterID != "" && r.ClusterID != clusterID:
			return nil, false, fmt.Errorf("%w: %s", ErrOtherCluster, p.ID)
		case r.ClusterID != "":
			clusterID = r.ClusterID // told by an earlier attempt that was cut short
		}
	}
	if len(n.cfg.Peers) == 0 {
		return nil, false, errors.New("data directory is empty and --peers names nobody to form a cluster with")
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
		return nil, true, nil // told to start: the lowest node brings the configuration
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
	n.found(features)
	if err := n.stores.SetClusterID(clusterID, false); err != nil {
		return nil, false, err
	}
	config := &raft.Configuration{}
	for _, p := range n.cfg.Peers {
		config.Servers = append(config.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
		if p.ID == n.cfg.NodeID {
			continue
		}
		if err := n.ask(p.Addr, p.ID, adminRequest{Op: opForm, ClusterID: clusterID, Features: features}, &adminReply{}); err != nil {
			return nil, false, fmt.Errorf("%w for %s: %w", errWaiting, p.ID, err)
		}
		failpoint.Hit(failpoint.FormTold)
	}
	n.log.Info("forming cluster", "cluster", clusterID, "peers", n.peerList())
	return config, true, nil
}

// join asks the cluster that a peer belongs to for membership.
func (n *Node) join(p Peer, r adminReply) error {
	mine := n.stores.Identity()
	known := slices.ContainsFunc(r.Members, func(m Member) bool { return m.ID == n.cfg.NodeID })
	switch {
	case mine.ClusterID != "" && mine.ClusterID != r.ClusterID:
		return fmt.Errorf("%w: %s belongs to %s, this node to %s", ErrOtherCluster, p.ID, r.ClusterID, mine.ClusterID)
	case mine.ClusterID != "" && !mine.Joins && known:
		return nil // formed, and merely has no entry yet: the leader to come may need its vote
	case r.Leader == "" && mine.ClusterID == "" && known:
		return fmt.Errorf("%w for the cluster to have a leader, which alone can say whether this node may join: %s knows it as a member", errWaiting, p.ID)
	case r.Leader == "":
		return fmt.Errorf("%w for the cluster to have a leader", errWaiting)
	}
	ask := func(op string) (answer adminReply, err error) {
		req := adminRequest{Op: op, Node: n.cfg.NodeID, Addr: n.cfg.AdvertisePeerAddr, Features: n.reports()}
		err = n.ask(r.LeaderAddr, r.Leader, req, &answer)
		return answer, err
	}
	if mine.ClusterID == "" {
		vacant, err := ask(opVacant)
		if err := n.joinError(vacant, err); err != nil {
			return err
		}
		if err := n.stores.SetClusterID(vacant.ClusterID, true); err != nil {
			return err
		}
		failpoint.Hit(failpoint.JoinNoted)
	}
	joined, err := ask(opJoin)
	if err := n.joinError(joined, err); err != nil {
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

// peerList is --peers in a form that can be compared.
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

// hello is what this node says of itself on every connection to a peer.
func (n *Node) hello() rpc.Hello {
	id := n.stores.Identity()
	return rpc.Hello{ClusterID: id.ClusterID, NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot}
}

// sessionOf names the session of a node's present start. The data directory's
// identity is part of the name: a node that joins anew with an empty directory
// counts its starts from 1 again and must not be taken for its former self.
func sessionOf(h rpc.Hello) fsm.SessionID {
	return fsm.SessionID{NodeID: h.NodeID + "@" + h.Instance, Boot: h.Boot}
}

// memberOf returns the id of the member that a session belongs to.
func memberOf(id fsm.SessionID) string {
	return id.NodeID[:max(strings.LastIndexByte(id.NodeID, '@'), 0)]
}

// sameCluster refuses a node that belongs to another cluster.
func (n *Node) sameCluster(h rpc.Hello) error {
	mine := n.stores.Identity().ClusterID
	if h.ClusterID != "" && mine != "" && h.ClusterID != mine {
		return fmt.Errorf("%w: %s belongs to %s, %s to %s", ErrOtherCluster, h.NodeID, h.ClusterID, n.cfg.NodeID, mine)
	}
	return nil
}

// authorize says whether another node may open a connection.
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
	r := n.running()
	if r == nil {
		return errors.New("node is still starting")
	}
	if h.Service == rpc.ServiceRaft {
		// Also from nodes that are no members as far as this one knows: it may
		// have slept while the one that leads now was added, and would never learn
		// of it. Whom it does not know it does not vote for: raft sees to that.
		return nil
	}
	servers := r.GetConfiguration().Configuration().Servers
	if len(servers) == 0 {
		return nil // the first configuration is still on its way
	}
	for _, s := range servers {
		if string(s.ID) == h.NodeID {
			return nil
		}
	}
	return fmt.Errorf("%s is not a member of this cluster", h.NodeID)
}

// Ready waits until the node can serve: it has a way to a leader.
func (n *Node) Ready(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !n.Linked() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("node is not ready: %w", ctx.Err())
		case <-n.ctx.Done():
			return ErrClosed
		case <-t.C:
		}
	}
	return nil
}

// Linked reports whether the node has a way to a leader now.
func (n *Node) Linked() bool {
	n.gateway.mu.Lock()
	defer n.gateway.mu.Unlock()
	return n.gateway.writes != nil
}
