package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
)

// This file transfers leadership without raft.LeadershipTransfer of
// hashicorp/raft 1.7.3, which can wedge a leader (issue 696). raft sets a flag,
// under which it refuses every proposal, and a goroutine clears the flag when the
// transfer is over. That goroutine waits for the target's replication goroutine
// to take a request from a channel, without a timeout. If the target does not
// answer, the request is never taken: the flag stays set, the leader keeps its
// lease through the other voters, and the cluster has a leader that accepts no
// writes. The flag also survives the end of the term, because a new term does not
// reset it. And where no target is named, raft chooses the voter whose next index
// is the highest, whether that voter is alive or not.
//
// So the flag is never set here. A transfer has four steps, each with a time
// limit, and nothing that outlives them:
//
//  1. The target is asked for its status. A target that does not answer, or is no
//     voter, or is more than transferLag entries behind is refused.
//  2. The proposer of this office pauses, and the entries in flight are awaited.
//     From then on the log does not grow, so the target can catch up.
//  3. The target's log is as long as this one: it gets TimeoutNow, the message with
//     which Raft starts an election at the target (Ongaro, Consensus: bridging theory
//     and practice, 3.10).
//  4. The office closes, because the target's election has ended the term; or the
//     time is over, and the proposer goes on.
//
// The pause belongs to the office, and with it to one term. It ends with the
// function that began it, whatever the target did. So a leader cannot stay unable to
// propose. If the target dies before it asks for votes, the leader goes on in its
// term after at most the time limit of step 4; if it dies later, its election has
// ended the term and another one follows.
//
// Safety does not depend on any of this: TimeoutNow starts an ordinary election,
// which the target wins only with the votes of a majority and a log that is up to
// date. A TimeoutNow that arrives late, when the proposer has gone on, costs an
// election.

// transferLag is how many entries the target of a transfer may be behind.
const transferLag = promotionLag

// transferPoll paces the questions and looks of a transfer.
const transferPoll = 5 * time.Millisecond

var errTransferring = errors.New("leadership is being transferred already")

// Transfer hands leadership to a node, or to the most up-to-date live voter if to
// is "", and says what was done. Any node may be asked. A transfer to the node that
// leads succeeds at once.
func (n *Node) Transfer(ctx context.Context, to string) (done string, err error) {
	reply, err := n.askLeader(ctx, adminRequest{Op: opTransfer, Node: to})
	return reply.Done, err
}

// TransferLeadership is Transfer without a limit of the caller's.
func (n *Node) TransferLeadership(to string) error {
	return n.toLeader(adminRequest{Op: opTransfer, Node: to})
}

// transfer hands leadership over, as the leader that was asked to.
func (n *Node) transfer(ctx context.Context, to string, reply *adminReply) error {
	o, err := n.awaitOffice(ctx)
	if err != nil {
		return err
	}
	if to == n.cfg.NodeID {
		reply.Done = to + " leads already"
		return nil
	}
	if !n.transferring.CompareAndSwap(false, true) {
		return errTransferring
	}
	defer n.transferring.Store(false)
	target, err := n.target(ctx, to)
	if err != nil {
		return err
	}
	n.log.Info("transferring leadership", "to", target.ID, "term", o.term)
	if err := n.transferTo(ctx, o, target); err != nil {
		n.log.Warn("leadership not transferred", "to", target.ID, "error", err)
		return err
	}
	leader, err := n.elected(ctx)
	switch {
	case err != nil:
		return err
	case leader == n.cfg.NodeID:
		return fmt.Errorf("%s was not elected, %s leads again", target.ID, leader)
	case to != "" && leader != to:
		return fmt.Errorf("%s was not elected, %s leads now", to, leader)
	}
	reply.Done = leader + " leads now"
	return nil
}

// awaitOffice returns the office of this node, which opens a moment after the node
// was elected.
func (n *Node) awaitOffice(ctx context.Context) (*office, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.Options.HeartbeatTimeout)
	defer cancel()
	for n.leads() {
		if o := n.currentOffice(); o != nil {
			return o, nil
		}
		if err := n.pace(ctx); err != nil {
			return nil, fmt.Errorf("this node was elected and cannot lead yet: %w", err)
		}
	}
	return nil, errNotLeader
}

