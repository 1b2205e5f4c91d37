package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Questions of the admin stream. They are few and rare, so they are JSON.
const (
	frameAsk = 'J'

	opProbe    = "probe"    // what state are you in
	opForm     = "form"     // the cluster is being formed, this is its id
	opVacant   = "vacant"   // leader: may this node join, whose directory is empty
	opAdd      = "add"      // leader: permit a node to join
	opJoin     = "join"     // leader: this node has been added and begins to read the log
	opRemove   = "remove"   // leader: remove this node
	opTransfer = "transfer" // leader: hand leadership over
	opStatus   = "status"
)

type adminRequest struct {
	Op        string `json:"op"`
	ClusterID string `json:"cluster_id,omitempty"`
	Node      string `json:"node,omitempty"`
	Addr      string `json:"addr,omitempty"`
	Force     bool   `json:"force,omitempty"` // opRemove: also if it ends the quorum

	// Features is the highest feature version that the node that joins knows, and in
	// opForm the highest that all nodes know; 0 from programs that do not report it.
	Features int `json:"features,omitempty"`

	Instance string `json:"-"` // of who asks, from its connection
}

type adminReply struct {
	Error string `json:"error,omitempty"`

	ClusterID  string   `json:"cluster_id,omitempty"`
	Member     bool     `json:"member,omitempty"` // has a log, so belongs to a cluster
	Peers      string   `json:"peers,omitempty"`  // --peers
	Members    []Member `json:"members,omitempty"`
	Leader     string   `json:"leader,omitempty"`
	LeaderAddr string   `json:"leader_addr,omitempty"`
	Features   int      `json:"features,omitempty"` // as in NodeStatus

	Known bool   `json:"known,omitempty"` // opVacant, opJoin: the node is a voter, so its directory was wiped
	Alive string `json:"alive,omitempty"` // opVacant: where another process answers as this node

	// opJoin: the node is a member behind Index, said by the leader of Term.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`

	Status *NodeStatus `json:"status,omitempty"`

	Done string `json:"done,omitempty"` // opAdd, opRemove, opTransfer: what was done, for the operator
}

// Member is a node of the latest configuration.
type Member struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// adminTimeout bounds one question, configuration changes included.
const adminTimeout = 5 * time.Second

// ask puts one question to a node.
func (n *Node) ask(addr, id string, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	return n.askContext(ctx, addr, id, req, reply)
}

func (n *Node) askContext(ctx context.Context, addr, id string, req adminRequest, reply *adminReply) error {
	s, err := n.mux.Dial(ctx, addr, rpc.ServiceAdmin, id)
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	payload, err := json.Marshal(req)
	if err != nil {
		return err
	}
	if err := s.Send(frameAsk, payload); err != nil {
		return err
	}
	_, payload, err = s.Recv()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(payload, reply); err != nil {
		return fmt.Errorf("answer of %s: %w", addr, err)
	}
	if reply.Error != "" {
		return errors.New(reply.Error)
	}
	return nil
}

func (n *Node) serveAdmin(s *rpc.Stream) {
	defer context.AfterFunc(n.ctx, func() { s.Close() })()
	for {
		typ, payload, err := s.Recv()
		if err != nil {
			return
		}
		req := adminRequest{Instance: s.Peer().Instance}
		var reply adminReply
		if typ != frameAsk {
			reply.Error = errFrame.Error()
		} else if err := json.Unmarshal(payload, &req); err != nil {
			reply.Error = "malformed request: " + err.Error()
		} else if err := n.answer(req, &reply); err != nil {
			reply.Error = err.Error()
		}
		payload, err = json.Marshal(reply)
		if err != nil {
			n.log.Error("admin reply cannot be encoded", "op", req.Op, "error", err)
			return
		}
		if err := s.Send(frameAsk, payload); err != nil {
			return
		}
	}
}

func (n *Node) answer(req adminRequest, reply *adminReply) error {
	switch req.Op {
	case opProbe:
		return n.answerProbe(reply)
	case opForm:
		return n.answerForm(req)
	case opVacant:
		return n.answerVacant(req, reply)
	case opAdd:
		return n.addMember(req, reply)
	case opJoin:
		return n.admit(req, reply)
	case opRemove:
		return n.removeMember(n.ctx, req, reply)
	case opTransfer:
		return n.transfer(n.ctx, req.Node, reply)
	case opStatus:
		st := n.Status()
		reply.Status = &st
		return nil
	}
	return fmt.Errorf("unknown request %q", req.Op)
}

func (n *Node) answerProbe(reply *adminReply) error {
	empty, err := n.stores.Empty()
	if err != nil {
		return err
	}
	reply.ClusterID = n.stores.Identity().ClusterID
	reply.Peers, reply.Features = n.peerList(), n.reports()
	if empty {
		return nil
	}
	reply.Member = true
	if r := n.running(); r != nil {
		reply.Members = membersOf(r)
		addr, id := r.LeaderWithID()
		reply.Leader, reply.LeaderAddr = string(id), string(n.addressOf(id, addr))
	}
	return nil
}

func (n *Node) answerForm(req adminRequest) error {
	empty, err := n.stores.Empty()
	if err != nil {
		return err
	}
	mine := n.stores.Identity().ClusterID
	if !empty || mine != "" && mine != req.ClusterID {
		return fmt.Errorf("%w: %s has data or another cluster id already", ErrOtherCluster, n.cfg.NodeID)
	}
	n.found(req.Features) // before the id, at which this node starts
	return n.stores.SetClusterID(req.ClusterID, false)
}

