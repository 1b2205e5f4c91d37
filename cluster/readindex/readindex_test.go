package readindex

import (
	"testing"

	"github.com/hashicorp/raft"
)

// TestConfirmations checks how many voters, in addition to the leader, are
// needed for a majority.
func TestConfirmations(t *testing.T) {
	for _, c := range []struct {
		voters string // one letter for each voter; the leader is "a"
		others string
		want   int
	}{
		{"a", "", 0},
		{"ab", "", 1},
		{"abc", "", 1},
		{"abcd", "", 2},
		{"abcde", "", 2},
		{"abc", "d", 1},
		{"b", "a", 1},
		{"bc", "a", 2},
		{"bcd", "", 2},
		{"bcd", "a", 2},
		{"bcde", "", 3},
	} {
		var servers []raft.Server
		for _, id := range c.voters {
			servers = append(servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Voter})
		}
		for _, id := range c.others {
			servers = append(servers, raft.Server{ID: raft.ServerID(id), Suffrage: raft.Nonvoter})
		}
		if got := confirmations(servers, "a"); got != c.want {
			t.Errorf("voters %s, non-voters %q: %d confirmations, want %d", c.voters, c.others, got, c.want)
		}
	}
}
