package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
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
	opPromote  = "promote"  // leader: make a non-voter a voter
	opTransfer = "transfer" // leader: transfer leadership
	opStatus   = "status"
	opReport   = "report"  // return the answer of the node's reporter: see Node.SetReporter
	opRemoved  = "removed" // the leader sends it to a node that was removed; the node then asks whether that is true
)

type adminRequest struct {
	Op        string `json:"op"`
	ClusterID string `json:"cluster_id,omitempty"`
	Node      string `json:"node,omitempty"`
	Addr      string `json:"addr,omitempty"`
	Force     bool   `json:"force,omitempty"` // opRemove: skip the check of the remaining voters

	// Features is the highest feature version that the joining node knows. In
	// opForm it is the highest version that all nodes know. It is 0 if the
	// sender's program reports no feature version.
	Features int `json:"features,omitempty"`

	// Learner is set in opAdd if the node remains a non-voter until an operator
	// promotes it.
	Learner bool `json:"learner,omitempty"`

	// Query is the question that opReport passes to the node's reporter.
	Query string `json:"query,omitempty"`

	auto bool // the leader itself requests the removal: see removeAway

	Instance string `json:"-"` // identity of the requester's data directory, from its connection
}

type adminReply struct {
	Error   string        `json:"error,omitempty"`
	Outcome *adminOutcome `json:"outcome,omitempty"` // set if the error is an outcome.Error

	ClusterID  string          `json:"cluster_id,omitempty"`
	Member     bool            `json:"member,omitempty"` // the node has a log, so it belongs to a cluster
	Peers      string          `json:"peers,omitempty"`  // value of --peers
	Members    []member.Member `json:"members,omitempty"`
	Leader     string          `json:"leader,omitempty"`
	LeaderAddr string          `json:"leader_addr,omitempty"`
	Features   int             `json:"features,omitempty"` // as in NodeStatus

	// opVacant and opJoin set Known if the node is a voter, which means that
	// its directory has been wiped.
	Known bool `json:"known,omitempty"`
	// opVacant sets Alive if another process runs under the node's id. Alive is
	// the address of that process.
	Alive string `json:"alive,omitempty"`

	// opProbe sets Last to the last log index, Commit to the commit index, and
	// Term to the node's term. The node reads Last after Members.
	Last   uint64 `json:"last,omitempty"`
	Commit uint64 `json:"commit,omitempty"`

	// opJoin sets Index to the log index of the entry that admits the node, and
	// Term to the term of that entry: see raftlog/votes.go.
	Index uint64 `json:"index,omitempty"`
	Term  uint64 `json:"term,omitempty"`

	Status *NodeStatus     `json:"status,omitempty"`
	Report json.RawMessage `json:"report,omitempty"` // opReport

	took time.Duration // time between the request and the reply, without the handshake

	Done string `json:"done,omitempty"` // opAdd, opRemove, opPromote, opTransfer: the result, for the operator
}

// adminOutcome is the JSON form of an outcome.Error.
type adminOutcome struct {
	Outcome   outcome.Outcome `json:"outcome"`
	Retryable bool            `json:"retryable,omitempty"`
	Text      string          `json:"text"`
	Advice    string          `json:"advice,omitempty"`
}

// adminTimeout bounds one request to another node, including the change of the
// configuration that the request causes. For a request that any node may pass to
// the leader, see changeTimeout.
const adminTimeout = 5 * time.Second

// changes reports whether the request makes the leader change the members or
// transfer leadership.
func (req adminRequest) changes() bool {
	return req.Op == opAdd || req.Op == opJoin || req.Op == opRemove || req.Op == opTransfer || req.Op == opPromote
}

// fail stores an error in the reply, with its outcome.
func (reply *adminReply) fail(err error) {
	reply.Error = err.Error()
	if o := (*outcome.Error)(nil); errors.As(err, &o) {
		reply.Outcome = &adminOutcome{
			Outcome: outcome.Of(err), Retryable: o.Retryable(), Text: o.Reason(), Advice: o.Advice(),
		}
	}
}

