// Package transport carries the messages of hashicorp/raft 1.7.3 over the peer
// port (package rpc), and adds guarantees that raft's own transport does not
// give. It also probes members that do not answer, and limits the number of
// raft's log lines about them.
package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/rpc"
)

// Transport is the transport that raft uses. It differs from
// raft.NetworkTransport as follows.
//
//   - It hides the fast path for heartbeats. With the fast path, a heartbeat of
//     a newer term changes the term on a goroutine of the transport while the
//     main loop may be appending. A leader may then write an entry with a term
//     in which it does not lead (hashicorp/raft issue 695). Without the fast
//     path, heartbeats wait in the same queue as everything else, so
//     HeartbeatTimeout must be longer than a slow fsync.
//   - It sends no entries that were read after this node's leadership had
//     ended. See AppendEntries.
//   - The commit index that it sends does not exceed the last entry that the
//     follower shares with the leader once the request has succeeded (see
//     commitFor), nor the last entry on the leader's disk (see
//     raftlog.Log.Durable).
//   - It delays entries for a member that does not answer. See peerProbe.
//   - It sends followers a commit index that no entry carries. See commitNotices.
//   - It repeats a vote request, or an append request that is not a heartbeat,
//     on another connection if the connection that it had kept was broken. See
//     RequestVote.
//   - It sends no pre-vote requests if this node knows that it was removed. See
//     RequestPreVote.
//   - It measures the pauses between the requests of other nodes. See Silence.
type Transport struct {
	*raft.NetworkTransport
	self     raft.ServerID
	selfAddr raft.ServerAddress
	leads    func(term uint64) bool
	durable  func(index uint64) uint64
	removed  func() bool
	probe    *peerProbe
	notices  *commitNotices
	silence  *Silence
}

// Config contains the settings and functions that a Transport needs. All fields
// except LeaderSilence are required.
type Config struct {
	Mux       *rpc.Mux
	Addresses raft.ServerAddressProvider
	// Self and SelfAddr are this node's id and the address at which other nodes
	// reach it.
	Self     raft.ServerID
	SelfAddr raft.ServerAddress

	// Leads reports whether this node leads a term.
	Leads func(term uint64) bool
	// ReplicatesTo reports whether this node leads in term, and the node id is
	// a member.
	ReplicatesTo func(id raft.ServerID, term uint64) bool
	// Durable is raftlog.Log.Durable.
	Durable func(index uint64) uint64
	// LeaderSilence and MaxSilence bound the pause after which a node counts as
	// silent: see Silence. If LeaderSilence is 0, no node counts as silent.
	LeaderSilence, MaxSilence time.Duration
	// CommitNotice is the time after which the Transport sends a commit index
	// to followers if no entry has carried it.
	CommitNotice time.Duration

	// Closing reports whether this node is stopping. From then on, the
	// Transport logs errors at the debug level only.
	Closing func() bool
	// Removed reports whether this node knows that it is no longer a member.
	Removed func() bool
	Logger  hclog.Logger
}

// New returns the transport of raft over the peer port. ctx must end when the
// node stops. MaxRPCsInFlight is 1, because with pipelining a follower can
// remain stuck after one refused append (hashicorp/raft issue 612).
func New(ctx context.Context, cfg Config) *Transport {
	silence := NewSilence(cfg.LeaderSilence, cfg.MaxSilence)
	t := &Transport{
		silence: silence,
		self:    cfg.Self, selfAddr: cfg.SelfAddr,
		leads: cfg.Leads, durable: cfg.Durable, removed: cfg.Removed, probe: newPeerProbe(ctx, cfg.ReplicatesTo),
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			ServerAddressProvider:   cfg.Addresses,
			Logger:                  closingLogger{cfg.Logger, cfg.Closing},
			Stream:                  listened{cfg.Mux.RaftLayer(), silence},
			MaxPool:                 maxIdle,
			MaxRPCsInFlight:         1,
			Timeout:                 3 * time.Second,
			MsgpackUseNewTimeFormat: true,
		}),
	}
	t.notices = newCommitNotices(ctx, cfg.CommitNotice, t.notify)
	return t
}

