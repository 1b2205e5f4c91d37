package raftlog

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/storage"
)

// restoreOnly is a state machine that only restores snapshots. It refuses a
// snapshot if the function keeps returns true or an error.
type restoreOnly struct {
	log   *endedLog
	snaps raft.SnapshotStore
}

func (restoreOnly) Apply(*raft.Log) any                 { return nil }
func (restoreOnly) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not here") }
func (f restoreOnly) Restore(r io.ReadCloser) error {
	defer r.Close()
	if keep, err := keeps(f.log, f.snaps, MetaOf(r)); keep || err != nil {
		return errors.Join(errOldSnapshot, err)
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

// TestStaleEnd: this node has entries of an old leader that no other node has.
// The log of the leader of the next term begins with its snapshot. If the
// snapshot ends among the indices of these entries, Fatal must be called. If it
// ends after them, Fatal must not be called. In both cases, the node must then
// accept the entries after the snapshot, after a restart if Fatal was called.
func TestStaleEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		own      uint64 // log index of this node's last entry, of term 2
		snapshot uint64 // log index at which the leader's snapshot ends, in term 3
		want     error
	}{
		{"the log continues after the snapshot", 9, 6, errStaleEnd},
		{"the log ends where the snapshot ends", 6, 6, errStaleEnd},
		{"the log ends before the snapshot", 5, 6, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ended := make(chan error, 1)
			leader := raft.ServerAddress("n2")
			members := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: "n1"}, {ID: "n2", Address: leader}, {ID: "n3", Address: "n3"}}}
			_, from := raft.NewInmemTransport(leader)
			begin := func() (stop func()) {
				stores, err := storage.Open(storage.Config{Dir: dir, NodeID: "n1", LogKind: "wal", Fatal: func(err error) { t.Error(err) }})
				if err != nil {
					t.Fatal(err)
				}
				log, snaps := &endedLog{LogStore: stores.Log(), snaps: stores.Snapshots(), leads: func() bool { return false }, fatal: func(err error) { ended <- err }}, metaSnapshots{stores.Snapshots()}
				_, trans := raft.NewInmemTransport("n1")
				rc := raft.DefaultConfig()
				rc.LocalID, rc.Logger = "n1", hclog.NewNullLogger()
				rc.HeartbeatTimeout, rc.ElectionTimeout = time.Hour, time.Hour // raft acts only on requests of the test
				r, err := raft.NewRaft(rc, restoreOnly{log, snaps}, log, stores.Stable(), snaps, trans)
				if err != nil {
					t.Fatal(err)
				}
				from.Connect("n1", trans)
				return func() {
					if err := errors.Join(r.Shutdown().Error(), trans.Close(), stores.Close()); err != nil {
						t.Error(err)
					}
				}
			}
			header := func() raft.RPCHeader {
				return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("n2"), Addr: []byte(leader)}
			}
			entries := func(term, first, last uint64) (logs []*raft.Log) {
				for i := first; i <= last; i++ {
					logs = append(logs, &raft.Log{Index: i, Term: term, Type: raft.LogNoop})
				}
				return logs
			}
			appendEntries := func(term, prev, prevTerm uint64, logs []*raft.Log) (resp raft.AppendEntriesResponse) {
				t.Helper()
				req := &raft.AppendEntriesRequest{RPCHeader: header(), Term: term, PrevLogEntry: prev, PrevLogTerm: prevTerm, Entries: logs}
				if err := from.AppendEntries("n1", "n1", req, &resp); err != nil {
					t.Fatal(err)
				}
				return resp
			}

			stop := begin()
			first := &raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)}
			if !appendEntries(2, 0, 0, append([]*raft.Log{first}, entries(2, 2, c.own)...)).Success {
				t.Fatal("the entries of term 2 were refused, want success")
			}
			install := &raft.InstallSnapshotRequest{
				RPCHeader: header(), SnapshotVersion: raft.SnapshotVersionMax, Term: 3,
				LastLogIndex: c.snapshot, LastLogTerm: 3, Size: 4,
				Configuration: raft.EncodeConfiguration(members), ConfigurationIndex: 1,
			}
			var resp raft.InstallSnapshotResponse
			if err := from.InstallSnapshot("n1", "n1", install, &resp, strings.NewReader("data")); err != nil || !resp.Success {
				t.Fatalf("InstallSnapshot: error %v, want success", err)
			}
			if c.want == nil {
				if len(ended) > 0 {
					t.Fatalf("Fatal was called with %v, want no call", <-ended)
				}
			} else {
				if appendEntries(3, c.snapshot, 3, entries(3, c.snapshot+1, c.snapshot+2)).Success {
					t.Error("raft continued after the snapshot by itself: is endedLog still needed?")
				}
				select {
				case err := <-ended:
					if !errors.Is(err, c.want) {
						t.Errorf("Fatal was called with %v, want %v", err, c.want)
					}
				default:
					t.Fatalf("Fatal was not called, want a call with %v", c.want)
				}
				stop()
				stop = begin()
			}
			defer stop()
			if !appendEntries(3, c.snapshot, 3, entries(3, c.snapshot+1, c.snapshot+2)).Success {
				t.Error("the entries after the snapshot were refused, want success")
			}
		})
	}
}
