package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestSingleVote: two members that were started with each other's address ask
// for a vote in the same term. Only one of them gets it, even if the voter is
// restarted in between. The next term has a new vote.
func TestSingleVote(t *testing.T) {
	t.Parallel()
	store := raft.NewInmemStore()
	members := raft.Configuration{Servers: []raft.Server{{ID: "v", Address: "v"}, {ID: "a", Address: "x"}, {ID: "b", Address: "y"}}}
	cfg := raft.DefaultConfig()
	cfg.LocalID, cfg.Logger = "v", hclog.NewNullLogger()
	cfg.HeartbeatTimeout, cfg.ElectionTimeout = time.Hour, time.Hour // only what the test sends has an effect
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
			t.Errorf("%s at %s asks for a vote in term %d: %v, want %v", ask.id, ask.addr, ask.term, resp.Granted, ask.want)
		}
		if err := errors.Join(r.Shutdown().Error(), trans.Close()); err != nil {
			t.Error(err)
		}
	}
}
