package raftlog

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// TestSingleVote: two members that were started with each other's address ask
// for a vote in the same term. Only the first of them gets it, although the
// voter is restarted before each request. In the next term, the voter votes
// again.
func TestSingleVote(t *testing.T) {
	t.Parallel()
	store := raft.NewInmemStore()
	members := raft.Configuration{Servers: []raft.Server{{ID: "v", Address: "v"}, {ID: "a", Address: "x"}, {ID: "b", Address: "y"}}}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = "v", hclog.NewNullLogger()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = time.Hour, time.Hour // raft acts only on requests of the test
	_, from := raft.NewInmemTransport("x")
	snaps := raft.NewInmemSnapshotStore()
	_, first := raft.NewInmemTransport("v")
	if err := raft.BootstrapCluster(cfg, store, store, snaps, first, members); err != nil {
		t.Fatal(err)
	}
	asks := []struct {
		id, addr string
		term     uint64
		want     bool
	}{
		{"a", "x", 5, true},
		{"b", "x", 5, false},
		{"b", "y", 5, false},
		{"b", "x", 6, true},
		{"a", "x", 6, false},
	}
	for _, ask := range asks {
		_, trans := raft.NewInmemTransport("v")
		r, err := raft.NewRaft(cfg, noFSM{}, store, singleVote{store}, snaps, trans)
		if err != nil {
			t.Fatal(err)
		}
		from.Connect("v", trans)
		req := raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(ask.id), Addr: []byte(ask.addr)},
			Term:      ask.term, Candidate: []byte(ask.addr), LastLogIndex: 9, LastLogTerm: 4,
		}
		var resp raft.RequestVoteResponse
		if err := from.RequestVote("v", "v", &req, &resp); err != nil {
			t.Error(err)
		}
		if resp.Granted != ask.want {
			t.Errorf("%s at %s asks for a vote in term %d: granted %v, want %v",
				ask.id, ask.addr, ask.term, resp.Granted, ask.want)
		}
		if err := errors.Join(r.Shutdown().Error(), trans.Close()); err != nil {
			t.Error(err)
		}
	}
}

// unreadable is a stable store on a disk that fails.
type unreadable struct{ raft.StableStore }

var errDisk = errors.New("disk fails")

func (unreadable) GetUint64([]byte) (uint64, error) { return 0, errDisk }

// TestVoteGuard checks a node that joins. It begins in the term of the leader
// that admitted it, and stores no vote while it is settling.
func TestVoteGuard(t *testing.T) {
	s, err := storage.Open(storage.Config{Dir: t.TempDir(), NodeID: "n1", LogKind: "wal", Fatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := errors.Join(s.SetClusterID("0123456789abcdef", true), s.SetJoined(7, 3)); err != nil {
		t.Fatal(err)
	}
	joined := func() (uint64, bool) { return s.Identity().JoinTerm, s.Identity().Joins }
	settling := func() bool { return s.Identity().JoinIndex > 0 } // the log is empty
	stable := voteGuard{s.Stable(), joined, settling}
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 3 {
		t.Errorf("first term: %d, %v, want 3", term, err)
	}
	if err := stable.SetUint64([]byte(keyCurrentTerm), 5); err != nil {
		t.Error(err)
	}
	if term, err := stable.GetUint64([]byte(keyCurrentTerm)); err != nil || term != 5 {
		t.Errorf("term after term 5 was stored: %d, %v, want 5", term, err)
	}
	if err := stable.SetUint64([]byte(keyLastVoteTerm), 5); !errors.Is(err, errVoteGuarded) {
		t.Errorf("vote of a node without a log: %v, want %v", err, errVoteGuarded)
	}
	if _, err := stable.GetUint64([]byte(keyLastVoteTerm)); err == nil {
		t.Error("the vote was stored, although SetUint64 returned an error")
	}
	if _, err := (voteGuard{unreadable{}, joined, settling}).GetUint64([]byte(keyCurrentTerm)); !errors.Is(err, errDisk) {
		t.Errorf("the term from a disk that fails: error %v, want errDisk", err)
	}
	// A node that is not settling gives its vote.
	if err := s.SetJoined(0, 0); err != nil {
		t.Fatal(err)
	}
	if err := stable.SetUint64([]byte(keyLastVoteTerm), 5); err != nil {
		t.Errorf("vote of a node that is not settling: %v, want success", err)
	}
}
