package operator

import (
	"strings"
	"testing"

	"github.com/holdfast-kv/holdfast/cluster"
)

func TestMemberChanges(t *testing.T) {
	member := func(id, role string) cluster.NodeStatus {
		n := cluster.NodeStatus{ID: id, Role: role}
		n.PeerAddr, n.Term = id+":7379", 4
		return n
	}
	nodes := []cluster.NodeStatus{member("n1", "follower"), member("n2", "follower"), member("n3", "leader")}
	for _, c := range []struct {
		want    string
		remove  bool
		changes string
		err     string // a part of the error; "" for none
	}{
		{want: "n1=n1:7379,n2=n2:7379,n3=n3:7379"},
		{want: "n1=n1:7379,n2=n2:7379,n3=n3:7379,n4=n4:7379,n5=n5:7379", changes: "ADD n4 n4:7379; ADD n5 n5:7379"},
		{want: "n1=n1:7379", remove: true, changes: "REMOVE n2; REMOVE n3"},
		{want: "n2=n2:7379,n4=n4:7379", remove: true, changes: "ADD n4 n4:7379; REMOVE n1; REMOVE n3"},
		{want: "n1=n1:7379,n2=n2:7379", err: "n3 is a member and is not listed"},
		{want: "n1=n1:7379,n2=other:7379,n3=n3:7379", err: "n2 is a member with the address n2:7379"},
		{want: "", remove: true, err: "no members are listed"},
	} {
		want, err := cluster.ParsePeers(c.want)
		if err != nil {
			t.Fatalf("%q: %v", c.want, err)
		}
		changes, err := memberChanges(nodes, want, c.remove)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: error %v, want %q", c.want, err, c.err)
			}
			continue
		}
		var got []string
		for _, change := range changes {
			got = append(got, strings.Join(change.words, " "))
		}
		if text := strings.Join(got, "; "); err != nil || text != c.changes {
			t.Errorf("%q: %q, %v; want %q", c.want, text, err, c.changes)
		}
	}
}
