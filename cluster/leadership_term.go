package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/fsm"
)

// currentLeadership returns the open leadership, or nil if this node does not
// lead.
func (n *Node) currentLeadership() *leadership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leadership
}

// watchLeadership opens and closes the leadership when raft reports a change.
// The report may be outdated when it is read, so watchLeadership uses the
// present state of raft.
func (n *Node) watchLeadership() {
	defer n.wg.Done()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.notify:
		}
		if n.raft.running().State() == raft.Leader {
			n.openLeadership()
		} else {
			n.closeLeadership()
		}
		signal(n.leaderChanged)
	}
}

// openLeadership proposes the TermStart of this node's term until the
// leadership is open or the node no longer leads.
func (n *Node) openLeadership() {
	for n.ctx.Err() == nil && n.raft.running().State() == raft.Leader {
		term := n.raft.running().CurrentTerm()
		if ld := n.currentLeadership(); ld != nil && ld.term == term {
			return
		}
		n.closeLeadership()
		err := n.startTerm(term)
		if err == nil {
			// TermStart is applied here, so the leadership is open unless the
			// term has changed
			continue
		}
		n.log.Debug("term start not committed", "term", term, "error", err)
		select {
		case <-n.ctx.Done():
		case <-time.After(n.cfg.Options.RelinkEvery):
		}
	}
}

// startTerm proposes the TermStart of a term and waits until it is applied.
func (n *Node) startTerm(term uint64) error {
	features, err := n.members.termFeatures()
	if err != nil {
		return err
	}
	id := n.stores.Identity()
	entry := fsm.AppendTermStart(nil,
		fsm.Header{Term: term, Wall: n.clock.Wall().UnixMicro()},
		fsm.TermStart{NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot, ClusterID: id.ClusterID, Features: features})
	proposed := n.raft.running().Apply(entry, 0)
	failpoint.Hit(failpoint.LeadershipUnopened)
	return n.raft.await(n.ctx, proposed)
}

// onTermStart is called by the machine, with its lock held, when a TermStart is
// applied. If the TermStart is that of this node, the leadership opens. The
// clock of the leadership starts from the lease clock at exactly this log
// index.
func (n *Node) onTermStart(index, term uint64, t fsm.TermStart, lease int64) {
	own := t.NodeID == n.cfg.NodeID && t.Instance == n.stores.Identity().Instance && t.Boot == n.session.Boot
	if !own || !n.raft.leadsTerm(term) {
		return
	}
	n.mu.Lock()
	if n.ctx.Err() != nil { // Close has closed the last leadership
		n.mu.Unlock()
		return
	}
	old := n.leadership
	n.leadership = newLeadership(n, term, index, lease)
	n.mu.Unlock()
	if old != nil {
		old.close()
	}
	n.stats.Leaderships.Add(1)
	n.log.Info("leadership started", "term", term, "lease_clock", time.Duration(lease))
	signal(n.leaderChanged)
}

func (n *Node) closeLeadership() {
	n.mu.Lock()
	ld := n.leadership
	n.leadership = nil
	n.mu.Unlock()
	if ld != nil {
		ld.close()
		ld.join()
		n.log.Info("leadership ended", "term", ld.term)
	}
}

// onApply is called by the machine for every entry that it has applied.
func (n *Node) onApply(index, term uint64, res *fsm.Result) {
	if res.Backwards {
		n.log.Error("entry stamped behind the lease clock", "index", index, "term", term)
	}
	if res.TermStart != nil {
		return
	}
	n.waits.woken(res.Woken)
	if ld := n.currentLeadership(); ld != nil && ld.term == term {
		ld.applied(res)
	}
}

// watchLeader signals leaderChanged when raft learns of another leader.
func (n *Node) watchLeader(observations <-chan raft.Observation) {
	defer n.wg.Done()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-observations:
			signal(n.leaderChanged)
		}
	}
}
