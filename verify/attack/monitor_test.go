package attack

import "testing"

func TestAtRest(t *testing.T) {
	n1, n2, n3 := new(node), new(node), new(node)
	leader := state{Role: "leader", Commit: 1112, StateIndex: 1112}
	follower := state{Role: "follower", Commit: 1112, StateIndex: 1112}
	fresh := state{Role: "follower"} // a node that has read its log and does not know the commit index
	for _, tt := range []struct {
		name string
		all  map[*node]state
		want bool
	}{
		{"all at one log index", map[*node]state{n1: leader, n2: follower, n3: follower}, true},
		{"no leader", map[*node]state{n1: follower, n2: follower, n3: follower}, false},
		{"a node that has just started", map[*node]state{n1: leader, n2: follower, n3: fresh}, false},
		{"no node answers", map[*node]state{}, false},
	} {
		// Repeat the check, because the iteration order of a map is random.
		for range 50 {
			commit, same := converged(tt.all)
			if same != tt.want || same && commit != leader.Commit {
				t.Errorf("%s: same log index %v, commit index %d, want %v", tt.name, same, commit, tt.want)
				break
			}
		}
	}
}
