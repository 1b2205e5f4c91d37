package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/storage"
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
// came back under its old name, the cluster could elect a leader that lacks
// acknowledged entries. Only the leader can say whether the node is a voter,
// because it answers from the committed configuration: any other member may
// have missed the change that added or removed the node.
//
// The node makes the leader's answer durable before it asks to be admitted, and
// the leader admits only non-voters. So if a directory contains the leader's
// answer but no log, its node has not taken part in the cluster yet, and may
// ask again. raftlog/votes.go describes what the node may do while it receives
// the log.

// probeEvery is the time between attempts to form or join a cluster.
const probeEvery = 200 * time.Millisecond

// founder forms the cluster, or joins it if it has been formed already.
type founder struct {
	*environment
	raft     *raftInstance
	peers    *peers
	features *features.Features

	mu    sync.Mutex // guards phase
	phase string     // what the node waits for, or why it does not take part in the cluster; "" if neither applies
}

// form waits until raft may start. If this node is to write the first
// configuration, form returns that configuration. Otherwise it returns nil.
func (f *founder) form() (*raft.Configuration, error) {
	empty, err := f.stores.Empty()
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
			f.log.Info("waiting to form or join the cluster", "reason", text)
			f.setPhase(text)
		}
		select {
		case <-f.ctx.Done():
			return nil, f.ctx.Err()
		case <-time.After(probeEvery):
		}
	}
}

// setPhase stores what the node waits for, or why it does not take part in the
// cluster. text is "" if neither applies.
func (f *founder) setPhase(text string) {
	f.mu.Lock()
	f.phase = text
	f.mu.Unlock()
}

// waitsFor returns the text of the last setPhase.
func (f *founder) waitsFor() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.phase
}

var errWaiting = errors.New("waiting")

