package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// changeTimeout bounds a change of the members or of the leader that any node was
// asked for: a leader that is removed hands over first.
const changeTimeout = 2 * adminTimeout

// Remove removes a node from the cluster and says what was done. Any node may be
// asked. A removal that would leave fewer live voters than a majority is refused
// unless force is set.
func (n *Node) Remove(ctx context.Context, id string, force bool) (done string, err error) {
	reply, err := n.askLeader(ctx, adminRequest{Op: opRemove, Node: id, Force: force})
	return reply.Done, err
}

// RemoveMember is Remove without force.
func (n *Node) RemoveMember(id string) error {
	return n.toLeader(adminRequest{Op: opRemove, Node: id})
}

// removeMember removes a node, as the leader that was asked to.
func (n *Node) removeMember(ctx context.Context, req adminRequest, reply *adminReply) error {
	if !n.leads() {
		return errNotLeader
	}
	if req.Node == n.cfg.NodeID {
		return n.removeSelf(ctx, req, reply)
	}
	n.members.Lock()
	defer n.members.Unlock()
	// raft refuses the removal if the members are others by then than those that the
	// check has asked.
	index := n.machine.configured.Load()
	if index == 0 { // raft would take it for none
		return fmt.Errorf("remove %s: the members are not known yet: %w", req.Node, errBusy)
	}
	if err := n.checkRemoval(ctx, req); err != nil {
		return err
	}
	removed := n.raft.RemoveServer(raft.ServerID(req.Node), index, adminTimeout)
	if err := n.changed(ctx, removed); err != nil {
		return fmt.Errorf("remove %s: %w", req.Node, err)
	}
	n.log.Info("member removed", "node", req.Node, "force", req.Force)
	reply.Done = req.Node + " is removed"
	return nil
}

// removeSelf hands leadership over and has the next leader remove this node.
func (n *Node) removeSelf(ctx context.Context, req adminRequest, reply *adminReply) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	if err := n.checkRemoval(ctx, req); err != nil {
		return err
	}
	if err := n.transfer(ctx, "", reply); err != nil {
		return fmt.Errorf("%s leads and has to hand over before it is removed: %w", req.Node, err)
	}
	next, err := n.askLeader(ctx, req)
	if err != nil {
		// Leadership has moved: no error of the rest may say that nothing was executed.
		return Executed(fmt.Sprintf("%s, but %s is still a member: %v", reply.Done, req.Node, err))
	}
	reply.Done += ", " + next.Done
	return nil
}

// checkRemoval fails if a removal would leave fewer live voters than a majority of
// those that remain.
func (n *Node) checkRemoval(ctx context.Context, req adminRequest) error {
	members := membersOf(n.raft)
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == req.Node })
	if i < 0 {
		return fmt.Errorf("%s is not a member", req.Node)
	}
	if !members[i].Voter {
		return nil
	}
	left := slices.DeleteFunc(members, func(m Member) bool { return !m.Voter || m.ID == req.Node })
	switch {
	case len(left) == 0:
		return fmt.Errorf("%s is the only voter: without it the cluster is gone", req.Node)
	case req.Force:
		return nil
	}
	need := len(left)/2 + 1
	if live, reasons := n.live(ctx, left, need); live < need {
		return fmt.Errorf("removing %s would leave %s, %d of them reachable: writes would need %d (%s); bring these back or remove them first, or use --force",
			req.Node, count(len(left), "voter"), live, need, strings.Join(reasons, "; "))
	}
	return nil
}

// live asks voters whether they can acknowledge entries now: those that answer and
// are at most transferLag entries behind. It returns how many can, and for the others
// why not. It does not wait for more than are needed: a leader that has just lost
// another voter may be about to lose its lease, which the removal of that voter
// prevents.
func (n *Node) live(ctx context.Context, voters []Member, need int) (live int, reasons []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answers := make(chan error, len(voters))
	for _, m := range voters {
		go func() { answers <- n.keepsUp(ctx, m) }()
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

// keepsUp fails unless a voter answers and is at most transferLag entries behind.
func (n *Node) keepsUp(ctx context.Context, m Member) error {
	last := n.raft.LastIndex()
	if m.ID == n.cfg.NodeID {
		return nil
	}
	index, err := n.logEnd(ctx, m)
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
