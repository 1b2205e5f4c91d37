package cluster

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/rpc"
)

// serialTransport is raft's transport, with these differences.
//
// It hides the heartbeat fast path of raft.NetworkTransport. With it, a heartbeat of
// a newer term changes the term from a transport goroutine while the main loop may
// be appending: a leader then stamps an entry with a term that it does not lead
// (hashicorp/raft issue 695). Without it heartbeats queue with everything else, so
// HeartbeatTimeout has to outlast a slow fsync.
//
// It sends no entries that were read after this node's leadership had ended: see
// AppendEntries.
//
// It tells a follower of no commit beyond the entries that the follower has in
// common with the leader once the request has succeeded: see commitFor. Nor does it
// tell of one that the leader's disk does not have yet: see backlog. And it does not
// try to feed a member that is away: see reach.
type serialTransport struct {
	*raft.NetworkTransport
	leads func(term uint64) bool // whether this node leads a term
	log   *backlog
	reach *reach
}

// errDeposed keeps a request from being sent whose entries may not be this
// leader's.
var errDeposed = errors.New("this node no longer leads the term of the request")

// AppendEntries implements raft.Transport.
//
// hashicorp/raft 1.7.3 stops the goroutines that replicate when leadership ends, but
// does not wait for them. Such a goroutine reads the preceding entry and each entry
// one by one, while the main loop may already replace the log by that of the next
// leader, or empty it for a snapshot. What it has read then is a mixture: an entry of
// the next leader behind one of this leader's that the next leader does not have. A
// member that has not heard of the next term would store it, and the next leader
// would take the entry before it for its own. So the request is sent only if this
// node leads the term after everything was read: raft changes the state and the term
// before it touches the log, so the log was not replaced while it was read. That
// includes the stand-in for the last entry of a snapshot, which only a node that does
// not lead reads: see snapend.go. It is looked for anyway, in the whole request.
func (t serialTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 && len(args.Entries) == 0 { // a heartbeat
		err := t.NetworkTransport.AppendEntries(id, target, args, resp)
		t.reach.heard(id, err)
		return err
	}
	if !t.leads(args.Term) {
		return errDeposed
	}
	if slices.ContainsFunc(args.Entries, func(l *raft.Log) bool { return l.Type == snapshotEnd }) {
		return errNoEntry
	}
	return t.reach.feed(id, args.Term, t.heartbeat(id, target, args.RPCHeader, args.Term), func() error {
		args.LeaderCommitIndex = t.log.durable(commitFor(args))
		return t.NetworkTransport.AppendEntries(id, target, args, resp)
	})
}

// commitFor returns the commit index that a request may carry: at most the index of
// its last entry. A follower may have other entries behind that one, of an earlier
// leader. The Raft paper has the follower ignore a commit index beyond the last new
// entry; hashicorp/raft 1.7.3 takes all that is in the follower's log for committed.
// Its leader reads the end of the log before it reads the commit index, so a goroutine
// that is slow in between sends a commit index without the entry.
func commitFor(args *raft.AppendEntriesRequest) uint64 {
	return min(args.LeaderCommitIndex, args.PrevLogEntry+uint64(len(args.Entries)))
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
func newTransport(mux *rpc.Mux, addresses raft.ServerAddressProvider, leads func(term uint64) bool, entries *backlog, reach *reach, log hclog.Logger) serialTransport {
	return serialTransport{leads: leads, log: entries, reach: reach, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider:   addresses,
		Logger:                  log,
		Stream:                  mux.RaftLayer(),
		MaxPool:                 4,
		MaxRPCsInFlight:         1,
		Timeout:                 3 * time.Second,
		MsgpackUseNewTimeFormat: true,
	})}
}
