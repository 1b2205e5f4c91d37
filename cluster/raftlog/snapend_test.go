package raftlog

import (
	"errors"
	"io"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// noFSM is a state machine that accepts everything and stores nothing.
type noFSM struct{}

func (noFSM) Apply(*raft.Log) any                 { return nil }
func (noFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("none") }
func (noFSM) Restore(r io.ReadCloser) error       { return r.Close() }

// TestSnapshotEnd: a member gets a snapshot and the entries after it, and ends
// before it can acknowledge them. It must then accept the same entries again,
// and also entries of a later term in their place. It must refuse entries that
// follow another snapshot.
func TestSnapshotEnd(t *testing.T) {
	const snapshot, last = 10, 15
	entries := func(term uint64) (list []*raft.Log) {
		for i := uint64(snapshot + 1); i <= last; i++ {
			list = append(list, &raft.Log{Index: i, Term: term, Type: raft.LogNoop})
		}
		return list
	}
	for _, c := range []struct {
		name      string
		prevTerm  uint64
		entryTerm uint64
		want      bool
	}{
		{"the same", 2, 2, true},
		{"others of a later term", 2, 3, true},
		{"after another snapshot", 1, 3, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			store, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
			addr, trans := raft.NewInmemTransport("")
			from, leader := raft.NewInmemTransport("")
			leader.Connect(addr, trans)
			members := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: addr}, {ID: "b", Address: from}}}
			sink, err := snaps.Create(raft.SnapshotVersionMax, snapshot, 2, members, 1, trans)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(sink.Close(), store.StoreLogs(entries(2)), store.SetUint64([]byte(keyCurrentTerm), 2)); err != nil {
				t.Fatal(err)
			}
			leads := false
			ended := &endedLog{LogStore: store, snaps: snaps, leads: func() bool { return leads }}
			cfg := raft.DefaultConfig()
			cfg.LocalID, cfg.Logger = "a", hclog.NewNullLogger()
			r, err := raft.NewRaft(cfg, noFSM{}, ended, store, snaps, trans)
			if err != nil {
				t.Fatal(err)
			}
			req := raft.AppendEntriesRequest{
				RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("b"), Addr: leader.EncodePeer("b", from)},
				Term:      3, Leader: leader.EncodePeer("b", from), PrevLogEntry: snapshot, PrevLogTerm: c.prevTerm, Entries: entries(c.entryTerm),
			}
			var resp raft.AppendEntriesResponse
			if err := leader.AppendEntries("a", addr, &req, &resp); err != nil {
				t.Fatal(err)
			}
			if resp.Success != c.want || resp.LastLog != last {
				t.Errorf("entries accepted: %v, want %v; the log ends at %d, want %d", resp.Success, c.want, resp.LastLog, last)
			}
			if err := r.Shutdown().Error(); err != nil {
				t.Fatal(err)
			}
			var got raft.Log
			if err := ended.GetLog(last, &got); err != nil || c.want && got.Term != c.entryTerm {
				t.Errorf("last entry is of term %d, want %d: %v", got.Term, c.entryTerm, err)
			}
			leads = true
			if err := ended.GetLog(snapshot, &got); !errors.Is(err, raft.ErrLogNotFound) {
				t.Errorf("GetLog on a leader returned %+v, %v, want ErrLogNotFound", got, err)
			}
		})
	}
}
