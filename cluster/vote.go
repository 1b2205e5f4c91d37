package cluster

import (
	"slices"

	"github.com/hashicorp/raft"
)

// singleVote is the stable store of a node that gives one vote a term, once.
//
// hashicorp/raft 1.7.3 stores a vote by the candidate's address, and grants it again
// to a candidate of that address that asks again in the same term. If two members are
// started anew with each other's address within a term, that is a second vote. The
// store does not know which node asks, so it never tells raft the address that it has
// voted for: a request for a second vote in a term is refused, whoever asks. No
// candidate loses a vote by that: it asks each voter once in a term, and when it
// starts anew or tries again it does so in the next term.
type singleVote struct{ raft.StableStore }

// Get implements raft.StableStore. raft compares a stored candidate with the one
// that asks, and does nothing else with it.
func (s singleVote) Get(key []byte) ([]byte, error) {
	v, err := s.StableStore.Get(key)
	if err == nil && len(v) > 0 && string(key) == keyLastVoteCand {
		v = slices.Concat([]byte("voted for "), v) // no address is like that
	}
	return v, err
}