// pace waits for transferPoll, or fails when ctx or the node ends.
func (n *Node) pace(ctx context.Context) error {
	select {
	case <-time.After(transferPoll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
}

// target returns the voter that leadership is to go to, after it has answered.
func (n *Node) target(ctx context.Context, to string) (Member, error) {
	voters := slices.DeleteFunc(membersOf(n.raft), func(m Member) bool {
		return m.ID == n.cfg.NodeID || to != "" && m.ID != to
	})
	switch {
	case to != "" && len(voters) == 0:
		return Member{}, fmt.Errorf("%s is not a member", to)
	case to != "" && !voters[0].Voter:
		return Member{}, fmt.Errorf("%s does not vote yet", to)
	}
	voters = slices.DeleteFunc(voters, func(m Member) bool { return !m.Voter })
	if len(voters) == 0 {
		return Member{}, fmt.Errorf("there is no other voter than %s", n.cfg.NodeID)
	}
	last := n.raft.LastIndex()
	type answer struct {
		m     Member
		index uint64
		err   error
	}
	asking, cancel := context.WithTimeout(ctx, 2*n.cfg.Options.HeartbeatTimeout)
	defer cancel()
	answers := make(chan answer, len(voters))
	for _, m := range voters {
		go func() {
			index, err := n.logEnd(asking, m)
			answers <- answer{m, index, err}
		}()
	}
	var best answer
	var refusals []string
	for range voters {
		a := <-answers
		switch {
		case a.err != nil:
			refusals = append(refusals, a.err.Error())
		case a.index+transferLag < last:
			refusals = append(refusals, fmt.Sprintf("%s is too far behind: its log ends at index %d, that of the leader at %d", a.m.ID, a.index, last))
		case a.index >= last:
			return a.m, nil // others may be silent: they are not waited for
		case a.index >= best.index:
			best = a
		}
	}
	if best.m.ID == "" {
		slices.Sort(refusals)
		return Member{}, errors.New(strings.Join(refusals, "; "))
	}
	return best.m, nil
}

// logEnd asks a voter where its log ends.
func (n *Node) logEnd(ctx context.Context, m Member) (index uint64, err error) {
	var r adminReply
	addr := n.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr))
	if err := n.askContext(ctx, string(addr), m.ID, adminRequest{Op: opStatus}, &r); err != nil {
		return 0, fmt.Errorf("%s does not answer: %w", m.ID, err)
	}
	if r.Status == nil || r.Status.LastIndex == 0 || r.Status.Settling {
		return 0, fmt.Errorf("%s has only just started", m.ID)
	}
	return r.Status.LastIndex, nil
}

// transferTo makes a voter stand for election, and returns nil when the term of the
// office is over.
func (n *Node) transferTo(ctx context.Context, o *office, m Member) error {
	quiet, ok := o.pause()
	if !ok {
		return errNotLeader
	}
	defer o.resume()
	limit := n.cfg.Options.HeartbeatTimeout
	preparing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-quiet:
	case <-o.done:
		return errNotLeader
	case <-preparing.Done():
		return fmt.Errorf("entries in flight were not committed within %v: %w", limit, preparing.Err())
	}
	for last := o.raft.LastIndex(); ; {
		index, err := n.logEnd(preparing, m)
		if err != nil {
			return err
		}
		if index >= last {
			break
		}
		if err := n.pace(preparing); err != nil {
			return fmt.Errorf("%s is too far behind: its log ends at index %d, that of the leader at %d", m.ID, index, last)
		}
	}
	sent := make(chan error, 1)
	go func() {
		sent <- n.timeoutNow(raft.ServerID(m.ID), n.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
	}()
	failpoint.Hit(failpoint.TransferBegun)
	limit = 2 * n.cfg.Options.HeartbeatTimeout
	over := time.After(limit)
	for {
		select {
		case <-o.done:
			return nil
		case err := <-sent:
			if err != nil {
				return fmt.Errorf("%s could not be told to stand for election: %w", m.ID, err)
			}
			sent = nil
		case <-over:
			return fmt.Errorf("%s was not elected within %v, %s goes on leading", m.ID, limit, n.cfg.NodeID)
		case <-ctx.Done():
			return ctx.Err()
		case <-n.ctx.Done():
			return n.ctx.Err()
		}
	}
}

// timeoutNow has a node stand for election at once.
func (n *Node) timeoutNow(id raft.ServerID, addr raft.ServerAddress) error {
	self := n.addressOf(n.self, raft.ServerAddress(n.cfg.AdvertisePeerAddr))
	return n.transport.TimeoutNow(id, addr, &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax,
		ID:              []byte(n.self),
		Addr:            n.transport.EncodePeer(n.self, self),
	}}, &raft.TimeoutNowResponse{})
}

// elected waits until this node, which led, knows who leads now.
func (n *Node) elected(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*n.cfg.Options.HeartbeatTimeout)
	defer cancel()
	for {
		if _, id := n.raft.LeaderWithID(); id != "" {
			return string(id), nil
		}
		if err := n.pace(ctx); err != nil {
			return "", fmt.Errorf("%s leads no longer, and no other node has been elected yet: %w", n.cfg.NodeID, err)
		}
	}
}

// giveUpLeadership transfers leadership to any live voter, and tries again while
// that fails for a reason that may pass.
func (n *Node) giveUpLeadership(ctx context.Context) {
	n.log.Info("handing over leadership")
	said := ""
	for n.leads() && ctx.Err() == nil {
		err := n.transfer(ctx, "", &adminReply{})
		if err == nil {
			return
		}
		if err.Error() != said {
			said = err.Error()
			n.log.Warn("leadership not handed over", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-n.ctx.Done():
			return
		case <-time.After(n.cfg.Options.RelinkEvery):
		}
	}
}
