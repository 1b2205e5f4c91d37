package attack

import (
	"slices"
	"testing"
	"time"
)

// TestLeaderships checks that a leadership becomes longer while the same node
// reports the same term, and that answers of a deposed leader do not count.
func TestLeaderships(t *testing.T) {
	var got []Leadership
	for _, answer := range []struct {
		node string
		term uint64
		at   time.Duration
	}{{"n1", 2, 1}, {"n1", 2, 3}, {"n2", 4, 5}, {"n1", 2, 6}, {"n2", 4, 7}, {"n2", 5, 9}} {
		got = addLeadership(got, answer.node, answer.term, answer.at)
	}
	want := []Leadership{{"n1", 2, 1, 3}, {"n2", 4, 5, 7}, {"n2", 5, 9, 9}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
