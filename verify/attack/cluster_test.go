package attack

import (
	"testing"

	"github.com/holdfast-kv/holdfast/verify/process"
)

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

// TestFollowed checks that a leader counts as followed only if every node has
// reported that it follows this leader in its term.
func TestFollowed(t *testing.T) {
	n1, n2 := &node{Node: &process.Node{ID: "n1"}}, &node{Node: &process.Node{ID: "n2"}}
	leads := state{Role: "leader", Leader: "n1", Term: 4, Ready: true}
	follows := state{Role: "follower", Leader: "n1", Term: 4, Ready: true}
	earlier, other := follows, follows
	earlier.Term, other.Leader = 3, "n3"
	starting := leads
	starting.Ready = false
	for _, tt := range []struct {
		name string
		all  map[*node]state
		want *node
	}{
		{"both", map[*node]state{n1: leads, n2: follows}, n1},
		{"one has not replied", map[*node]state{n1: leads}, nil},
		{"one is in an earlier term", map[*node]state{n1: leads, n2: earlier}, nil},
		{"one follows another", map[*node]state{n1: leads, n2: other}, nil},
		{"the leader is not ready", map[*node]state{n1: starting, n2: follows}, nil},
		{"no leader", map[*node]state{n1: follows, n2: follows}, nil},
	} {
		if got, term := followed(tt.all, 2); got != tt.want || got != nil && term != 4 {
			t.Errorf("%s: leader %v in term %d", tt.name, got, term)
		}
	}
}

// TestMembers_NoNode checks the error of members if no node is live.
func TestMembers_NoNode(t *testing.T) {
	c := &cluster{nodes: []*node{{Node: &process.Node{ID: "n1"}}}}
	const want = "no node reports the members: no process runs, or all are paused"
	if all, err := c.members(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got the members %v and the error %v, want the error %q", all, err, want)
	}
}
