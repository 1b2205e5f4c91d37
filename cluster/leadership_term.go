package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/fsm"
)

// leaderships opens and closes the leaderships of this node.
type leaderships struct {
	*environment
	raft     *raftInstance
	features *features.Features
	waits    *waits
	parts    leaderParts // parts of the next leadership, except raft, which termStarted adds

	notify  chan bool     // raft reports gained and lost leadership here, in order
	changed chan struct{} // capacity 1: wakes the linker when the leader, a leadership or the membership has changed

	mu   sync.Mutex  // guards open
	open *leadership // nil if this node does not lead
}

// current returns the open leadership, or nil if this node does not lead.
func (ls *leaderships) current() *leadership {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.open
}

// leads reports whether this node leads in the term.
func (ls *leaderships) leads(term uint64) bool {
	ld := ls.current()
	return ld != nil && ld.term == term
}

// keep opens and closes the leadership when raft reports a change. The report
// may be outdated when it is read, so keep uses the current state of raft. It
// runs until the node stops.
func (ls *leaderships) keep() {
	for {
		select {
		case <-ls.ctx.Done():
			return
		case <-ls.notify:
		}
		if ls.raft.leads() {
			ls.begin()
		} else {
			ls.close()
		}
		signal(ls.changed)
	}
}

// begin proposes the TermStart of this node's term until the leadership is open
// or the node no longer leads.
func (ls *leaderships) begin() {
	for ls.ctx.Err() == nil && ls.raft.leads() {
		term := ls.raft.running().CurrentTerm()
		if ld := ls.current(); ld != nil && ld.term == term {
			return
		}
		ls.close()
		err := ls.startTerm(term)
		if err == nil {
			// This node has applied the TermStart, so the leadership is open
			// unless the term has changed.
			continue
		}
		ls.log.Debug("term start not committed", "term", term, "error", err)
		select {
		case <-ls.ctx.Done():
		case <-time.After(ls.cfg.Options.RelinkEvery):
		}
	}
}

// startTerm proposes the TermStart of a term and waits until it is applied.
func (ls *leaderships) startTerm(term uint64) error {
	version, err := ls.features.OfTerm()
	if err != nil {
		return err
	}
	id := ls.stores.Identity()
	entry := fsm.AppendTermStart(nil,
		fsm.Header{Term: term, Wall: ls.clock.Wall().UnixMicro()},
		fsm.TermStart{
			NodeID: id.NodeID, Instance: id.Instance, Boot: id.Boot, ClusterID: id.ClusterID, Features: version,
		})
	proposed := ls.raft.running().Apply(entry, 0)
	failpoint.Hit(failpoint.LeadershipUnopened)
	return ls.raft.await(ls.ctx, proposed)
}

// termStarted is called by the machine, with its lock held, when a TermStart is
// applied. If this node has proposed the TermStart, still leads its term and is
// not closing, the leadership opens. The clock of the leadership starts from the
// lease clock at exactly this log index.
func (ls *leaderships) termStarted(index, term uint64, t fsm.TermStart, lease int64) {
	own := t.NodeID == ls.cfg.NodeID && t.Instance == ls.stores.Identity().Instance && t.Boot == ls.session.Boot
	if !own || !ls.raft.leadsTerm(term) {
		return
	}
	ls.mu.Lock()
	// Node.Close ends the context, and then closes the open leadership. Nothing
	// would close a leadership that opens after that.
	if ls.ctx.Err() != nil {
		ls.mu.Unlock()
		return
	}
	parts := ls.parts
	parts.raft = ls.raft.running()
	old := ls.open
	ls.open = newLeadership(parts, term, index, lease)
	ls.mu.Unlock()
	if old != nil {
		old.close()
	}
	ls.stats.Leaderships.Add(1)
	ls.log.Info("leadership started", "term", term, "lease_clock", time.Duration(lease))
	signal(ls.changed)
}

// close closes the open leadership and waits for its goroutines.
func (ls *leaderships) close() {
	ls.mu.Lock()
	ld := ls.open
	ls.open = nil
	ls.mu.Unlock()
	if ld != nil {
		ld.close()
		ld.join()
		ls.log.Info("leadership ended", "term", ld.term)
	}
}

// applied is called by the machine for every entry that it has applied, in log
// order. began and ended are the times at which the machine began and finished
// applying the entry.
func (ls *leaderships) applied(index, term uint64, res *fsm.Result, began, ended time.Duration) {
	if res.Backwards {
		ls.log.Error("entry has a time before the lease clock", "index", index, "term", term)
	}
	if res.TermStart != nil {
		return
	}
	ls.waits.woken(res.Woken)
	if ld := ls.current(); ld != nil && ld.term == term {
		ld.applied(res, began, ended)
	}
}

// rebased is called by the machine, with its lock held, when a restore may have
// moved the lease clock forward.
func (ls *leaderships) rebased(lease int64) {
	if ld := ls.current(); ld != nil {
		ld.rebase(lease)
	}
}

// watchLeader signals changed when raft learns of another leader, or no longer
// knows a leader. It runs until the node stops.
func (ls *leaderships) watchLeader(observations <-chan raft.Observation) {
	for {
		select {
		case <-ls.ctx.Done():
			return
		case <-observations:
			signal(ls.changed)
		}
	}
}