// Silence returns the measure of the pauses between the requests of other nodes.
func (t *Transport) Silence() *Silence { return t.silence }

// errDeposed ends a request before it is sent, because its entries may not be
// those of this leader.
var errDeposed = errors.New("this node no longer leads the term of the request")

// errNoEntry ends a request before it is sent, because one of its entries is a
// raftlog.SnapshotEnd, whose content is unknown.
var errNoEntry = errors.New("only a snapshot contains the entry")

// AppendEntries implements raft.Transport.
//
// hashicorp/raft 1.7.3 stops the goroutines that replicate when leadership
// ends, but does not wait for them. Such a goroutine reads the preceding entry
// and the entries one by one. Meanwhile, the main loop may already be replacing
// the log with that of the next leader, or emptying it for a snapshot. The
// goroutine then has a mixture: an entry of the next leader after an entry of
// this leader that the next leader does not have. A member that has not heard
// of the next term would store the mixture, and the next leader would take the
// preceding entry for its own.
//
// So AppendEntries sends the request only if this node still leads the term
// after everything was read. raft changes the state and the term before it
// changes the log, so in that case the log was not replaced while it was read.
// This also excludes the stand-in for the last entry of a snapshot, because
// GetLog returns it only on a node that does not lead (see
// raftlog.SnapshotEnd). Nevertheless, AppendEntries also searches the entries
// of the request for the stand-in.
func (t *Transport) AppendEntries(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	if args.PrevLogEntry == 0 && args.LeaderCommitIndex == 0 && len(args.Entries) == 0 { // a heartbeat
		err := t.NetworkTransport.AppendEntries(id, target, args, resp)
		t.probe.heard(id, err)
		return err
	}
	if !t.leads(args.Term) {
		return errDeposed
	}
	if slices.ContainsFunc(args.Entries, func(l *raft.Log) bool { return l.Type == raftlog.SnapshotEnd }) {
		return errNoEntry
	}
	return t.probe.send(id, args.Term, t.heartbeat(id, target, args.RPCHeader, args.Term), func() error {
		return t.appendTo(id, target, args, resp)
	})
}

// appendTo sends an append request that is not a heartbeat.
func (t *Transport) appendTo(
	id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest,
	resp *raft.AppendEntriesResponse,
) error {
	args.LeaderCommitIndex = t.durable(commitFor(args))
	// A connection that was kept while the member restarted is broken. raft would
	// wait for its CommitTimeout before it tries again.
	err := again(func() error { return t.NetworkTransport.AppendEntries(id, target, args, resp) })
	if err == nil && resp.Success {
		t.notices.accepted(id, target, args)
	}
	return err
}

// notify sends a request of commitNotices and reports whether the follower
// accepted it.
func (t *Transport) notify(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest) bool {
	var resp raft.AppendEntriesResponse
	return t.leads(req.Term) && t.appendTo(id, target, req, &resp) == nil && resp.Success
}

// Committed reports that this node has applied the entry at index, which is
// therefore committed. If this node leads, Committed makes sure that the
// followers learn of it: see commitNotices.
func (t *Transport) Committed(index uint64) { t.notices.committed(index) }

// Close implements raft.WithClose. The caller must first close the connections
// of requests that are on their way.
func (t *Transport) Close() error {
	t.notices.close()
	err := t.NetworkTransport.Close()
	t.notices.wait()
	return err
}

