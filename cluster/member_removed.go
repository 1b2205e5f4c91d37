package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/member"
)

// removalWatch finds out whether this node was removed from its cluster. raft
// does not report the removal to the node: the leader sends nothing more to a
// removed node, so the node may never receive the change. Therefore a node
// without a leader asks the other members who leads, and asks the leader for
// its members.
type removalWatch struct {
	*environment
	raft    *raftInstance
	peers   *peers
	founder *founder
	// changed is called after removed has changed.
	changed func(removed bool)
	// now has the capacity 1. A token in it makes the goroutine of keep ask at
	// once. It receives a token when the leader has reported to this node that
	// this node was removed, or has refused a link because this node is not a
	// member.
	now chan struct{}

	unlisted unlisted      // used only by keep
	listedAt string        // address at which the leader lists this node; used only by keep
	asked    time.Duration // Clock.Mono when a removed node last asked; used only by keep

	removed atomic.Bool
	twin    atomic.Bool // another process runs as this node
}

// If a node has had no leader for goneAfter, or its own configuration has not
// listed it for that time, the node asks whether it was removed. It then asks
// again at intervals of goneEvery. Once it knows that it was removed, it asks at
// intervals of againEvery whether it has been added again, or of goneEvery while
// raft names a leader. If there is a hint that it was removed, it asks at once,
// up to hintedTries times at intervals of hintedEvery.
const (
	goneAfter   = 2 * time.Second
	goneEvery   = time.Second
	againEvery  = 10 * time.Second
	hintedTries = 20
	hintedEvery = 50 * time.Millisecond
)

// keep asks whether this node was removed, or was added again, until the node
// stops.
func (w *removalWatch) keep() {
	t := time.NewTicker(goneEvery)
	defer t.Stop()
	alone := w.clock.Mono() // Clock.Mono when this node last had a leader and was a member by its own configuration
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-w.now:
			if !w.removed.Load() {
				w.askAtOnce()
			}
			continue
		case <-t.C:
		}
		r := w.raft.running()
		_, self := member.Find(membersOf(r), w.cfg.NodeID)
		_, leader := r.LeaderWithID()
		if w.removed.Load() {
			// raft may still name the leader that removed this node.
			if leader == "" && w.clock.Mono()-w.asked < againEvery {
				continue
			}
			w.asked = w.clock.Mono()
			if listing, _, gone := w.ask(); !gone && listing.ID != "" {
				w.report(member.Member{}, "")
			}
			continue
		}
		if leader != "" && self {
			alone, w.unlisted = w.clock.Mono(), unlisted{}
			w.report(member.Member{}, "")
			continue
		}
		if w.clock.Mono()-alone < goneAfter {
			continue
		}
		if leader, client, gone := w.ask(); gone {
			w.report(leader, client)
		} else if leader.ID != "" {
			w.checkTwin()
		}
	}
}

// askHealthEvery returns how long health.Book pauses between two requests to the
// members.
func (w *removalWatch) askHealthEvery() time.Duration {
	if w.removed.Load() {
		return againEvery
	}
	return health.AskEvery
}

// askAtOnce asks until it is certain whether this node was removed, for about a
// second. The leader may not have committed the removal yet, so one answer is
// not enough: see unlisted.
func (w *removalWatch) askAtOnce() {
	t := time.NewTicker(hintedEvery)
	defer t.Stop()
	for range hintedTries {
		leader, client, gone := w.ask()
		if gone {
			w.report(leader, client)
		}
		if gone || leader.ID != "" {
			return
		}
		select {
		case <-w.ctx.Done():
			return
		case <-t.C:
		}
	}
}

// unlisted is the first answer of a leader that does not list this node. The
// removal may not be committed yet, and then the next leader can undo it.
type unlisted struct {
	leader     string
	term, last uint64
}

// confirmed reports whether r proves that the removal is committed. r is an
// answer of a leader that does not list this node. It is a proof if the same
// leader has led since its first such answer, and has committed its log up to
// the last index in that first answer.
func (u *unlisted) confirmed(r adminReply) bool {
	if u.leader != r.Leader || u.term != r.Term {
		*u = unlisted{leader: r.Leader, term: r.Term, last: r.Last}
		return false
	}
	return r.Commit >= u.last
}