func (f *founder) formOnce() (c *raft.Configuration, done bool, err error) {
	mine := f.stores.Identity()
	var absent []string
	var refused error // why this node cannot join through the first member that answered
	var differs error // the error about the first node without data whose --peers differ
	clusterID := mine.ClusterID
	known := f.features.Reports() // highest feature version that all nodes found so far know
	for _, p := range f.cfg.Peers {
		if p.ID == f.cfg.NodeID {
			continue
		}
		var r adminReply
		err := f.peers.ask(p.Addr, p.ID, adminRequest{Op: opProbe}, &r)
		known = min(known, r.Features)
		switch {
		case err != nil:
			absent = append(absent, fmt.Sprintf("%s (%s)", p.ID, f.absence(p, err)))
		case r.Member:
			err := f.join(p, r)
			if !errors.Is(err, errWaiting) {
				return nil, err == nil, err
			}
			if refused == nil {
				refused = err // another member may know the leader
			}
		case r.Peers != f.cfg.peerList():
			if differs == nil { // ignored if there is a cluster to join
				differs = fmt.Errorf("%w: %w: %s has %q, this node %q",
					errWaiting, ErrPeersDiffer, p.ID, r.Peers, f.cfg.peerList())
			}
		case r.ClusterID != "" && clusterID != "" && r.ClusterID != clusterID:
			return nil, false, fmt.Errorf("%w: %s", ErrOtherCluster, p.ID)
		case r.ClusterID != "":
			clusterID = r.ClusterID // sent by an earlier attempt that was interrupted
		}
	}
	if len(f.cfg.Peers) == 0 {
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
	lowest := f.cfg.Peers[0].ID == f.cfg.NodeID
	if !lowest && f.stores.Identity().ClusterID != "" {
		return nil, true, nil // the node with the lowest id has sent the cluster id and will send the configuration
	}
	if len(absent) > 0 {
		return nil, false, fmt.Errorf("%w for peers: %s", errWaiting, strings.Join(absent, ", "))
	}
	if !lowest {
		return nil, false, fmt.Errorf("%w for %s to form the cluster", errWaiting, f.cfg.Peers[0].ID)
	}
	if clusterID == "" {
		clusterID = storage.NewClusterID()
	}
	f.features.SetFounding(known)
	if err := f.stores.SetClusterID(clusterID, false); err != nil {
		return nil, false, err
	}
	config := &raft.Configuration{}
	for _, p := range f.cfg.Peers {
		config.Servers = append(config.Servers,
			raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
		if p.ID == f.cfg.NodeID {
			continue
		}
		req := adminRequest{Op: opForm, ClusterID: clusterID, Features: known}
		if err := f.peers.ask(p.Addr, p.ID, req, &adminReply{}); err != nil {
			return nil, false, fmt.Errorf("%w for %s: %w", errWaiting, p.ID, err)
		}
		failpoint.Hit(failpoint.FormConfirmed)
	}
	if n := len(f.cfg.Peers); n%2 == 0 {
		f.log.Warn(evenAdvice(n), "peers", f.cfg.peerList())
	}
	f.log.Info("forming cluster", "cluster", clusterID, "peers", f.cfg.peerList())
	return config, true, nil
}

// join asks the cluster of peer p to admit this node. r is p's reply to
// opProbe.
func (f *founder) join(p Peer, r adminReply) error {
	mine := f.stores.Identity()
	known := slices.ContainsFunc(r.Members, func(m member.Member) bool { return m.ID == f.cfg.NodeID })
	switch {
	case mine.ClusterID != "" && mine.ClusterID != r.ClusterID:
		return fmt.Errorf("%w: %s belongs to %s, this node to %s", ErrOtherCluster, p.ID, r.ClusterID, mine.ClusterID)
	case mine.ClusterID != "" && !mine.Joins && known:
		return nil // a founding node without entries yet: the first leader may need its vote
	case r.Leader == "" && mine.ClusterID == "" && known:
		return fmt.Errorf("%w for the cluster to have a leader, "+
			"because only a leader can say whether this node may join: %s lists the node as a member", errWaiting, p.ID)
	case r.Leader == "":
		return fmt.Errorf("%w for the cluster to have a leader", errWaiting)
	}
	ask := func(op string) (answer adminReply, err error) {
		req := adminRequest{Op: op, Node: f.cfg.NodeID, Addr: f.cfg.AdvertisePeerAddr, Features: f.features.Reports()}
		err = f.peers.ask(r.LeaderAddr, r.Leader, req, &answer)
		return answer, err
	}
	if mine.ClusterID == "" {
		vacant, err := ask(opVacant)
		if err := f.joinError(vacant, err); err != nil {
			return err
		}
		if err := f.stores.SetClusterID(vacant.ClusterID, true); err != nil {
			return err
		}
		failpoint.Hit(failpoint.JoinNoted)
	}
	joined, err := ask(opJoin)
	if err := f.joinError(joined, err); err != nil {
		return err
	}
	failpoint.Hit(failpoint.JoinAnswered)
	if err := f.stores.SetJoined(joined.Index, joined.Term); err != nil {
		return err
	}
	failpoint.Hit(failpoint.JoinedNoted)
	f.log.Info("joined cluster", "cluster", f.stores.Identity().ClusterID, "leader", r.Leader)
	return nil
}

// joinError converts the leader's refusal of a node with an empty directory
// into an error of this node that tells the operator what to do.
func (f *founder) joinError(answer adminReply, err error) error {
	id, addr := f.cfg.NodeID, f.cfg.AdvertisePeerAddr
	switch {
	case answer.Alive != "":
		return fmt.Errorf("%w: %s is alive at %s. Do not remove it. "+
			"Give this process another --node-id and its own --data-dir, or stop the other process first",
			ErrAlive, id, answer.Alive)
	case answer.Known:
		return fmt.Errorf("%w: %s. A member that lost the record of its votes may not come back under its name. "+
			"Remedy: run \"holdfast member remove %s\" and \"holdfast member add %s %s\" against a live node, "+
			"then start this node again: it joins as a new member and copies the data", ErrWiped, id, id, id, addr)
	case err != nil:
		return fmt.Errorf("%w to join: %w", errWaiting, err)
	}
	return err
}