// commitFor returns the commit index that a request may carry: at most the
// index of the request's last entry. After that entry, a follower may have
// other entries, from an earlier leader. In the Raft paper, a follower ignores
// the part of a commit index that is beyond the last new entry. hashicorp/raft
// 1.7.3 instead treats everything in the follower's log up to the commit index
// as committed. A leader reads the end of the log before it reads the commit
// index. If an entry is appended and committed in between, the leader sends a
// commit index beyond the entries of the request.
func commitFor(args *raft.AppendEntriesRequest) uint64 {
	return min(args.LeaderCommitIndex, args.PrevLogEntry+uint64(len(args.Entries)))
}

// heartbeat returns a function that sends a request like a heartbeat of raft.
func (t *Transport) heartbeat(
	id raft.ServerID, target raft.ServerAddress, header raft.RPCHeader, term uint64,
) func() error {
	return func() error {
		req := raft.AppendEntriesRequest{RPCHeader: header, Term: term}
		return t.NetworkTransport.AppendEntries(id, target, &req, &raft.AppendEntriesResponse{})
	}
}

// InstallSnapshot implements raft.Transport. Like AppendEntries, it waits until
// the member can be reached.
func (t *Transport) InstallSnapshot(
	id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader,
) error {
	return t.probe.send(id, args.Term, t.heartbeat(id, target, args.RPCHeader, args.Term), func() error {
		return t.NetworkTransport.InstallSnapshot(id, target, args, resp, data)
	})
}

// maxIdle is how many idle connections to a member are kept.
const maxIdle = 4

// RequestVote implements raft.Transport.
//
// A connection that was kept while the member restarted is broken, and
// hashicorp/raft 1.7.3 notices this only when it sends. raft asks each voter
// once in an election, so the vote would be lost, and perhaps the election with
// it. So RequestVote repeats the request. This can only help. A voter that has
// not read the request answers the repetition. A voter that has already granted
// its vote refuses a second request in the term (see package raftlog); the vote is
// then lost as it would have been without the repetition. raft counts one
// answer per voter.
func (t *Transport) RequestVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse,
) error {
	return again(func() error { return t.NetworkTransport.RequestVote(id, target, args, resp) })
}

// RequestPreVote implements raft.WithPreVote. It repeats requests as
// RequestVote does. It sends none if this node knows that it was removed,
// because every voter would refuse the request. raft itself may not know of the
// removal. Without this rule, it would ask forever, once per election timeout,
// and the voters would log each request.
func (t *Transport) RequestPreVote(
	id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse,
) error {
	if t.removed() {
		resp.Term, resp.Granted = args.Term, false
		return nil
	}
	return again(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
}

// again repeats a request at most maxIdle times, while it fails because of a
// broken connection. A connection also counts as broken if this node has closed
// it because the node's secret was replaced.
func again(request func() error) error {
	err := request()
	for range maxIdle {
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) &&
			!errors.Is(err, net.ErrClosed) {
			break
		}
		err = request()
	}
	return err
}

// SetHeartbeatHandler implements raft.Transport. It does nothing, so that raft
// has no fast path for heartbeats.
func (*Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// header returns the header of a request that this package sends itself,
// without a call of raft.
func (t *Transport) header() raft.RPCHeader {
	return raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(t.self), Addr: t.EncodePeer(t.self, t.selfAddr),
	}
}

// StartElection makes a node campaign immediately. It sends TimeoutNow, the
// message with which Raft transfers leadership (Raft dissertation, 3.10). The
// node may be this one.
func (t *Transport) StartElection(id raft.ServerID, addr raft.ServerAddress) error {
	return t.TimeoutNow(id, addr, &raft.TimeoutNowRequest{RPCHeader: t.header()}, &raft.TimeoutNowResponse{})
}

// AwaitRaft waits until raft has handled all requests that it received before.
// It sends an append request of term 0: the request passes through raft's main
// loop after the earlier ones, and raft ignores it.
func (t *Transport) AwaitRaft() error {
	req := &raft.AppendEntriesRequest{RPCHeader: t.header()}
	return t.NetworkTransport.AppendEntries(t.self, t.selfAddr, req, &raft.AppendEntriesResponse{})
}
