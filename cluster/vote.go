package cluster

import (
	"slices"

	"github.com/hashicorp/raft"
)

// singleVote is the stable store of a node that votes at most once in a term.
//
// hashicorp/raft 1.7.3 stores a vote under the candidate's address, and grants
// it again to a candidate with that address that asks again in the same term.
// If two members restart with each other's address within a term, this gives a
// second vote. The store does not know which node asks. So it never returns the
// address that received the vote, and raft refuses every second request in a
// term.
//
// raft asks each voter once in a term, and a candidate that restarts or tries
// again does so in the next term. Only serialTransport repeats a request, if
// its connection broke. If the voter had granted the vote and its answer was
// lost with the connection, the voter refuses the repetition. The candidate
// then lacks a vote that it could have had, and may lose the election. It never
// counts a vote that it was not given.
type singleVote struct{ raft.StableStore }

// Get implements raft.StableStore. It changes the stored candidate, which raft
// only compares with the candidate that asks.
func (s singleVote) Get(key []byte) ([]byte, error) {
	v, err := s.StableStore.Get(key)
	if err == nil && len(v) > 0 && string(key) == keyLastVoteCand {
		v = slices.Concat([]byte("voted for "), v) // no address begins like this
	}
	return v, err
}
