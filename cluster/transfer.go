package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// This file transfers leadership without raft.LeadershipTransfer of
// hashicorp/raft 1.7.3, which can leave a leader unable to accept writes (issue
// 696). raft sets a flag under which it refuses every proposal, and a goroutine
// clears the flag when the transfer is over. That goroutine waits, without a
// timeout, until the target's replication goroutine takes a request from a
// channel. If the target does not answer, the request is never taken. The flag
// then remains set. The leader does not step down, because the other voters
// answer it, so the cluster has a leader that accepts no writes. The flag also
// survives the end of the term, because a new term does not reset it. If no
// target is named, raft chooses the voter with the highest next index, whether
// that voter is alive or not.
//
// So Holdfast never sets that flag. A transfer has four steps. Each step has a
// time limit, and leaves no state behind after the transfer:
//
//  1. Ask the target for its status. Refuse a target that does not answer, is
//     not a voter, is being stopped, has only just started, or is more than
//     transferLag entries behind.
//  2. Pause the proposer of this leadership, suspend its lease (see package
//     readindex), and wait for the entries in flight. From then on the log does
//     not grow, so the target can catch up.
//  3. Wait until the target's log is as long as the leader's log. Then send
//     TimeoutNow, the message with which Raft starts an election at the target
//     (Raft dissertation, 3.10).
//  4. Wait until the leadership closes, because the target's election has ended
//     the term. If the time limit is over first, the proposer continues. The
//     target may have received the message nevertheless and win an election
//     later, so the outcome is then unknown.
//
// The pause belongs to the leadership, and so to one term. It ends with the
// function that began it, whatever the target does. So a leader cannot remain
// unable to propose. If the target dies before it asks for votes, the leader
// continues in its term after at most the time limit of step 4. If the target
// dies later, its election has ended the term, and another election follows.
//
// Safety does not depend on any of this. TimeoutNow starts an ordinary
// election, which the target wins only with the votes of a majority and an
// up-to-date log. A TimeoutNow that arrives late, after the proposer has
// continued, costs one election.

// transferLag is how many entries the target of a transfer may be behind.
const transferLag = promotionLag

// transferPoll is the interval at which a transfer asks the target and checks
// the state.
const transferPoll = 5 * time.Millisecond

// errStopping refuses a target that is being stopped. As leader it would have to
// transfer leadership again, or end while it leads.
var errStopping = errors.New("is being stopped")

// errAllStopping ends the attempts to transfer leadership, because no target
// can become available.
var errAllStopping = errors.New("every other voter is being stopped")

var errTransferring = errors.New("leadership is already being transferred")

// transfers transfers the leadership of a node to another voter.
type transfers struct {
	*environment
	raft        *raftInstance
	peers       *peers
	leaderships *leaderships

	busy atomic.Bool // set while a transfer is in progress
}

// Transfer transfers leadership and returns a description of what was done. The
// argument to is the id of the next leader. If it is "", the most up-to-date
// live voter becomes the next leader. Transfer works on any node. A transfer to
// the node that already leads succeeds immediately.
func (n *Node) Transfer(ctx context.Context, to string) (done string, err error) {
	reply, err := n.admin.askLeader(ctx, adminRequest{Op: opTransfer, Node: to})
	return reply.Done, err
}

// transfer transfers leadership. Only the leader executes it.
func (t *transfers) transfer(ctx context.Context, to string, reply *adminReply) error {
	ld, err := t.awaitLeadership(ctx)
	if err != nil {
		return err
	}
	if to == t.cfg.NodeID {
		reply.Done = to + " leads already"
		return nil
	}
	if !t.busy.CompareAndSwap(false, true) {
		return errTransferring
	}
	defer t.busy.Store(false)
	target, err := t.target(ctx, to)
	if err != nil {
		return err
	}
	t.log.Info("transferring leadership", "to", target.ID, "term", ld.term)
	if err := t.transferTo(ctx, ld, target); err != nil {
		t.log.Warn("leadership not transferred", "to", target.ID, "error", err)
		return err
	}
	leader, err := t.elected(ctx)
	switch {
	case err != nil:
		return err
	case leader == t.cfg.NodeID:
		return fmt.Errorf("%s was not elected, %s leads again", target.ID, leader)
	case to != "" && leader != to:
		return fmt.Errorf("%s was not elected, %s leads now", to, leader)
	}
	reply.Done = leader + " leads now"
	return nil
}