func membersOf(r *raft.Raft) []Member {
	var members []Member
	for _, s := range r.GetConfiguration().Configuration().Servers {
		members = append(members, Member{ID: string(s.ID), Addr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	sort.Slice(members, func(i, j int) bool { return members[i].ID < members[j].ID })
	return members
}

// NodeStatus is what one node says of itself.
type NodeStatus struct {
	ID         string  `json:"id"`
	ClusterID  string  `json:"cluster_id,omitempty"`
	Role       string  `json:"role"` // leader, follower, candidate, starting, unreachable
	Voter      bool    `json:"voter"`
	Leader     string  `json:"leader,omitempty"`
	Term       uint64  `json:"term"`
	Commit     uint64  `json:"commit_index"`
	Applied    uint64  `json:"applied_index"`
	LastIndex  uint64  `json:"last_index"`
	Lag        uint64  `json:"lag"` // entries behind the leader's commit index
	ClientAddr string  `json:"client_addr,omitempty"`
	Sentinel   string  `json:"sentinel_addr,omitempty"`
	PeerAddr   string  `json:"peer_addr"`
	HTTPAddr   string  `json:"http_addr,omitempty"`
	Version    string  `json:"version,omitempty"`
	Uptime     float64 `json:"uptime_seconds"`
	Keys       int     `json:"keys"`
	LogBytes   int64   `json:"log_bytes"`
	// StateIndex and StateHash are a point of the chain over all that the node
	// has applied: nodes that show the same index must show the same hash.
	StateIndex uint64 `json:"state_index"`
	StateHash  string `json:"state_hash,omitempty"`
	PID        int    `json:"pid,omitempty"`
	RunID      string `json:"run_id,omitempty"`
	Reachable  bool   `json:"reachable"`
	Ready      bool   `json:"ready"` // has a way to a leader
	Detail     string `json:"detail,omitempty"`
	// SnapshotError says since when no snapshot could be taken, and why.
	SnapshotError string `json:"snapshot_error,omitempty"`
	// Features is the highest feature version that the node's program knows, 0 if it
	// does not say, and FeatureVersion that of the cluster, as far as the node has
	// applied the log. FeaturesBlocked says, on the leader, why it is not raised.
	Features        int    `json:"features,omitempty"`
	FeatureVersion  int    `json:"feature_version"`
	FeaturesBlocked string `json:"features_blocked,omitempty"`
	// Settling is set until the log has come to the change that took the node in.
	Settling bool `json:"settling,omitempty"`
}

// Status returns this node's own state.
func (n *Node) Status() NodeStatus {
	id := n.stores.Identity()
	st := NodeStatus{
		ID: id.NodeID, ClusterID: id.ClusterID, Role: "starting", ClientAddr: n.cfg.ClientAddr, Sentinel: n.cfg.SentinelAddr, PeerAddr: n.cfg.AdvertisePeerAddr,
		RunID: n.cfg.RunID, HTTPAddr: n.cfg.HTTPAddr, Version: n.cfg.Version, Uptime: n.clock.Wall().Sub(n.started).Seconds(),
		LogBytes: n.stores.LogBytes(), Reachable: true, Ready: n.Linked(), PID: pid, Settling: n.settling(),
		SnapshotError: n.snapshots.text(),
		Features:      n.reports(), FeatureVersion: n.Features(), FeaturesBlocked: describe(n.featuresBlocked()),
	}
	n.machine.view(func(m *fsm.Machine) {
		st.Keys = m.Len()
		index, hash := m.Hash()
		st.StateIndex, st.StateHash = index, fmt.Sprintf("%016x", hash)
	})
	n.mu.Lock()
	r := n.raft
	st.Detail = n.phase
	n.mu.Unlock()
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
	st.Term, st.Commit, st.LastIndex = r.CurrentTerm(), n.committed(), r.LastIndex()
	st.Applied = n.machine.applied.Load()
	for _, m := range membersOf(r) {
		if m.ID == id.NodeID {
			st.Voter = m.Voter && !st.Settling // a log that is read from its start tells of former lives
		}
	}
	return st
}

// ClusterStatus asks every member for its state. Members that do not answer
// within a second are listed as unreachable.
func (n *Node) ClusterStatus(ctx context.Context) []NodeStatus {
	var members []Member
	if r := n.running(); r != nil {
		members = membersOf(r)
	}
	if len(members) == 0 {
		for _, p := range n.cfg.Peers {
			members = append(members, Member{ID: p.ID, Addr: p.Addr, Voter: true})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	out := make([]NodeStatus, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		if m.ID == n.cfg.NodeID {
			out[i] = n.Status()
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			addr := string(n.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
			var r adminReply
			if err := n.askContext(ctx, addr, m.ID, adminRequest{Op: opStatus}, &r); err != nil || r.Status == nil {
				detail := "no status in the answer"
				if err != nil {
					detail = err.Error()
				}
				out[i] = NodeStatus{ID: m.ID, Role: "unreachable", PeerAddr: addr, Voter: m.Voter, Detail: detail}
				return
			}
			out[i] = *r.Status
			// Not what the node itself believes: one that joins anew replays the
			// memberships of the past, its own former one among them.
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
