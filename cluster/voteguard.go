package cluster

import (
	"errors"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// A node that joins does not know what earlier nodes under its name have
// promised: it may be a member that was removed, whose data was deleted, and
// that was added again. A node that has not learned of the removal still counts
// that name as a voter. Another node that was removed too, or was cut off
// meanwhile, could be elected by such a vote, or have its entries confirmed,
// without the entries that were acknowledged since. Two leaders in one term are
// possible (simulator, seed 357, 70 s). The rules of Raft do not prevent this:
// a node without data follows any leader, and a node that reads the log from
// its start believes the past memberships one after the other.
//
// So the leader that adds a node gives it two numbers: the log index of the
// change that adds the node, and the leader's term. The node votes for no
// candidate until its log has reached that index, and from its start it follows
// no leader of an older term. A node whose log has reached that index knows the
// change, and everything before it.

// errVoteGuarded makes raft refuse a vote instead of storing it.
var errVoteGuarded = errors.New("this node has not read the log up to the change that took it in")

// voteGuard is the stable store of a node that has joined.
type voteGuard struct {
	raft.StableStore
	n *Node
}

// GetUint64 implements raft.StableStore. The current term that it returns is at
// least the term in which the node was added. raft reads the current term when
// it starts, and stores it again.
func (s voteGuard) GetUint64(key []byte) (uint64, error) {
	v, err := s.StableStore.GetUint64(key)
	if string(key) != keyCurrentTerm || err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return v, err
	}
	if joined := s.n.stores.Identity().JoinTerm; v < joined {
		return joined, nil
	}
	return v, err
}

// SetUint64 implements raft.StableStore. It refuses to store the term of a vote
// while the node is settling. raft stores that term first, and gives no vote if
// it cannot store the term.
func (s voteGuard) SetUint64(key []byte, v uint64) error {
	if string(key) == keyLastVoteTerm && s.n.settling() {
		return errVoteGuarded
	}
	return s.StableStore.SetUint64(key, v)
}

// The keys under which hashicorp/raft 1.7.3 stores its term and its vote.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// settling reports whether this node's log ends before the change that added
// the node.
func (n *Node) settling() bool {
	joined := n.stores.Identity().JoinIndex
	if joined == 0 {
		return false
	}
	r := n.running()
	return r == nil || r.LastIndex() < joined
}

// silentTransport is the transport of a node that is settling when it starts.
// It refuses pre-votes.
//
// raft does not ask the store before it grants a pre-vote. A candidate that has
// the pre-vote of a node without a leader raises the term again and again, and
// so deposes the leader that this node waits for. So the node refuses all
// pre-votes while it is settling.
type silentTransport struct {
	serialTransport
	heard chan raft.RPC
}

// Consumer implements raft.Transport.
func (t silentTransport) Consumer() <-chan raft.RPC { return t.heard }

// hear passes requests to raft until the node closes. Until the node's next
// start, each request thus passes through one more channel.
func (n *Node) hear(t silentTransport) {
	defer n.wg.Done()
	for {
		var r raft.RPC
		select {
		case r = <-t.serialTransport.Consumer():
		case <-n.ctx.Done():
			return
		}
		if _, pre := r.Command.(*raft.RequestPreVoteRequest); pre && n.settling() {
			r.Respond(&raft.RequestPreVoteResponse{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax},
			}, nil)
			continue
		}
		select {
		case t.heard <- r:
		case <-n.ctx.Done():
			return
		}
	}
}
