package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// changeTimeout is the time limit of a change of the members or of the leader
// that was requested at any node. It is longer than adminTimeout because a
// leader that is to be removed first transfers its leadership.
const changeTimeout = 2 * adminTimeout

// Remove removes a node from the cluster and returns a description of what was
// done. It works on any node. It refuses a removal that would leave fewer live
// voters than a majority, unless force is set.
func (n *Node) Remove(ctx context.Context, id string, force bool) (done string, err error) {
	reply, err := n.admin.askLeader(ctx, adminRequest{Op: opRemove, Node: id, Force: force})
	return reply.Done, err
}

// remove answers opRemove. Only the leader executes it.
func (a *admin) remove(ctx context.Context, req adminRequest, reply *adminReply) error {
	switch {
	case req.Node == "":
		return checkNodeID(req.Node)
	case !a.raft.leads():
		return errNotLed
	case req.Node == a.cfg.NodeID:
		return a.removeSelf(ctx, req, reply)
	}
	return a.members.removeOther(ctx, req, reply)
}

// removeOther removes a node other than this one. It fails if this node does not
// lead.
func (ms *membership) removeOther(ctx context.Context, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := ms.changes.lock(ctx); err != nil {
		return err
	}
	// A removal that is not committed in time may be committed later. Unlocking
	// before that commit is safe, because raft begins no other change until
	// then.
	defer ms.changes.unlock()
	// This node may have lost its leadership while it waited for the lock. A
	// deposed leader must not refuse a removal because of the members that it
	// knows, which may be outdated, and it must not advise --force.
	if !ms.raft.leads() {
		return errNotLed
	}
	if req.auto && !ms.away.Has(req.Node) { // the node was added again meanwhile
		return fmt.Errorf("%s is no longer away", req.Node)
	}
	// Passing this index makes raft refuse the removal if the membership has
	// changed since checkRemoval checked it.
	index := ms.machine.Configured()
	if index == 0 { // raft would take 0 for "no condition"
		return fmt.Errorf("remove %s: the members are not known yet: %w", req.Node, features.ErrBusy)
	}
	if err := ms.checkRemoval(ctx, req); err != nil {
		return err
	}
	gone, _ := member.Find(ms.raft.members(), req.Node)
	if err := ms.expel(ctx, req.Node, index); err != nil {
		return fmt.Errorf("remove %s: %w", req.Node, err)
	}
	ms.tellRemoved(ctx, gone)
	if !req.auto {
		ms.operatorChanged()
	}
	if err := ms.setLearner(req.Node, false); err != nil {
		ms.log.Warn("the list of learners still contains a removed node", "node", req.Node, "error", err)
	}
	ms.log.Info("member removed", "node", req.Node, "force", req.Force)
	reply.Done = req.Node + " is removed"
	return nil
}

// tellLimit bounds how long tellRemoved waits for the node.
const tellLimit = 500 * time.Millisecond