// awaitLeadership returns the leadership of this node. It waits, because the
// leadership opens shortly after the node was elected.
func (t *transfers) awaitLeadership(ctx context.Context) (*leadership, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*t.cfg.Options.HeartbeatTimeout)
	defer cancel()
	for t.raft.leads() {
		if ld := t.leaderships.current(); ld != nil {
			return ld, nil
		}
		if err := t.awaitPoll(ctx); err != nil {
			return nil, fmt.Errorf("this node was elected and cannot lead yet: %w", err)
		}
	}
	return nil, errNotLed
}

// awaitPoll waits for transferPoll. It fails when ctx or the node ends.
func (t *transfers) awaitPoll(ctx context.Context) error {
	select {
	case <-time.After(transferPoll):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

// target returns the voter that is to become leader, after that voter has
// answered. If to is "", target chooses a voter whose log is as long as the
// leader's, or else the voter with the longest log.
func (t *transfers) target(ctx context.Context, to string) (member.Member, error) {
	voters := slices.DeleteFunc(t.raft.members(), func(m member.Member) bool {
		return m.ID == t.cfg.NodeID || to != "" && m.ID != to
	})
	switch {
	case to != "" && len(voters) == 0:
		return member.Member{}, fmt.Errorf("%s is not a member", to)
	case to != "" && !voters[0].Voter:
		return member.Member{}, fmt.Errorf("%s does not vote yet", to)
	}
	voters = slices.DeleteFunc(voters, func(m member.Member) bool { return !m.Voter })
	if len(voters) == 0 {
		return member.Member{}, fmt.Errorf("%s is the only voter", t.cfg.NodeID)
	}
	last := t.raft.running().LastIndex()
	type answer struct {
		m     member.Member
		index uint64
		err   error
	}
	asking, cancel := context.WithTimeout(ctx, 2*t.cfg.Options.HeartbeatTimeout)
	answers := make(chan answer, len(voters))
	var requests sync.WaitGroup
	defer func() {
		cancel()
		requests.Wait() // canceled requests end at once
	}()
	for _, m := range voters {
		requests.Go(func() {
			index, err := t.logEnd(asking, m)
			answers <- answer{m, index, err}
		})
	}
	var best answer
	var refusals []string
	stopping := 0
	for range voters {
		a := <-answers
		if errors.Is(a.err, errStopping) {
			stopping++
		}
		switch {
		case a.err != nil:
			refusals = append(refusals, a.err.Error())
		case a.index+transferLag < last:
			refusals = append(refusals, behind(a.m, a.index, last).Error())
		case a.index >= last:
			return a.m, nil // other voters may not answer; do not wait for them
		case a.index >= best.index:
			best = a
		}
	}
	if best.m.ID == "" {
		slices.Sort(refusals)
		if to == "" && stopping == len(voters) {
			return member.Member{}, errAllStopping
		}
		return member.Member{}, errors.New(strings.Join(refusals, "; "))
	}
	return best.m, nil
}

// behind returns the error for a target that is too far behind. index is the last
// log index of the target, and last is that of the leader.
func behind(m member.Member, index, last uint64) error {
	return fmt.Errorf("%s is too far behind: its log ends at index %d, that of the leader at %d", m.ID, index, last)
}

// logEnd asks a voter for the index of the last entry of its log. It fails if
// the voter is stopping or has only just started.
func (t *transfers) logEnd(ctx context.Context, m member.Member) (index uint64, err error) {
	var r adminReply
	addr := t.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr))
	if err := t.peers.askContext(ctx, string(addr), m.ID, adminRequest{Op: opStatus}, &r); err != nil {
		return 0, fmt.Errorf("%s does not answer: %w", m.ID, err)
	}
	if r.Status != nil && r.Status.Stopping {
		return 0, fmt.Errorf("%s %w", m.ID, errStopping)
	}
	if r.Status == nil || r.Status.LastIndex == 0 || r.Status.Settling {
		return 0, fmt.Errorf("%s has only just started", m.ID)
	}
	return r.Status.LastIndex, nil
}

