package cluster

import (
	"errors"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// A node that joins has no memory of what its name has promised: it may be a
// member that was removed, wiped, and let in anew. A node that has not heard of
// the removal still counts on that name. Somebody who was removed too, or was cut
// off meanwhile, could be elected by such a vote, or have its entries confirmed,
// without anything that was acknowledged since: two leaders of one term (simulator,
// seed 357 of 70 s). Raft's own rules do not help, for a blank node follows
// anybody, and one that reads the log from its start believes the memberships of
// the past one after the other.
//
// So the leader that takes a node in tells it the index behind which it is a
// member, and its own term. Until its log has come that far, the node votes for
// nobody; from its first moment it follows no leader of an older term. Whoever has
// a log that is as good as that knows the change, and everything before it.

// errNoSuffrage is what raft is told instead of having a vote stored.
var errNoSuffrage = errors.New("this node has not read the log up to the change that took it in")

// suffrage is the stable store of a node that has joined.
type suffrage struct {
	raft.StableStore
	n *Node
}

// GetUint64 implements raft.StableStore. raft asks for the current term when it
// starts, and stores it again.
func (s suffrage) GetUint64(key []byte) (uint64, error) {
	v, err := s.StableStore.GetUint64(key)
	if string(key) != keyCurrentTerm || err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return v, err
	}
	if joined := s.n.stores.Identity().JoinTerm; v < joined {
		return joined, nil
	}
	return v, err
}

// SetUint64 implements raft.StableStore. raft stores the term of a vote first, and
// gives none that it could not store.
func (s suffrage) SetUint64(key []byte, v uint64) error {
	if string(key) == keyLastVoteTerm && s.n.settling() {
		return errNoSuffrage
	}
	return s.StableStore.SetUint64(key, v)
}

// The keys of hashicorp/raft 1.7.3.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// settling reports whether the log ends before the change that took this node in.
func (n *Node) settling() bool {
	joined := n.stores.Identity().JoinIndex
	if joined == 0 {
		return false
	}
	r := n.running()
	return r == nil || r.LastIndex() < joined
}

// silentTransport is the transport of a node that begins to settle. raft asks no
// store before it encourages a candidate, and who is encouraged by a node that
// nobody leads yet raises the term again and again, and with it that of the leader
// that this node waits for. So nobody is, as long as the node settles.
type silentTransport struct {
	serialTransport
	heard chan raft.RPC
}

// Consumer implements raft.Transport.
func (t silentTransport) Consumer() <-chan raft.RPC { return t.heard }

// hear hands requests on to raft until the node closes. It costs a hop for each
// request, until the next start.
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