// failure returns the error of the reply, or nil. Programs older than
// fsm.FeatureBudget send no outcome. For a reply of such a program, failure
// returns an error with the text only.
func (reply *adminReply) failure() error {
	switch o := reply.Outcome; {
	case reply.Error == "":
		return nil
	case o == nil:
		return errors.New(reply.Error)
	default:
		return outcome.Decode(o.Outcome, o.Retryable, o.Text, o.Advice)
	}
}

// admin sends requests to other nodes, and answers their requests. The groups
// of clients have streams of their own.
type admin struct {
	*environment
	raft      *raftInstance
	peers     *peers
	founder   *founder
	members   *membership
	transfers *transfers
	status    *statusReporter
}

// askLeader sends a request to the leader and returns its reply. It fails with
// outcome.ErrNoLeader if this node knows no leader.
func (a *admin) askLeader(ctx context.Context, req adminRequest) (adminReply, error) {
	var reply adminReply
	r := a.raft.running()
	if r == nil {
		return reply, outcome.ErrNoLeader
	}
	addr, id := r.LeaderWithID()
	switch id {
	case "":
		return reply, outcome.ErrNoLeader
	case a.self:
		return reply, a.answer(ctx, req, &reply)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return reply, a.peers.askContext(ctx, string(a.peers.addressOf(id, addr)), string(id), req, &reply)
}

// serve answers the requests on an admin stream until the stream or the node
// ends.
func (a *admin) serve(s *rpc.Stream) {
	defer context.AfterFunc(a.ctx, func() { s.Close() })()
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
		} else if err := a.answer(a.ctx, req, &reply); err != nil {
			reply.fail(err)
		}
		payload, err = json.Marshal(reply)
		if err != nil {
			a.log.Error("failed to encode admin reply", "op", req.Op, "error", err)
			return
		}
		if err := s.Send(frameAsk, payload); err != nil {
			return
		}
	}
}

func (a *admin) answer(ctx context.Context, req adminRequest, reply *adminReply) error {
	switch req.Op {
	case opProbe:
		return a.founder.answerProbe(reply)
	case opForm:
		return a.founder.answerForm(req)
	case opVacant:
		return a.members.answerVacant(req, reply)
	case opAdd:
		return a.members.add(ctx, req, reply)
	case opJoin:
		return a.members.admit(ctx, req, reply)
	case opRemove:
		return a.remove(ctx, req, reply)
	case opPromote:
		return a.members.promoteNow(ctx, req, reply)
	case opTransfer:
		return a.transfers.transfer(ctx, req.Node, reply)
	case opRemoved:
		signal(a.status.removal.now)
		return nil
	case opReport:
		var err error
		reply.Report, err = a.status.report(req.Query)
		return err
	case opStatus:
		st := a.status.own()
		reply.Status = &st
		return nil
	}
	return fmt.Errorf("unknown request %q", req.Op)
}

func (f *founder) answerProbe(reply *adminReply) error {
	empty, err := f.stores.Empty()
	if err != nil {
		return err
	}
	reply.ClusterID = f.stores.Identity().ClusterID
	reply.Peers, reply.Features = f.cfg.peerList(), f.features.Reports()
	if empty {
		return nil
	}
	reply.Member = true
	if r := f.raft.running(); r != nil {
		reply.Term = r.CurrentTerm()
		reply.Members = membersOf(r)
		reply.Last, reply.Commit = r.LastIndex(), r.CommitIndex()
		addr, id := r.LeaderWithID()
		reply.Leader, reply.LeaderAddr = string(id), string(f.peers.addressOf(id, addr))
	}
	return nil
}

func (f *founder) answerForm(req adminRequest) error {
	empty, err := f.stores.Empty()
	if err != nil {
		return err
	}
	mine := f.stores.Identity().ClusterID
	if !empty || mine != "" && mine != req.ClusterID {
		return fmt.Errorf("%w: %s already has data or another cluster id", ErrOtherCluster, f.cfg.NodeID)
	}
	f.features.SetFounding(req.Features) // first, because this node may start once it has stored the id
	return f.stores.SetClusterID(req.ClusterID, false)
}
