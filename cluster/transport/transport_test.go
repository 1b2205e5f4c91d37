package transport

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/raftlog"
)

// noFSM is a state machine that accepts everything and stores nothing.
type noFSM struct{}

func (noFSM) Apply(*raft.Log) any                 { return nil }
func (noFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("none") }
func (noFSM) Restore(r io.ReadCloser) error       { return r.Close() }

// newTestTransport returns a Transport on loopback. Its node leads as
// long as leads reports true.
func newTestTransport(t *testing.T, leads func(term uint64) bool) *Transport {
	t.Helper()
	n, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, 10*time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	probe := newPeerProbe(context.Background(), func(raft.ServerID, uint64) bool { return true })
	tr := &Transport{NetworkTransport: n, leads: leads, durable: func(index uint64) uint64 { return index }, probe: probe}
	tr.notices = newCommitNotices(context.Background(), time.Millisecond, tr.notify)
	return tr
}

func logOf(term, first, last uint64) (list []*raft.Log) {
	for i := first; i <= last; i++ {
		list = append(list, &raft.Log{Index: i, Term: term, Type: raft.LogNoop})
	}
	return list
}

// TestTransport_CommitIndex: a goroutine of the leader read the end of its log
// long before it read the commit index. So it sends a commit index beyond the
// entries that the follower shares with the leader. After these entries, the
// follower has entries of an earlier leader, which it must not commit.
func TestTransport_CommitIndex(t *testing.T) {
	t.Parallel()
	store := raft.NewInmemStore()
	if err := errors.Join(store.StoreLogs(logOf(1, 1, 5)), store.StoreLogs(logOf(2, 6, 9)), store.SetUint64([]byte("CurrentTerm"), 2)); err != nil {
		t.Fatal(err)
	}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = "a", hclog.NewNullLogger()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = time.Hour, time.Hour // raft acts only on requests of the test
	follower, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, 10*time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(cfg, noFSM{}, store, store, raft.NewInmemSnapshotStore(), follower)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(r.Shutdown().Error(), follower.Close()); err != nil {
			t.Error(err)
		}
	}()
	leader := newTestTransport(t, func(term uint64) bool { return term == 3 })
	for _, c := range []struct {
		name    string
		prev    uint64
		term    uint64
		entries []*raft.Log
		commit  uint64
		want    uint64
	}{
		{"no entries", 5, 1, nil, 6, 5},
		{"some entries", 4, 1, logOf(1, 5, 5), 7, 5},
		{"all entries", 5, 1, logOf(3, 6, 8), 7, 7},
	} {
		req := raft.AppendEntriesRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("b"), Addr: []byte("b")},
			Term:      3, PrevLogEntry: c.prev, PrevLogTerm: c.term, Entries: c.entries, LeaderCommitIndex: c.commit,
		}
		var resp raft.AppendEntriesResponse
		if err := leader.AppendEntries("a", follower.LocalAddr(), &req, &resp); err != nil || !resp.Success {
			t.Fatalf("%s: response %+v, error %v, want success", c.name, resp, err)
		}
		if got := r.CommitIndex(); got != c.want {
			t.Errorf("%s: the follower commits up to %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTransport_Deposed checks that a node does not send entries of a term in
// which it no longer leads.
func TestTransport_Deposed(t *testing.T) {
	t.Parallel()
	heard := newTestTransport(t, nil)
	leads := newTestTransport(t, func(term uint64) bool { return term == 4 })
	// The preceding entry is of this leader, and the entry after it is of the next one.
	req := raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 5, PrevLogTerm: 3, Entries: logOf(4, 6, 6), LeaderCommitIndex: 4}
	if err := leads.AppendEntries("a", heard.LocalAddr(), &req, &raft.AppendEntriesResponse{}); !errors.Is(err, errDeposed) {
		t.Errorf("AppendEntries: %v, want %v", err, errDeposed)
	}
	select {
	case got := <-heard.Consumer():
		t.Errorf("the peer received %+v, want nothing", got.Command)
	default:
	}
}

// TestTransport_SnapshotEnd checks that the stand-in for the last entry of a
// snapshot is not sent.
func TestTransport_SnapshotEnd(t *testing.T) {
	t.Parallel()
	leads := newTestTransport(t, func(uint64) bool { return true })
	req := raft.AppendEntriesRequest{PrevLogEntry: 8, Entries: []*raft.Log{{Index: 9}, {Index: 10, Type: raftlog.SnapshotEnd}}}
	if err := leads.AppendEntries("b", "", &req, nil); !errors.Is(err, errNoEntry) {
		t.Errorf("AppendEntries: %v, want %v", err, errNoEntry)
	}
}
