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

// These faults are actions that an operator takes at a bad time.
const (
	transferToDead    = "transfer to a dead node"
	transferToDying   = "target of a transfer dies"
	transferToSlow    = "transfer to a slow node"
	transferToLagging = "transfer to a lagging node"
	removalTooMany    = "removal that ends the quorum"
	removalOfLeader   = "removal of the leader"
	removalOfJoining  = "removal of a joining node"
)

// operatorKinds are the kinds of faults that Schedule.operate draws at random.
// removalOfJoining is not among them: Schedule.operate draws it separately, so
// that the faults of existing seeds did not change when this kind was added.
var operatorKinds = []string{transferToDead, transferToDying, transferToSlow, transferToLagging,
	removalTooMany, removalOfLeader}

// operate adds operator actions to the schedule. It uses a separate random
// stream, so that the other faults of a seed do not depend on them.
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

// operate runs the fault if it is an operator action. Otherwise known is false.
func (inj *injection) operate() (effective, known bool) {
	switch inj.f.Kind {
	case transferToDead:
		return inj.transferToDead(), true
	case transferToDying:
		return inj.transferToDying(), true
	case transferToSlow:
		return inj.transferToSlow(), true
	case transferToLagging:
		return inj.transferToLagging(), true
	case removalTooMany:
		return inj.removalTooMany(), true
	case removalOfLeader:
		return inj.removalOfLeader(), true
	case removalOfJoining:
		return inj.removalOfJoining(), true
	}
	return false, false
}

// sides returns the leader's process and the ID of another node. It returns nil
// and "" if no node leads or if there is no other node.
func (inj *injection) sides() (leader *process, other string) {
	id := inj.w.leader()
	if id == "" {
		return nil, ""
	}
	leader, other = inj.w.node(id).running(), inj.choose(without(inj.w.ids(), id))
	if other == "" {
		return nil, ""
	}
	return leader, other
}

// transferToDead crashes a node and requests transfers of leadership to it for
// the duration of the fault.
func (inj *injection) transferToDead() bool {
	leader, dead := inj.sides()
	if leader == nil || !inj.w.crash(dead, inj.r.IntN(2) == 0) {
		return false
	}
	refused := false
	for begun := time.Now(); time.Since(begun) < inj.f.For; <-time.After(askEvery / 4) {
		if err := transferLeadership(leader.n, dead); err != nil && strings.Contains(err.Error(), "does not answer") {
			refused = true
		}
	}
	inj.w.revive(dead)
	return refused
}

// transferToDying requests a transfer of leadership, and crashes the target
// shortly afterwards.
func (inj *injection) transferToDying() bool {
	leader, target := inj.sides()
	if leader == nil {
		return false
	}
	over := make(chan struct{})
	go func() {
		_ = transferLeadership(leader.n, target) // any result is correct
		close(over)
	}()
	<-time.After(time.Duration(inj.f.Much))
	effective := inj.w.crash(target, inj.r.IntN(2) == 0)
	<-over
	inj.wait()
	inj.w.revive(target)
	return effective
}

// transferToSlow requests transfers of leadership to a node with a slow disk,
// so that the node's vote may come too late.
func (inj *injection) transferToSlow() bool {
	leader, target := inj.sides()
	if leader == nil {
		return false
	}
	d := inj.w.node(target).disk
	late := d.effects().late
	d.slowDown(time.Duration(inj.f.Much))
	for begun := time.Now(); time.Since(begun) < inj.f.For; <-time.After(askEvery) {
		// Any result is correct. Once a transfer has succeeded, further
		// requests change nothing while the target leads.
		_ = transferLeadership(leader.n, target)
	}
	d.slowDown(0)
	return d.effects().late > late
}

// transferToLagging cuts a node off, and requests a transfer of leadership to
// it as soon as the cut ends.
func (inj *injection) transferToLagging() bool {
	_, target := inj.sides()
	if target == "" || !inj.partition(inj.isolated(target)) {
		return false
	}
	leader, _ := inj.sides()
	if leader == nil {
		return false
	}
	_ = transferLeadership(leader.n, target) // any result is correct
	return true
}

// removalTooMany crashes as many nodes as the cluster tolerates, and then
// requests the removal of a running node.
func (inj *injection) removalTooMany() bool {
	leader, _ := inj.sides()
	if leader == nil {
		return false
	}
	ids := inj.shuffled()
	down := without(ids, leader.id)[:(len(ids)-1)/2]
	for _, id := range down {
		inj.w.crash(id, inj.r.IntN(2) == 0)
	}
	refused := false
	for _, id := range ids {
		if p := inj.w.node(id).running(); p != nil {
			begun, ended := inj.w.changesBegun.Load(), inj.w.changesEnded.Load()
			before, starts, up := inj.w.voters(), inj.w.starts(), inj.runningNodes(ids)
			led := leader.n.Status().Role == "leader" // a follower would ask another node for the removal
			err := inj.w.removeMember(leader.n, id)
			if err != nil && strings.Contains(err.Error(), "reachable") {
				refused = true
			}
			// If another fault has changed the members meanwhile, it may
			// have removed one that is down. The removal of id may then be
			// correct.
			alone := begun == ended && inj.w.changesBegun.Load() == begun+1
			if led && alone && (err == nil || errors.Is(err, outcome.ErrUnknown)) {
				inj.tooMany(id, before, starts, up)
			}
			break
		}
	}
	inj.wait()
	for _, id := range down {
		inj.w.revive(id)
	}
	return refused
}

