package sim

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// Actions of operators at a bad time.
const (
	transferToDead    = "transfer to a dead node"
	transferToDying   = "target of a transfer dies"
	transferToSlow    = "transfer to a slow node"
	transferToLagging = "transfer to a lagging node"
	removalTooMany    = "removal that ends the quorum"
	removalOfLeader   = "removal of the leader"
)

var operatorKinds = []string{transferToDead, transferToDying, transferToSlow, transferToLagging,
	removalTooMany, removalOfLeader}

// operate adds operator actions to the schedule. It draws them from a random
// stream of its own, so the other faults of a seed stayed the same when operate
// was added.
func (s *Schedule) operate(span time.Duration) {
	r := stream(s.Seed, "operator")
	for range r.IntN(3) {
		f := Fault{Kind: operatorKinds[r.IntN(len(operatorKinds))], At: settle + time.Duration(r.Int64N(int64(span))),
			For: between(r, 50*ms, 3*time.Second), Seed: r.Uint64()}
		switch f.Kind {
		case transferToSlow:
			f.Much = int64(between(r, 20*ms, 800*ms))
		case transferToDying:
			f.Much = int64(between(r, ms/2, 40*ms))
		}
		s.Faults = append(s.Faults, f)
	}
}

// operate runs a fault that is an operator action. known is false if the fault
// is of another kind.
func (b *blow) operate() (bit, known bool) {
	switch b.f.Kind {
	case transferToDead:
		return b.transferToDead(), true
	case transferToDying:
		return b.transferToDying(), true
	case transferToSlow:
		return b.transferToSlow(), true
	case transferToLagging:
		return b.transferToLagging(), true
	case removalTooMany:
		return b.removalTooMany(), true
	case removalOfLeader:
		return b.removalOfLeader(), true
	}
	return false, false
}

// sides returns the leader's process and the ID of another node. It returns nil
// and "" if no node leads.
func (b *blow) sides() (leader *process, other string) {
	id := b.w.leader()
	if id == "" {
		return nil, ""
	}
	leader, other = b.w.node(id).running(), b.choose(without(b.w.ids(), id))
	if other == "" {
		return nil, ""
	}
	return leader, other
}

// transferToDead crashes a node and requests transfers of leadership to it for
// the duration of the fault.
func (b *blow) transferToDead() bool {
	leader, dead := b.sides()
	if leader == nil || !b.w.crash(dead, b.r.IntN(2) == 0) {
		return false
	}
	refused := false
	for begun := time.Now(); time.Since(begun) < b.f.For; <-time.After(askEvery / 4) {
		if err := transferLeadership(leader.n, dead); err != nil && strings.Contains(err.Error(), "does not answer") {
			refused = true
		}
	}
	b.w.revive(dead)
	return refused
}

// transferToDying requests a transfer of leadership and crashes the target a
// moment later.
func (b *blow) transferToDying() bool {
	leader, target := b.sides()
	if leader == nil {
		return false
	}
	over := make(chan struct{})
	go func() {
		_ = transferLeadership(leader.n, target) // any result is right
		close(over)
	}()
	<-time.After(time.Duration(b.f.Much))
	bit := b.w.crash(target, b.r.IntN(2) == 0)
	<-over
	b.wait()
	b.w.revive(target)
	return bit
}

// transferToSlow requests transfers of leadership to a node with a slow disk,
// so that the node's vote may come too late.
func (b *blow) transferToSlow() bool {
	leader, target := b.sides()
	if leader == nil {
		return false
	}
	d := b.w.node(target).disk
	late := d.effects().late
	d.slowDown(time.Duration(b.f.Much))
	for begun := time.Now(); time.Since(begun) < b.f.For; <-time.After(askEvery) {
		_ = transferLeadership(leader.n, target) // may succeed; this node then no longer leads
	}
	d.slowDown(0)
	return d.effects().late > late
}

// transferToLagging cuts a node off, and requests a transfer of leadership to
// it as soon as the cut ends.
func (b *blow) transferToLagging() bool {
	_, target := b.sides()
	if target == "" || !b.partition(b.isolated(target)) {
		return false
	}
	leader, _ := b.sides()
	if leader == nil {
		return false
	}
	_ = transferLeadership(leader.n, target) // any result is right
	return true
}

// removalTooMany crashes as many nodes as the cluster tolerates, and requests
// the removal of one that is up.
func (b *blow) removalTooMany() bool {
	leader, _ := b.sides()
	if leader == nil {
		return false
	}
	ids := b.shuffled()
	down := without(ids, leader.id)[:(len(ids)-1)/2]
	for _, id := range down {
		b.w.crash(id, b.r.IntN(2) == 0)
	}
	refused := false
	for _, id := range ids {
		if p := b.w.node(id).running(); p != nil {
			if err := removeMember(leader.n, id); err != nil && strings.Contains(err.Error(), "reachable") {
				refused = true
			}
			break
		}
	}
	b.wait()
	for _, id := range down {
		b.w.revive(id)
	}
	return refused
}

// removalOfLeader removes the leader, which transfers its leadership first, and
// lets the node join again.
func (b *blow) removalOfLeader() bool {
	leader, other := b.sides()
	if leader == nil {
		return false
	}
	asked := leader
	if p := b.w.node(other).running(); p != nil && b.r.IntN(2) == 0 {
		asked = p
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := asked.n.Remove(ctx, leader.id, false); err != nil {
		return false
	}
	return b.w.renew(leader.id, b.f.For)
}

// transferLeadership asks a node to transfer leadership. "" lets the cluster
// choose the next leader.
func transferLeadership(n *cluster.Node, to string) error {
	_, err := n.Transfer(context.Background(), to)
	return err
}

// addMember asks a node to permit another node to join.
func addMember(n *cluster.Node, id, addr string) error {
	_, err := n.Add(context.Background(), id, addr)
	return err
}

// removeMember asks a node to remove a member.
func removeMember(n *cluster.Node, id string) error {
	_, err := n.Remove(context.Background(), id, false)
	return err
}
