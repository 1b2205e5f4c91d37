package attack

import "testing"

// TestByAuthority checks the order of the nodes: the leader of the latest term
// comes first, before an older leader and before a node that was removed while
// it was down.
func TestByAuthority(t *testing.T) {
	removed, old, leader, follower := &node{}, &node{}, &node{}, &node{}
	nodes := []*node{removed, old, leader, follower}
	got := byAuthority(nodes, map[*node]state{
		removed: {Role: "candidate", Term: 9}, old: {Role: "leader", Term: 3}, leader: {Role: "leader", Term: 4}, follower: {Role: "follower", Term: 4},
	})
	if got[0] != leader || got[1] != old || got[2] != removed || got[3] != follower {
		t.Errorf("got the order %v of the nodes %v, want leader, old, removed, follower", got, nodes)
	}
}
