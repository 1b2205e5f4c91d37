package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

// Actions of operators at a bad time.
const (
	transferToDead    = "transfer to a dead node"
	transferToDying   = "target of a transfer dies"
	transferToSlow    = "transfer to a slow node"
	transferToLagging = "transfer to a lagging node"
	removalTooMany    = "removal that ends the quorum"
	removalOfLeader   = "removal of the leader"
	removalOfJoining  = "removal of a joining node"
)

// operatorKinds are the kinds that operate draws at random. It draws
// removalOfJoining apart from them, so that seeds kept their faults when that
// kind was added.
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
	if r = stream(s.Seed, "joining"); r.IntN(6) == 0 {
		s.Faults = append(s.Faults, Fault{Kind: removalOfJoining, At: settle + time.Duration(r.Int64N(int64(span))),
			For: between(r, 50*ms, 2*time.Second), Much: int64(between(r, 10*ms, 200*ms)), Seed: r.Uint64()})
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
	case removalOfJoining:
		return b.removalOfJoining(), true
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
			before, starts := b.w.voters(), b.w.starts()
			led := leader.n.Status().Role == "leader" // if not, it asks another node
			err := removeMember(leader.n, id)
			if err != nil && strings.Contains(err.Error(), "reachable") {
				refused = true
			}
			if led && (err == nil || errors.Is(err, outcome.ErrUnknown)) {
				b.tooMany(id, before, starts)
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

// tooMany records a violation if the leader has proposed the removal of a node,
// and the removal leaves fewer voters running than the new majority. before and
// starts were read before the removal. Another fault may have started a node or
// changed the members meanwhile. Then nothing can be said.
func (b *blow) tooMany(id string, before []string, starts map[string]uint64) {
	left := without(before, id)
	live := 0
	for _, other := range left {
		nd := b.w.node(other)
		if nd.running() != nil || nd.disk.starts() != starts[other] {
			live++
		}
	}
	if slices.Contains(before, id) && live < len(left)/2+1 {
		b.w.audit.violate("membership: the removal of %s was proposed, which leaves %d voters, %d of them running",
			id, len(left), live)
	}
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

// removalOfJoining lets a node join as a new one, and removes it while the
// leader, over slow links, makes it a voter. The node must not become a member
// again.
func (b *blow) removalOfJoining() bool {
	_, id := b.sides()
	if id == "" || !b.w.renew(id, 0) {
		return false
	}
	nd := b.w.node(id)
	nd.mu.Lock()
	busy := nd.out
	nd.out = true // no other fault may add the node
	nd.mu.Unlock()
	if busy {
		return false
	}
	bit := b.removeJoining(id)
	nd.mu.Lock()
	nd.out = false
	nd.mu.Unlock()
	b.w.renew(id, 0) // if this fails, repair adds the node
	return bit
}

// removeJoining removes a node that joins, and watches the members for as long
// as the fault lasts. It reports whether the node was removed.
func (b *blow) removeJoining(id string) bool {
	ds := b.all(func(from, to string) bool { return from == id || to == id })
	for _, d := range ds {
		b.w.net.slow(d, time.Duration(b.f.Much))
	}
	defer func() {
		for _, d := range ds {
			b.w.net.slow(d, 0)
		}
	}()
	for begun := time.Now(); ; <-time.After(askEvery / 4) {
		p := b.w.node(id).running()
		if p == nil || time.Since(begun) > 10*time.Second {
			return false
		}
		if st := p.n.Status(); st.Applied > 0 && !st.Settling {
			break
		}
	}
	<-time.After(time.Duration(b.r.Int64N(int64(time.Second))))
	p := b.w.node(b.w.leader())
	if p == nil || p.running() == nil || removeMember(p.running().n, id) != nil {
		return false // a removal whose outcome is unknown proves nothing
	}
	for begun := time.Now(); time.Since(begun) < b.f.For+time.Second; <-time.After(askEvery) {
		ids, leader, term := b.w.members()
		if leader == "" || !slices.Contains(ids, id) {
			continue
		}
		// The list is certain only once the leader has committed an entry in the
		// same term.
		if p := b.w.node(leader).running(); p != nil && settled(p, term) {
			b.w.audit.violate("membership: %s was removed while it joined, and is a member again", id)
			break
		}
	}
	return true
}