// ask asks the other members. gone is set if the leader does not list this node
// and the removal of this node is committed. leader is the leader that
// answered; its ID is "" if none did, or if it is not certain yet that this
// node was removed. client is the leader's client address, "" if it is not
// known.
func (w *removalWatch) ask() (leader member.Member, client string, gone bool) {
	probe := func(addr, id string) (r adminReply, ok bool) {
		ctx, cancel := context.WithTimeout(w.ctx, statusLimit)
		defer cancel()
		err := w.peers.askContext(ctx, addr, id, adminRequest{Op: opProbe}, &r)
		return r, err == nil && r.Member && r.Leader != "" && r.ClusterID == w.stores.Identity().ClusterID
	}
	for _, m := range w.raft.members() {
		if m.ID == w.cfg.NodeID {
			continue
		}
		addr := string(w.peers.addressOf(raft.ServerID(m.ID), raft.ServerAddress(m.Addr)))
		r, ok := probe(addr, m.ID)
		if ok && r.Leader != m.ID {
			addr = r.LeaderAddr
			m = member.Member{ID: r.Leader, Addr: addr}
			r, ok = probe(addr, m.ID)
		}
		if !ok || r.Leader != m.ID {
			continue
		}
		if self, listed := member.Find(r.Members, w.cfg.NodeID); listed {
			w.unlisted, w.listedAt = unlisted{}, self.Addr
			return m, "", false
		}
		if !w.unlisted.confirmed(r) {
			return member.Member{}, "", false
		}
		var st adminReply
		if err := w.peers.ask(addr, m.ID, adminRequest{Op: opStatus}, &st); err == nil && st.Status != nil {
			client = st.Status.ClientAddr
		}
		return m, client, true
	}
	return member.Member{}, "", false
}

// checkTwin looks for another process that runs as this node. There may be one
// if the data directory was copied or the address is wrong. checkTwin asks at
// the address that this node advertises, and at the address under which the
// leader lists this node.
func (w *removalWatch) checkTwin() {
	for _, addr := range []string{w.cfg.AdvertisePeerAddr, w.listedAt} {
		if addr != "" {
			w.checkTwinAt(addr)
		}
	}
}

func (w *removalWatch) checkTwinAt(addr string) {
	ctx, cancel := context.WithTimeout(w.ctx, statusLimit)
	defer cancel()
	var r adminReply
	err := w.peers.askContext(ctx, addr, w.cfg.NodeID, adminRequest{Op: opStatus}, &r)
	if err != nil || r.Status == nil || r.Status.RunID == w.cfg.RunID || w.twin.Swap(true) {
		return
	}
	text := fmt.Sprintf("another process runs as %s at %s (pid %d): was the data directory copied? Stop this process, "+
		"and give a new node its own --node-id and an empty --data-dir", w.cfg.NodeID, addr, r.Status.PID)
	w.founder.setPhase(text)
	w.log.Error(text)
}

// report logs that this node was removed, and shows it in the status and at
// /readyz. If leader is empty, the node is a member: report then withdraws an
// earlier report.
func (w *removalWatch) report(leader member.Member, client string) {
	if leader.ID == "" {
		if w.twin.Swap(false) {
			w.founder.setPhase("")
		}
		if w.removed.Swap(false) {
			w.founder.setPhase("")
			w.changed(false)
			w.log.Info("this node is a member of the cluster again")
		}
		return
	}
	if w.removed.Swap(true) {
		return
	}
	command := fmt.Sprintf("holdfast member add %s %s", w.cfg.NodeID, w.cfg.AdvertisePeerAddr)
	if client != "" {
		command += " --addr " + client
	}
	text := fmt.Sprintf("this node was removed from the cluster: the leader %s does not list it. "+
		"Stop it. To let it in again, move its data directory away, run \"%s\", and start it", leader.ID, command)
	w.founder.setPhase(text)
	w.changed(true)
	w.log.Error(text)
}
