package transport

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// notice is a request that commitNotices has sent.
type notice struct {
	id                       raft.ServerID
	term, prev, prevTerm, to uint64
}

// TestCommitNotices checks which followers get a notice of a commit, and which
// preceding entry the notice names.
func TestCommitNotices(t *testing.T) {
	const after = 5 * time.Millisecond
	type step func(n *commitNotices)
	// ack: a follower accepts the entries from+1 to last of a term.
	ack := func(id raft.ServerID, term, from, last, commit uint64) step {
		return func(n *commitNotices) {
			n.accepted(id, "addr", &raft.AppendEntriesRequest{
				Term: term, PrevLogEntry: from, PrevLogTerm: term, Entries: logOf(term, from+1, last), LeaderCommitIndex: commit,
			})
		}
	}
	commit := func(index uint64) step { return func(n *commitNotices) { n.committed(index) } }
	wait := func(*commitNotices) {
		time.Sleep(2 * after)
		synctest.Wait()
	}
	for _, c := range []struct {
		name  string
		steps []step
		want  []notice
	}{
		{"committed after it was accepted", []step{ack("b", 3, 5, 8, 5), commit(8), wait}, []notice{{"b", 3, 8, 3, 8}}},
		{"accepted after it was committed", []step{commit(8), ack("b", 3, 5, 8, 5), wait}, []notice{{"b", 3, 8, 3, 8}}},
		{"only a part is committed", []step{ack("b", 3, 5, 8, 5), commit(7), wait}, []notice{{"b", 3, 8, 3, 7}}},
		{"only a part is accepted", []step{ack("b", 3, 5, 6, 5), commit(9), wait}, []notice{{"b", 3, 6, 3, 6}}},
		{"an append request carries it", []step{ack("b", 3, 5, 8, 5), commit(8), ack("b", 3, 8, 9, 8), wait}, nil},
		{"sent once", []step{ack("b", 3, 5, 8, 5), commit(8), wait, commit(8), wait}, []notice{{"b", 3, 8, 3, 8}}},
		{"only the follower that does not know", []step{ack("b", 3, 5, 8, 8), ack("c", 3, 5, 8, 5), commit(8), wait},
			[]notice{{"c", 3, 8, 3, 8}}},
		{"nothing accepted in the later term", []step{ack("b", 3, 5, 8, 5), ack("b", 4, 5, 5, 5), commit(8), wait}, nil},
		{"late answer to the earlier term", []step{ack("b", 4, 5, 6, 6), ack("b", 3, 5, 8, 5), commit(8), wait}, nil},
		{"closed", []step{ack("b", 3, 5, 8, 5), commit(8), (*commitNotices).close, wait}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent []notice
				var n *commitNotices
				n = newCommitNotices(t.Context(), after,
					func(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) bool {
						sent = append(sent, notice{id, req.Term, req.PrevLogEntry, req.PrevLogTerm, req.LeaderCommitIndex})
						n.accepted(id, target, req)
						return true
					})
				for _, s := range c.steps {
					s(n)
				}
				n.close()
				n.wait()
				if !slices.Equal(sent, c.want) {
					t.Errorf("sent %+v, want %+v", sent, c.want)
				}
			})
		})
	}
}

// TestCommitNotices_Refused checks that a follower gets no further notice after
// it has refused one, until it has accepted a request of raft.
func TestCommitNotices_Refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		n := newCommitNotices(context.Background(), time.Millisecond,
			func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest) bool { sent++; return false })
		for want := 1; want <= 2; want++ {
			n.accepted("b", "addr", &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 9, PrevLogTerm: 3, LeaderCommitIndex: 5})
			for index := uint64(6); index <= 9; index++ {
				n.committed(index)
				time.Sleep(2 * time.Millisecond)
			}
			if sent != want {
				t.Errorf("%d notices were sent, want %d", sent, want)
			}
		}
		n.close()
		n.wait()
	})
}
