package raftlog

import (
	"errors"
	"slices"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// The keys under which hashicorp/raft 1.7.3 stores its term and its vote.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// singleVote is the stable store of a node that votes at most once in a term.
//
// hashicorp/raft 1.7.3 stores the candidate's address with a vote, and grants
// the vote again if a candidate with that address asks in the same term. So if
// two members restart with each other's address within a term, a voter may vote
// for both. The store does not know which node asks. So the store never returns
// the address that received the vote, and raft refuses every second request in
// a term.
//
// raft asks each voter once in a term, and a candidate that restarts or tries
// again does so in the next term. Only package transport repeats a request, if
// the connection of the request breaks. If the voter has granted the vote, and
// its answer is lost with the connection, the voter refuses the repetition. The
// candidate then lacks a vote that it could have had, and may lose the
// election. But the candidate never counts a vote that the voter did not give.
type singleVote struct{ raft.StableStore }

// Get implements raft.StableStore. For the key of the candidate that received
// the vote, it returns a text that differs from the stored address. raft only
// compares this text with the address of the candidate that asks.
func (s singleVote) Get(key []byte) ([]byte, error) {
	v, err := s.StableStore.Get(key)
	if err == nil && len(v) > 0 && string(key) == keyLastVoteCand {
		v = slices.Concat([]byte("voted for "), v) // no address begins like this
	}
	return v, err
}

// A node that joins does not know which votes an earlier node with its id gave,
// and which entries that node acknowledged. An operator may have removed a
// member, deleted its data, and added it again. Another node that has not
// learned of the removal still counts that id as a voter, and may lack entries
// that were acknowledged since the removal. This other node could be elected
// with the vote of the new node, or the new node could acknowledge entries of
// the other node. Two leaders in one term are possible (simulator, seed 357,
// 70 s). The rules of Raft do not prevent this: a node without data follows any
// leader, and a node that reads the log from its start takes each past
// membership for the current one.
//
// So the leader that admits a node gives it two numbers: the log index of the
// entry that admits the node, and the leader's term. The node votes for no
// candidate until its log has reached that index, and from its start it follows
// no leader of an older term. A node whose log has reached that index knows the
// entry, and everything before it.

// errVoteGuarded makes raft refuse a vote instead of storing it.
var errVoteGuarded = errors.New("the log of this node does not yet contain the change that admitted the node")

// voteGuard is the stable store of a node that may have joined.
type voteGuard struct {
	raft.StableStore
	joined   func() (term uint64, joins bool)
	settling func() bool
}

// GetUint64 implements raft.StableStore. The current term that it returns is at
// least the term in which the node was admitted. raft reads the current term when
// it starts, and stores it again.
func (s voteGuard) GetUint64(key []byte) (uint64, error) {
	v, err := s.StableStore.GetUint64(key)
	if string(key) != keyCurrentTerm || err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return v, err
	}
	if joined, joins := s.joined(); joins && v < joined {
		return joined, nil
	}
	return v, err
}

// SetUint64 implements raft.StableStore. It refuses to store the term of a vote
// while the node is settling. raft stores that term first, and gives no vote if
// it cannot store the term.
func (s voteGuard) SetUint64(key []byte, v uint64) error {
	if _, joins := s.joined(); joins && string(key) == keyLastVoteTerm && s.settling() {
		return errVoteGuarded
	}
	return s.StableStore.SetUint64(key, v)
}

// unformed is the stable store of a node that is about to form its cluster.
// raft writes the first term and then the first entry, and treats a stored term
// as a sign that the cluster exists. After a crash between the two writes, the
// node could neither form the cluster nor lead it. unformed hides the term;
// the caller of Founding has made sure that the node has no other data.
type unformed struct{ raft.StableStore }

// GetUint64 implements raft.StableStore. raft asks only for the current term.
func (unformed) GetUint64([]byte) (uint64, error) { return 0, nil }
