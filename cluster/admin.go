package cluster

import (
	"cmp"
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

// Requests on the admin stream. They are rare, so they are encoded as JSON.
const (
	frameAsk = 'J'

	opProbe    = "probe"    // return the node's state
	opForm     = "form"     // store the id of the cluster that is being formed
	opVacant   = "vacant"   // leader: check whether a node with an empty directory may join
	opAdd      = "add"      // leader: permit a node to join
	opJoin     = "join"     // leader: admit a node that was added and now starts to read the log
	opRemove   = "remove"   // leader: remove a node
	opTransfer = "transfer" // leader: transfer leadership
	opStatus   = "status"
)

type adminRequest struct {
	Op        string `json:"op"`
	ClusterID string `json:"cluster_id,omitempty"`
	Node      string `json:"node,omitempty"`
	Addr      string `json:"addr,omitempty"`
	Force     bool   `json:"force,omitempty"` // opRemove: even if the remaining voters may have no majority

	// Features is the highest feature version that the joining node knows. In
	// opForm it is the highest one that all nodes know. It is 0 if the program
	// does not report it.
	Features int `json:"features,omitempty"`

	Instance string `json:"-"` // data directory of the requester, from its connection
}

type adminReply struct {
	Error   string        `json:"error,omitempty"`
	Outcome *adminOutcome `json:"outcome,omitempty"` // set if the error is an OutcomeError

	ClusterID  string   `json:"cluster_id,omitempty"`
	Member     bool     `json:"member,omitempty"` // the node has a log, so it belongs to a cluster
	Peers      string   `json:"peers,omitempty"`  // value of --peers
	Members    []Member `json:"members,omitempty"`
	Leader     string   `json:"leader,omitempty"`
	LeaderAddr string   `json:"leader_addr,omitempty"`
	Features   int      `json:"features,omitempty"` // as in NodeStatus

	// Known is set by opVacant and opJoin if the node is a voter. Then its
	// directory has been wiped.
	Known bool `json:"known,omitempty"`
	// Alive is set by opVacant: the address at which another process answers
	// under the node's id.
	Alive string `json:"alive,omitempty"`

	// Index and Term are set by opJoin. The leader of Term states that the node
	// is a member after Index.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`

	Status *NodeStatus `json:"status,omitempty"`

	Done string `json:"done,omitempty"` // opAdd, opRemove, opTransfer: what was done, for the operator
}

// adminOutcome is the JSON form of an OutcomeError.
type adminOutcome struct {
	Outcome   Outcome `json:"outcome"`
	Retryable bool    `json:"retryable,omitempty"`
	Text      string  `json:"text"`
	Advice    string  `json:"advice,omitempty"`
}

// Member is a node in the latest configuration.
type Member struct {
	ID    string `json:"id"`
	Addr  string `json:"addr"`
	Voter bool   `json:"voter"`
}

// adminTimeout bounds one request, including a change of the configuration.
const adminTimeout = 5 * time.Second

// ask sends one request to a node and waits up to adminTimeout for the reply.
func (n *Node) ask(addr, id string, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	return n.askContext(ctx, addr, id, req, reply)
}

func (n *Node) askContext(ctx context.Context, addr, id string, req adminRequest, reply *adminReply) error {
	s, err := n.mux.Dial(ctx, addr, rpc.ServiceAdmin, id)
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
	// From here on, the other node may have executed the request.
	unanswered := func(err error) error {
		if req.changes() {
			return ChangeUnknown(fmt.Errorf("%s has not answered: %w", cmp.Or(id, addr), err))
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
	if err := json.Unmarshal(payload, reply); err != nil {
		return unanswered(fmt.Errorf("answer of %s: %w", addr, err))
	}
	return reply.failure()
}

// changes reports whether the request makes the leader change the members or
// transfer leadership.
func (req adminRequest) changes() bool {
	return req.Op == opAdd || req.Op == opJoin || req.Op == opRemove || req.Op == opTransfer
}

// fail stores an error in the reply, with its outcome.
func (reply *adminReply) fail(err error) {
	reply.Error = err.Error()
	if o := (*OutcomeError)(nil); errors.As(err, &o) {
		reply.Outcome = &adminOutcome{Outcome: OutcomeOf(err), Retryable: o.retryable, Text: o.text, Advice: o.advice}
	}
}

// failure returns the error of the reply, or nil. Programs older than
// fsm.FeatureBudget send no outcome; for them failure returns an error with the
// text only.
func (reply *adminReply) failure() error {
	switch o := reply.Outcome; {
	case reply.Error == "":
		return nil
	case o == nil:
		return errors.New(reply.Error)
	default:
		return &OutcomeError{outcome: o.Outcome, retryable: o.Retryable, text: o.Text, advice: o.Advice}
	}
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
		} else if err := n.answer(n.ctx, req, &reply); err != nil {
			reply.fail(err)
		}
		payload, err = json.Marshal(reply)
		if err != nil {
			n.log.Error("failed to encode admin reply", "op", req.Op, "error", err)
			return
		}
		if err := s.Send(frameAsk, payload); err != nil {
			return
		}
	}
}

func (n *Node) answer(ctx context.Context, req adminRequest, reply *adminReply) error {
	switch req.Op {
	case opProbe:
		return n.answerProbe(reply)
	case opForm:
		return n.answerForm(req)
	case opVacant:
		return n.answerVacant(req, reply)
	case opAdd:
		return n.addMember(ctx, req, reply)
	case opJoin:
		return n.admit(ctx, req, reply)
	case opRemove:
		return n.removeMember(ctx, req, reply)
	case opTransfer:
		return n.transfer(ctx, req.Node, reply)
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
	n.found(req.Features) // before the id is stored, because then this node starts
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

// NodeStatus is the state that one node reports about itself.
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
	Lag        uint64  `json:"lag"` // entries behind the highest known commit index
	ClientAddr string  `json:"client_addr,omitempty"`
	Sentinel   string  `json:"sentinel_addr,omitempty"`
	PeerAddr   string  `json:"peer_addr"`
	HTTPAddr   string  `json:"http_addr,omitempty"`
	Version    string  `json:"version,omitempty"`
	Uptime     float64 `json:"uptime_seconds"`
	Keys       int     `json:"keys"`
	LogBytes   int64   `json:"log_bytes"`
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
	// SnapshotError says why no snapshot can be taken, and since when.
	SnapshotError string `json:"snapshot_error,omitempty"`
	// Features is the highest feature version that the node's program knows, or
	// 0 if the program does not report it. FeatureVersion is the feature
	// version of the cluster as of the last entry that the node has applied. On
	// the leader, FeaturesBlocked says why the feature version cannot be
	// raised.
	Features        int    `json:"features,omitempty"`
	FeatureVersion  int    `json:"feature_version"`
	FeaturesBlocked string `json:"features_blocked,omitempty"`
	// Settling is set until the node's log contains the change that admitted
	// the node.
	Settling bool `json:"settling,omitempty"`
	// Stopping is set from the beginning of an orderly stop. A node that is
	// stopping must not become leader.
	Stopping bool `json:"stopping,omitempty"`
}

// Status returns this node's own state.
func (n *Node) Status() NodeStatus {
	id := n.stores.Identity()
	st := NodeStatus{
		ID: id.NodeID, ClusterID: id.ClusterID, Role: "starting",
		ClientAddr: n.cfg.ClientAddr, Sentinel: n.cfg.SentinelAddr, PeerAddr: n.cfg.AdvertisePeerAddr,
		RunID: n.cfg.RunID, HTTPAddr: n.cfg.HTTPAddr, Version: n.cfg.Version,
		Uptime:   n.clock.Wall().Sub(n.started).Seconds(),
		LogBytes: n.stores.LogBytes(), Reachable: true, Ready: n.Linked(), PID: pid,
		Settling: n.settling(), Stopping: n.stopping.Load(),
		SnapshotError: n.snapshots.text(),
		Features:      n.reports(), FeatureVersion: n.Features(), FeaturesBlocked: describe(n.featuresBlocked()),
	}
	n.machine.View(func(m *fsm.Machine) {
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
	st.Applied = n.machine.Applied()
	for _, m := range membersOf(r) {
		if m.ID == id.NodeID {
			// While a node reads the log from its start, it sees its former
			// memberships, so raft's configuration may name it a voter.
			st.Voter = m.Voter && !st.Settling
		}
	}
	return st
}

// ClusterStatus asks every member for its state, at the same time, and reports
// a member as unreachable if it does not answer within a second.
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