// tellRemoved tells a node that it was removed, so that it stops sending the
// commands of its clients while this leader still serves the node's streams. A
// node that does not receive this message finds out by itself: see
// removalWatch.
func (ms *membership) tellRemoved(ctx context.Context, m member.Member) {
	ctx, cancel := context.WithTimeout(ctx, tellLimit)
	defer cancel()
	addr := string(ms.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
	if err := ms.peers.askContext(ctx, addr, m.ID, adminRequest{Op: opRemoved}, &adminReply{}); err != nil {
		ms.log.Debug("failed to tell a node that it was removed", "node", m.ID, "error", err)
	}
}

// expel removes a node. index is the log index of the configuration that the
// caller has checked. expel fails if a later configuration exists.
func (ms *membership) expel(ctx context.Context, id string, index uint64) error {
	return ms.changed(ctx, ms.raft.running().RemoveServer(raft.ServerID(id), index, enqueueTimeout(ctx)))
}

// removeSelf transfers leadership and asks the next leader to remove this node.
func (a *admin) removeSelf(ctx context.Context, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := a.members.checkRemoval(ctx, req); err != nil {
		return err
	}
	if err := a.transfers.transfer(ctx, "", reply); err != nil {
		return fmt.Errorf("%s leads and must transfer leadership before it is removed: %w", req.Node, err)
	}
	a.awaitLink(ctx)
	next, err := a.askLeader(ctx, req)
	if err != nil {
		// Leadership has moved, so no error of the remaining steps may say that
		// nothing was executed.
		return outcome.NewExecuted(halfRemoved(reply.Done, req.Node, err))
	}
	reply.Done += ", " + next.Done
	return nil
}

// linkLimit bounds how long awaitLink waits.
const linkLimit = time.Second

// awaitLink waits until this node is linked to the next leader. The node then
// sends its clients' groups in flight again. If the node were removed before that,
// no leader would accept these groups, and their outcome would stay unknown.
func (a *admin) awaitLink(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, linkLimit)
	defer cancel()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for !a.status.forwarder.isLinked() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// halfRemoved describes the state after a leader has transferred its leadership
// and its removal has failed or has an unknown outcome.
func halfRemoved(done, id string, err error) string {
	if errors.Is(err, outcome.ErrUnknown) {
		return fmt.Sprintf("%s, but it is unknown whether %s was removed: %v; "+
			"run \"holdfast status\" to see the members", done, id, err)
	}
	return fmt.Sprintf("%s, but %s is still a member: %v", done, id, err)
}

// checkRemoval fails if the node is not a member or is the only voter. Unless
// force is set, it also fails if the removal would leave fewer live voters than a
// majority of the remaining voters.
func (ms *membership) checkRemoval(ctx context.Context, req adminRequest) error {
	members := ms.raft.members()
	i := slices.IndexFunc(members, func(m member.Member) bool { return m.ID == req.Node })
	if i < 0 {
		return fmt.Errorf("%s is not a member", req.Node)
	}
	if !members[i].Voter {
		return nil
	}
	left := slices.DeleteFunc(members, func(m member.Member) bool { return !m.Voter || m.ID == req.Node })
	switch {
	case len(left) == 0:
		return fmt.Errorf("%s is the only voter: without it the cluster is gone", req.Node)
	case req.Force:
		return nil
	}
	need := len(left)/2 + 1
	live, reasons := ms.live(ctx, left, need)
	switch {
	case live >= need:
	case ctx.Err() != nil:
		// some voters had no time to answer, so nothing is known about them
		return errNoAnswers
	case !ms.raft.leads():
		return errNotLed
	default:
		return fmt.Errorf("removing %s would leave %s, %d of them reachable: writes would need %d (%s); "+
			"bring those voters back or remove them first, or use --force",
			req.Node, count(len(left), "voter"), live, need, strings.Join(reasons, "; "))
	}
	return nil
}

// live asks the voters whether they can acknowledge entries now. A voter can do
// so if it answers and is at most transferLag entries behind. live returns how
// many voters can, and the reasons why others cannot.
//
// It returns as soon as it has found need voters that can, and does not wait for
// the others. If the voter that is to be removed has just died, the leader may be
// about to step down, and only a quick removal of that voter prevents this.
func (ms *membership) live(ctx context.Context, voters []member.Member, need int) (live int, reasons []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	answers := make(chan error, len(voters))
	var requests sync.WaitGroup
	defer func() {
		cancel()
		requests.Wait() // canceled requests end at once
	}()
	for _, m := range voters {
		requests.Go(func() { answers <- ms.keepsUp(ctx, m) })
	}
	for range voters {
		if err := <-answers; err != nil {
			reasons = append(reasons, err.Error())
		} else if live++; live == need {
			break
		}
	}
	slices.Sort(reasons)
	return live, reasons
}

// keepsUp returns an error unless the voter answers and is at most transferLag
// entries behind.
func (ms *membership) keepsUp(ctx context.Context, m member.Member) error {
	last := ms.raft.running().LastIndex()
	if m.ID == ms.cfg.NodeID {
		return nil
	}
	index, err := ms.transfers.logEnd(ctx, m)
	if err == nil && index+transferLag < last {
		err = fmt.Errorf("%s is %d entries behind", m.ID, last-index)
	}
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
