package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/diskspace"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/fsm"
)

// NodeStatus is the state that one node reports about itself.
type NodeStatus struct {
	ID        string `json:"id"`
	ClusterID string `json:"cluster_id,omitempty"`
	Role      string `json:"role"` // leader, follower, candidate, starting, removed, unreachable
	Voter     bool   `json:"voter"`
	Leader    string `json:"leader,omitempty"`
	LogStatus
	Endpoints
	DiskStatus
	Version  string  `json:"version,omitempty"`
	Uptime   float64 `json:"uptime_seconds"`
	Keys     int     `json:"keys"`
	LogBytes int64   `json:"log_bytes"`
	// StateIndex and StateHash are one point of the hash chain over everything
	// that the node has applied. Nodes that report the same index must report
	// the same hash.
	StateIndex uint64 `json:"state_index"`
	StateHash  string `json:"state_hash,omitempty"`
	PID        int    `json:"pid,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	Reachable  bool   `json:"reachable"`
	Ready      bool   `json:"ready"` // the node has a link to a leader
	Detail     string `json:"detail,omitempty"`
	// LastAnswer is when an unreachable member last answered the node that
	// reports this, by that node's wall clock. It is zero if the member has not
	// answered since that node started.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// SnapshotError says why no snapshot can be taken, and since when.
	SnapshotError string `json:"snapshot_error,omitempty"`
	FeatureStatus
	RestoreStatus
	// Settling is set until the node's log contains the change that admitted
	// the node.
	Settling bool `json:"settling,omitempty"`
	// Stopping is set from the beginning of an orderly stop. A node that is
	// stopping must not become leader.
	Stopping bool `json:"stopping,omitempty"`
}

// DiskStatus is the state of the file system that contains a node's data
// directory.
type DiskStatus = diskspace.Status

// LogStatus describes which part of the log a node has received and applied.
type LogStatus struct {
	Term      uint64 `json:"term"`
	Commit    uint64 `json:"commit_index"`
	Applied   uint64 `json:"applied_index"`
	LastIndex uint64 `json:"last_index"`
	Lag       uint64 `json:"lag"` // entries behind the highest known commit index
}

// Endpoints are the addresses of a node.
type Endpoints struct {
	ClientAddr string `json:"client_addr,omitempty"`
	Sentinel   string `json:"sentinel_addr,omitempty"`
	PeerAddr   string `json:"peer_addr"`
	HTTPAddr   string `json:"http_addr,omitempty"`
}

// FeatureStatus is what a node knows about feature versions.
type FeatureStatus struct {
	// Features is the highest feature version that the node's program knows, or
	// 0 if the program does not report it. FeatureVersion is the feature
	// version of the cluster as of the last entry that the node has applied. On
	// the leader, FeaturesBlocked says why the feature version cannot be
	// raised.
	Features        int    `json:"features,omitempty"`
	FeatureVersion  int    `json:"feature_version"`
	FeaturesBlocked string `json:"features_blocked,omitempty"`
}

// RestoreStatus is what a restore or a recovery has left behind.
type RestoreStatus struct {
	// Quarantine is how long no lock is granted, in seconds. It is 0 if there is
	// no quarantine.
	Quarantine float64 `json:"quarantine_seconds,omitempty"`
	// TokenEpoch is the epoch of the cluster's fencing tokens.
	TokenEpoch uint64 `json:"token_epoch,omitempty"`
}

// WritesRefused returns why the cluster refuses commands that add data, as far as
// this node knows, or "".
func (n *Node) WritesRefused() string { return n.disk.Full() }

// Status returns this node's own state.
func (n *Node) Status() NodeStatus { return n.status.own() }

// ClusterStatus asks every member for its state, at the same time, and reports
// a member as unreachable if it does not answer within a second.
func (n *Node) ClusterStatus(ctx context.Context) []NodeStatus { return n.status.ofCluster(ctx) }

// statusReporter collects the state of this node and of the other members.
type statusReporter struct {
	*environment
	started   time.Time // by the wall clock
	raft      *raftInstance
	raftLog   *raftlog.Log
	machine   *machine.Machine
	peers     *peers
	founder   *founder
	features  *features
	forwarder *forwarder
	snapshots *snapshotter
	health    *healthBook
	disk      *diskspace.Monitor
	removal   *removalWatch
}

func (sr *statusReporter) own() NodeStatus {
	id := sr.stores.Identity()
	st := NodeStatus{
		ID: id.NodeID, ClusterID: id.ClusterID, Role: "starting",
		Endpoints: Endpoints{
			ClientAddr: sr.cfg.ClientAddr, Sentinel: sr.cfg.SentinelAddr,
			PeerAddr: sr.cfg.AdvertisePeerAddr, HTTPAddr: sr.cfg.HTTPAddr,
		},
		RunID: sr.cfg.RunID, Version: sr.cfg.Version,
		Uptime:   sr.clock.Wall().Sub(sr.started).Seconds(),
		LogBytes: sr.stores.LogBytes(), Reachable: true, Ready: sr.forwarder.isLinked(), PID: pid,
		Settling: sr.raft.settling(), Stopping: sr.stopping.Load(),
		SnapshotError: sr.snapshots.health.text(), DiskStatus: sr.disk.Status(),
		FeatureStatus: FeatureStatus{
			Features: sr.features.reports(), FeatureVersion: sr.machine.Features(),
			FeaturesBlocked: describe(sr.features.blockers()),
		},
	}
	sr.machine.View(func(m *fsm.Machine) {
		st.Keys, st.TokenEpoch = m.Len(), fsm.TokenEpoch(m.Token())
		index, hash := m.Hash()
		st.StateIndex, st.StateHash = index, fmt.Sprintf("%016x", hash)
	})
	st.Quarantine = quarantineOf(sr.machine).Seconds()
	r := sr.raft.running()
	st.Detail = sr.founder.waitsFor()
	if r == nil {
		return st
	}
	switch r.State() {
	case raft.Leader:
		st.Role = "leader"
	case raft.Candidate:
		st.Role = "candidate"
	case raft.Follower:
		st.Role = "follower"
	}
	_, leader := r.LeaderWithID()
	st.Leader = string(leader)
	st.Term, st.Commit, st.LastIndex = r.CurrentTerm(), sr.raft.committed(sr.raftLog), r.LastIndex()
	st.Applied = sr.machine.Applied()
	for _, m := range membersOf(r) {
		if m.ID == id.NodeID {
			// While a node reads the log from its start, it sees its earlier
			// memberships, so raft's configuration may name it a voter.
			st.Voter = m.Voter && !st.Settling
		}
	}
	if sr.removal.removed.Load() {
		st.Role, st.Voter = "removed", false
	}
	return st
}

// statusLimit is how long ClusterStatus waits for a member.
const statusLimit = time.Second

// ofCluster implements Node.ClusterStatus.
func (sr *statusReporter) ofCluster(ctx context.Context) []NodeStatus {
	var members []member.Member
	if r := sr.raft.running(); r != nil {
		members = membersOf(r)
	}
	if len(members) == 0 {
		for _, p := range sr.cfg.Peers {
			members = append(members, member.Member{ID: p.ID, Addr: p.Addr, Voter: true})
		}
	}
	if _, ok := member.Find(members, sr.cfg.NodeID); !ok && len(members) > 0 { // this node was removed
		members = append(members, member.Member{ID: sr.cfg.NodeID, Addr: sr.cfg.AdvertisePeerAddr})
	}
	ctx, cancel := context.WithTimeout(ctx, statusLimit)
	defer cancel()
	out := make([]NodeStatus, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID == sr.cfg.NodeID {
			out[i] = sr.own()
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			addr := string(sr.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
			var r adminReply
			err := sr.peers.askContext(ctx, addr, m.ID, adminRequest{Op: opStatus}, &r)
			if err != nil || r.Status == nil {
				detail := "no status in the answer"
				if err != nil {
					detail = shortReason(err)
				}
				out[i] = NodeStatus{
					ID: m.ID, Role: "unreachable", Endpoints: Endpoints{PeerAddr: addr}, Voter: m.Voter, Detail: detail,
					LastAnswer: sr.health.of(m.ID).Heard,
				}
				return
			}
			out[i] = *r.Status
			// Use the configuration of this node, not the other node's own
			// view: a node that joins again replays past configurations, in
			// which it may have been a voter.
			out[i].Voter = m.Voter
		}()
	}
	wg.Wait()
	var commit uint64
	for _, st := range out {
		commit = max(commit, st.Commit)
	}
	for i := range out {
		if out[i].Reachable {
			out[i].Lag = commit - min(out[i].Applied, commit)
		}
	}
	return out
}

// PeerHealth is what a member of the cluster answered when this node last asked
// it: that it is up, and where clients reach it. The log contains only the
// addresses for peers. ClientAddr, SentinelAddr and RunID are empty until the
// member has answered once.
type PeerHealth struct {
	ID           string
	PeerAddr     string
	ClientAddr   string
	SentinelAddr string // "" if the member has no Sentinel port
	HTTPAddr     string
	RunID        string    // RunID identifies the member's process.
	Applied      uint64    // applied index
	Heard        time.Time // when the member last answered, by this node's wall clock
	Voter        bool
	Alive        bool // the member answered the latest request
	Disk         DiskStatus
}

// peerHealthEvery is how often this node asks the members. It bounds how long a
// node that has died is still listed as alive.
const peerHealthEvery = time.Second

// healthBook is what the members last reported about themselves.
type healthBook struct {
	wall    func() time.Time
	changed func()        // called without mu held
	now     chan struct{} // capacity 1: ask the members now

	mu   sync.Mutex
	last map[string]PeerHealth // by id
}

func newHealthBook(wall func() time.Time, changed func()) *healthBook {
	return &healthBook{wall: wall, changed: changed, now: make(chan struct{}, 1), last: make(map[string]PeerHealth)}
}

// keep asks the members for their status until ctx ends.
func (b *healthBook) keep(ctx context.Context, ask func(context.Context) []NodeStatus) {
	t := time.NewTicker(peerHealthEvery)
	defer t.Stop()
	for {
		b.learn(ask(ctx))
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-b.now:
		}
	}
}

func (b *healthBook) learn(status []NodeStatus) {
	b.mu.Lock()
	changed := false
	for _, st := range status {
		known := b.last[st.ID]
		now := known
		now.ID, now.Alive = st.ID, st.Reachable
		if st.Reachable {
			now.ClientAddr, now.SentinelAddr, now.RunID, now.Applied = st.ClientAddr, st.Sentinel, st.RunID, st.Applied
			now.HTTPAddr = st.HTTPAddr
			now.Heard, now.Disk = b.wall(), st.DiskStatus
		}
		b.last[st.ID] = now
		// ignore the fields that always change, and those that clients do not see
		known.Applied, known.Heard, known.Disk = now.Applied, now.Heard, now.Disk
		changed = changed || now != known
	}
	b.mu.Unlock()
	if changed {
		b.changed()
	}
}

// silent records that a member is down because its process has been found dead.
// It does not wait for the next request.
func (b *healthBook) silent(id string) {
	b.mu.Lock()
	c := b.last[id]
	c.ID, c.Alive = id, false
	b.last[id] = c
	b.mu.Unlock()
	b.changed()
}

// of returns what a member last reported.
func (b *healthBook) of(id string) PeerHealth {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last[id]
}

// PeerHealth returns the members of the latest configuration, ordered by id.
// Information about this node is current; information about peers is as last
// reported.
func (n *Node) PeerHealth() []PeerHealth {
	r := n.raft.running()
	if r == nil {
		return nil
	}
	members := membersOf(r)
	out := make([]PeerHealth, 0, len(members))
	for _, m := range members {
		c := n.health.of(m.ID)
		if m.ID == n.cfg.NodeID {
			c = PeerHealth{
				ClientAddr: n.cfg.ClientAddr, SentinelAddr: n.cfg.SentinelAddr, RunID: n.cfg.RunID,
				Applied: n.machine.Applied(), Heard: n.clock.Wall(), Alive: true,
			}
		}
		c.ID, c.PeerAddr, c.Voter = m.ID, m.Addr, m.Voter
		out = append(out, c)
	}
	return out
}

// Acknowledging returns a list of other voters, as many as must have a write on
// disk before the write is acknowledged. Voters that answer come first and the
// leader comes last. Different writes are acknowledged by different voters. The
// length of the list depends only on the membership, so it is the same on every
// node, with or without a leader.
func (n *Node) Acknowledging() []PeerHealth {
	leader, _ := n.Leader()
	var alive, silent, leads []PeerHealth
	for _, c := range n.PeerHealth() {
		switch {
		case !c.Voter || c.ID == n.cfg.NodeID:
		case c.ID == leader:
			leads = append(leads, c)
		case c.Alive:
			alive = append(alive, c)
		default:
			silent = append(silent, c)
		}
	}
	others := append(append(alive, silent...), leads...)
	return others[:(len(others)+1)/2]
}
