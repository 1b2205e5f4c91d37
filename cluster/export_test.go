package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfast-kv/holdfast/cluster/fairshare"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/fsm"
)

// Campaign makes the node campaign now, as failover.Campaigner.Campaign does.
func (n *Node) Campaign() error {
	self := n.peers.addressOf(n.self, raft.ServerAddress(n.cfg.AdvertisePeerAddr))
	req := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(n.self), Addr: n.raft.messages().EncodePeer(n.self, self),
	}}
	return n.raft.messages().TimeoutNow(n.self, self, req, &raft.TimeoutNowResponse{})
}

// Raft returns the state and the commit index of raft. Unlike Status, it does not
// wait for the state machine.
func (n *Node) Raft() (raft.RaftState, uint64) {
	r := n.raft.running()
	return r.State(), r.CommitIndex()
}

// LeadershipNow returns the lease clock of the node's leadership, or 0 if the
// node does not lead.
func (n *Node) LeadershipNow() time.Duration {
	if ld := n.leaderships.current(); ld != nil {
		return time.Duration(ld.now())
	}
	return 0
}

// ReadsWaiting returns how many reads wait for the next round, while another
// round is under way.
func (n *Node) ReadsWaiting() int {
	ld := n.leaderships.current()
	if ld == nil {
		return 0
	}
	return ld.reads.Waiting()
}

// OccupySlowReads takes all slots for slow reads of the node.
func (n *Node) OccupySlowReads() error {
	for n.reads.Slots().Free() > 0 {
		if _, err := n.reads.Slots().Enter(fairshare.Worker{}, 0, nil); err != nil {
			return err
		}
	}
	return nil
}

// SlowReadsWaiting returns how many slow reads wait for a slot on this node.
func (n *Node) SlowReadsWaiting() int64 { return n.reads.Waiting() }

// ReadsSent returns how many reads of this node's clients have no answer from
// the leader yet.
func (n *Node) ReadsSent() int {
	n.forwarder.readMu.Lock()
	l, _ := n.forwarder.reads.(*remoteLink)
	n.forwarder.readMu.Unlock()
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

// StateBusy reports whether an entry has the lock of the state machine or waits for
// it.
func (n *Node) StateBusy() bool { return !n.machine.TryView(func(*fsm.Machine) {}) }

// Swept returns the time of the forwarder's last sweep.
func (n *Node) Swept() time.Duration { return time.Duration(n.forwarder.coarse.Load()) }

// ReadsLeased returns how many groups of reads this node has begun under its
// lease as leader.
func (n *Node) ReadsLeased() float64 {
	var m dto.Metric
	if err := n.stats.ReadsLeased.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// ReadsConfirmed returns how many reads this node has confirmed as leader, with or
// without a round.
func (n *Node) ReadsConfirmed() float64 {
	var m dto.Metric
	if err := n.stats.ReadGroups.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// SessionID returns the id of the node's session.
func (n *Node) SessionID() fsm.SessionID { return n.session }

// Accepted returns the highest number among a session's groups that the node's
// leadership has accepted, or 0 if the node does not lead.
func (n *Node) Accepted(id fsm.SessionID) uint64 {
	ld := n.leaderships.current()
	if ld == nil {
		return 0
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	return ld.accepted[id]
}

// ApplyLate appends an entry that was built in an older term: one INCR of key,
// by a session that is not used otherwise.
func (n *Node) ApplyLate(term uint64, key string) error {
	row := n.Table().Find([]byte("incr"))
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(row, 0, [][]byte{[]byte(row.Name), []byte(key)})
	var b fsm.BatchBuilder
	b.Add(fsm.SessionID{NodeID: "ghost", Boot: 1}, 0, 1, g.Bytes())
	entry := b.Encode(fsm.Header{Term: term, Stamp: int64(time.Hour), Wall: 1, Seed: 1})
	return n.raft.running().Apply(entry, 0).Error()
}

// Configured returns the log index of the last configuration that this node has
// applied.
func (n *Node) Configured() uint64 { return n.machine.Configured() }

// Vote makes a node a voter, as membership.keep does after it has read the
// configuration at index.
func (n *Node) Vote(id, addr string, index uint64) error {
	return n.members.vote(member.Member{ID: id, Addr: addr}, index)
}

// Raise proposes a higher feature version and does not wait for the outcome. In
// the product, the same happens if a leader's call ends before its outcome is
// known.
func (n *Node) Raise(next int) {
	ld := n.leaderships.current()
	ld.forwarder.command(n.machine.Table(), [][]byte{[]byte(fsm.FeaturesCommand), decimal(ld.term), decimal(uint64(next))})
}

// Admit admits a node whose program knows the given feature version.
func (n *Node) Admit(id, addr string, features int) error {
	return n.members.admit(n.ctx, adminRequest{Op: opJoin, Node: id, Addr: addr, Features: features}, &adminReply{})
}

// Admitting reports whether a node is being admitted, or the feature version is
// being checked or raised.
func (n *Node) Admitting() bool {
	return errors.Is(n.features.WhileUnchanged(func() error { return nil }), features.ErrBusy)
}

// LockMembers delays all changes of the members until unlock is called.
func (n *Node) LockMembers(ctx context.Context) (unlock func(), err error) {
	return n.members.changes.unlock, n.members.changes.lock(ctx)
}

// Learners returns the nodes that remain non-voters until they are promoted.
func (n *Node) Learners() []string { return n.members.learners() }

// Expel removes a node, as the leader does after it has read the configuration
// at index.
func (n *Node) Expel(ctx context.Context, id string, index uint64) error {
	return n.members.expel(ctx, id, index)
}

// AddMember is like Add, without learner, and gives up when the node stops.
func (n *Node) AddMember(id, addr string) error {
	_, err := n.Add(n.ctx, id, addr, false)
	return err
}

// RemoveMember is like Remove, without force, and gives up when the node stops.
func (n *Node) RemoveMember(id string) error {
	_, err := n.Remove(n.ctx, id, false)
	return err
}

// TransferLeadership is like Transfer, and gives up when the node stops.
func (n *Node) TransferLeadership(to string) error {
	_, err := n.Transfer(n.ctx, to)
	return err
}

// PartSession returns the session in which the node, as the leader, removes the
// waiters of earlier starts.
func (n *Node) PartSession() fsm.SessionID {
	return (&leadership{leaderParts: leaderParts{forwarder: n.forwarder}}).partSession()
}
