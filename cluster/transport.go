package cluster

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/rpc"
)

// serialTransport is raft's transport, with three differences.
//
// It hides the heartbeat fast path of raft.NetworkTransport. With it, a heartbeat of
// a newer term changes the term from a transport goroutine while the main loop may
// be appending: a leader then stamps an entry with a term that it does not lead
// (hashicorp/raft issue 695). Without it heartbeats queue with everything else, so
// HeartbeatTimeout has to outlast a slow fsync.
//
// It tells no other node of a commit that the leader's disk does not have yet: see
// backlog. And it does not try to feed a member that is away: see reach.
type serialTransport struct {
	*raft.NetworkTransport
	log   *backlog
	reach *reach
}

// AppendEntries implements raft.Transport.
func (t serialTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 && len(args.Entries) == 0 { // a heartbeat
		err := t.NetworkTransport.AppendEntries(id, target, args, resp)
		t.reach.heard(id, err)
		return err
	}
	if len(args.Entries) > 0 && args.Entries[0].Type == snapshotEnd {
		return errNoEntry
	}
	return t.reach.feed(id, args.Term, t.heartbeat(id, target, args.RPCHeader, args.Term), func() error {
		args.LeaderCommitIndex = t.log.durable(args.LeaderCommitIndex)
		return t.NetworkTransport.AppendEntries(id, target, args, resp)
	})
}

// heartbeat returns a function that sends what raft sends as a heartbeat.
func (t serialTransport) heartbeat(id raft.ServerID, target raft.ServerAddress, header raft.RPCHeader, term uint64) func() error {
	return func() error {
		req := raft.AppendEntriesRequest{RPCHeader: header, Term: term}
		return t.NetworkTransport.AppendEntries(id, target, &req, &raft.AppendEntriesResponse{})
	}
}

// InstallSnapshot implements raft.Transport.
func (t serialTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return t.reach.feed(id, args.Term, t.heartbeat(id, target, args.RPCHeader, args.Term), func() error {
		return t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	})
}

// SetHeartbeatHandler implements raft.Transport by doing nothing.
func (serialTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// closingLogger turns errors into debug lines once the node is closing: the
// transport calls every connection that we close then an error.
type closingLogger struct {
	hclog.Logger
	closing *atomic.Bool
}

// Error implements hclog.Logger.
func (l closingLogger) Error(msg string, args ...any) {
	if l.closing.Load() {
		l.Debug(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}

// newTransport makes raft's transport over the peer port. MaxRPCsInFlight is 1
// because pipelining can wedge a follower for good after one refused append
// (hashicorp/raft issue 612).
func newTransport(mux *rpc.Mux, addresses raft.ServerAddressProvider, entries *backlog, reach *reach, log hclog.Logger) serialTransport {
	return serialTransport{log: entries, reach: reach, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   addresses,
		Logger:                  log,
		Stream:                  mux.RaftLayer(),
		MaxPool:                 4,
		MaxRPCsInFlight:         1,
		Timeout:                 3 * time.Second,
		MsgpackUseNewTimeFormat: true,
	})}
}