// tooMany records a violation if the leader has proposed the removal of a node
// although less than a majority of the remaining voters run. The arguments
// describe the cluster just before the removal: the voters (before), the number
// of starts of each node (starts), and the running nodes (up).
// Since then, another fault may have started or stopped a node, or changed the
// members. A node that has run at any time since then counts as running,
// because the leader may have asked it at that time. If a node was added,
// tooMany records nothing.
func (inj *injection) tooMany(id string, before []string, starts map[string]uint64, up []string) {
	for _, other := range inj.w.ids() {
		if !slices.Contains(before, other) {
			return // the added node may have become a voter
		}
	}
	left := without(before, id)
	live := 0
	for _, other := range left {
		nd := inj.w.node(other)
		if slices.Contains(up, other) || nd.running() != nil || nd.disk.starts() != starts[other] {
			live++
		}
	}
	if slices.Contains(before, id) && live < len(left)/2+1 {
		inj.w.audit.violate("membership: the removal of %s was proposed, which leaves %d voters, %d of them running",
			id, len(left), live)
	}
}

// runningNodes returns the nodes of ids that run.
func (inj *injection) runningNodes(ids []string) []string {
	var up []string
	for _, id := range ids {
		if inj.w.node(id).running() != nil {
			up = append(up, id)
		}
	}
	return up
}

// removalOfLeader removes the leader, which transfers its leadership first, and
// lets the node join again.
func (inj *injection) removalOfLeader() bool {
	leader, other := inj.sides()
	if leader == nil {
		return false
	}
	asked := leader
	if p := inj.w.node(other).running(); p != nil && inj.r.IntN(2) == 0 {
		asked = p
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	defer inj.w.changing()()
	if _, err := asked.n.Remove(ctx, leader.id, false); err != nil {
		return false
	}
	return inj.w.renew(leader.id, inj.f.For)
}

// transferLeadership asks n to transfer leadership. The argument to is the ID
// of the next leader. If it is "", the cluster chooses the next leader.
func transferLeadership(n *cluster.Node, to string) error {
	_, err := n.Transfer(context.Background(), to)
	return err
}

// changing records that a change of the members begins. The caller must call
// the returned function when the change has ended.
func (w *world) changing() (ended func()) {
	w.changesBegun.Add(1)
	return func() { w.changesEnded.Add(1) }
}

// addMember asks a node to permit another node to join.
func (w *world) addMember(n *cluster.Node, id, addr string) error {
	defer w.changing()()
	_, err := n.Add(context.Background(), id, addr, false)
	return err
}

// removeMember asks a node to remove a member.
func (w *world) removeMember(n *cluster.Node, id string) error {
	defer w.changing()()
	_, err := n.Remove(context.Background(), id, false)
	return err
}

// removalOfJoining lets a node join as a new one over slow links, and removes
// it while the leader makes it a voter. The node must not become a member
// again.
func (inj *injection) removalOfJoining() bool {
	_, id := inj.sides()
	if id == "" || !inj.w.renew(id, 0) {
		return false
	}
	nd := inj.w.node(id)
	nd.mu.Lock()
	busy := nd.out
	nd.out = true // no other fault may add the node
	nd.mu.Unlock()
	if busy {
		return false
	}
	effective := inj.removeJoining(id)
	nd.mu.Lock()
	nd.out = false
	nd.mu.Unlock()
	inj.w.renew(id, 0) // if this fails, world.repair adds the node
	return effective
}

// removeJoining removes a node that is joining. It then watches the members
// until the end of the fault, and reports whether the node was removed.
func (inj *injection) removeJoining(id string) bool {
	ds := inj.all(func(from, to string) bool { return from == id || to == id })
	for _, d := range ds {
		inj.w.net.slow(d, time.Duration(inj.f.Much))
	}
	defer func() {
		for _, d := range ds {
			inj.w.net.slow(d, 0)
		}
	}()
	for begun := time.Now(); ; <-time.After(askEvery / 4) {
		p := inj.w.node(id).running()
		if p == nil || time.Since(begun) > 10*time.Second {
			return false
		}
		if st := p.n.Status(); st.Applied > 0 && !st.Settling {
			break
		}
	}
	<-time.After(time.Duration(inj.r.Int64N(int64(time.Second))))
	p := inj.w.node(inj.w.leader())
	if p == nil || p.running() == nil || inj.w.removeMember(p.running().n, id) != nil {
		return false // a removal whose outcome is unknown proves nothing
	}
	for begun := time.Now(); time.Since(begun) < inj.f.For+time.Second; <-time.After(askEvery) {
		ids, leader, term := inj.w.members()
		if leader == "" || !slices.Contains(ids, id) {
			continue
		}
		// The list is certain only once the leader has committed an entry in
		// the same term.
		if p := inj.w.node(leader).running(); p != nil && settled(p, term) {
			inj.w.audit.violate("membership: %s was removed while it joined, and is a member again", id)
			break
		}
	}
	return true
}