// transferTo makes a voter campaign. It returns nil when the term of the
// leadership is over.
func (t *transfers) transferTo(ctx context.Context, ld *leadership, m member.Member) error {
	quiet, ok := ld.pause()
	if !ok {
		return errNotLed
	}
	defer ld.resume()
	defer ld.reads.Suspend()()
	limit := t.cfg.Options.HeartbeatTimeout
	preparing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-quiet:
	case <-ld.done:
		return errNotLed
	case <-preparing.Done():
		return fmt.Errorf("entries in flight were not committed within %v: %w", limit, preparing.Err())
	}
	for last := ld.raft.LastIndex(); ; {
		index, err := t.logEnd(preparing, m)
		if err != nil {
			return err
		}
		if index >= last {
			break
		}
		if err := t.awaitPoll(preparing); err != nil {
			return behind(m, index, last)
		}
	}
	sent := make(chan error, 1)
	go func() {
		id := raft.ServerID(m.ID)
		sent <- t.raft.messages().StartElection(id, t.peers.addressOf(id, raft.ServerAddress(m.Addr)))
	}()
	failpoint.Hit(failpoint.TransferBegun)
	limit = 2 * t.cfg.Options.HeartbeatTimeout
	over := time.After(limit)
	for {
		select {
		case <-ld.done:
			return nil
		case err := <-sent:
			if err != nil {
				return electionError(m.ID, err)
			}
			sent = nil
		case <-over:
			return outcome.NewChangeUnknown(
				fmt.Errorf("%s was asked to campaign and was not elected within %v", m.ID, limit))
		case <-ctx.Done():
			return outcome.NewChangeUnknown(ctx.Err())
		case <-t.ctx.Done():
			return outcome.NewChangeUnknown(t.ctx.Err())
		}
	}
}

// electionError returns the error of a failed StartElection, with its outcome.
// If the connection was refused, the message was not sent. After any other
// error, the target may have received the message, or may receive it later.
func electionError(target string, err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return outcome.NewNotExecuted(true, fmt.Sprintf("%s could not be asked to campaign: %v", target, err))
	}
	return outcome.NewChangeUnknown(fmt.Errorf("%s may or may not have been asked to campaign: %w", target, err))
}

// elected waits until this node, which led, knows the current leader.
func (t *transfers) elected(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*t.cfg.Options.HeartbeatTimeout)
	defer cancel()
	for {
		if _, id := t.raft.running().LeaderWithID(); id != "" {
			return string(id), nil
		}
		if err := t.awaitPoll(ctx); err != nil {
			return "", outcome.NewChangeUnknown(
				fmt.Errorf("%s no longer leads, and no other node has been elected yet: %w", t.cfg.NodeID, err))
		}
	}
}

// giveUpLeadership transfers leadership to any live voter. After every error
// except errAllStopping, it tries again, until ctx or the node ends.
func (t *transfers) giveUpLeadership(ctx context.Context) {
	t.log.Info("handing over leadership")
	logged := ""
	for t.raft.leads() && ctx.Err() == nil {
		err := t.transfer(ctx, "", &adminReply{})
		if err == nil {
			return
		}
		if err.Error() != logged {
			logged = err.Error()
			t.log.Warn("leadership not handed over", "error", err)
		}
		if errors.Is(err, errAllStopping) {
			return
		}
		select {
		case <-ctx.Done():
		case <-t.ctx.Done():
			return
		case <-time.After(t.cfg.Options.RelinkEvery):
		}
	}
}
