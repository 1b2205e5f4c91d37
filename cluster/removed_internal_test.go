package cluster

import "testing"

// TestRemoved_NeedsCommit checks that a removal counts only when the same
// leader has committed the whole log that it had at its first answer.
func TestRemoved_NeedsCommit(t *testing.T) {
	var u unlisted
	for i, c := range []struct {
		r    adminReply
		want bool
	}{
		{adminReply{Leader: "n1", Term: 2, Last: 7, Commit: 6}, false},
		{adminReply{Leader: "n1", Term: 2, Last: 8, Commit: 6}, false},
		{adminReply{Leader: "n2", Term: 3, Last: 9, Commit: 9}, false},
		{adminReply{Leader: "n2", Term: 3, Last: 12, Commit: 9}, true},
	} {
		if got := u.confirmed(c.r); got != c.want {
			t.Errorf("answer %d: %v, want %v", i, got, c.want)
		}
	}
}
