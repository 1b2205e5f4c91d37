package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/fsm"
)

// The feature version of the cluster is part of the replicated state: see
// package fsm. The leader raises it when every member, voter or not, has
// reported that its program knows the next feature version.
//
// A raise must never meet a member whose program does not know it. The leader
// holds features.checking while it reads the latest configuration, checks the
// members' reports and proposes the raise, and it admits no member meanwhile.
// The raise is in the log after the configuration that was checked, so a later
// leader has both entries or does not have the raise. The raise names its term,
// so it has no effect if it is proposed again in another term. A member that
// was added but not started does not answer, which blocks the raise. A member
// that is removed, wiped and added again is checked when it joins.
//
// One case remains: a member whose program is replaced by an older one after
// the member has reported. No order of messages can exclude that, because a
// stopped process reports nothing. It is equivalent to a downgrade after the
// raise: the older program stops at the entry of the raise, with an error that
// says so, before it changes anything.
//
// Programs older than fsm.FeatureMend report nothing, and take the feature
// version from each TermStart. So while the feature version is below
// FeatureMend, a leader writes the current one into its TermStart. Only the
// first TermStart of a cluster sets another value: the highest one that all
// founding nodes reported.

// features is the part of a node that knows the feature version of the cluster,
// and raises it while the node leads.
type features struct {
	*environment
	raft    *raftInstance
	machine *machine.Machine

	// checking is held while the reports are checked, and while a member is
	// admitted: see whileUnchanged. It is only taken with TryLock: it may be
	// held for long, and the simulator's virtual time does not advance while a
	// goroutine waits for a mutex.
	checking sync.Mutex
	raising  *call // raise whose outcome is not known, or nil; guarded by checking

	mu       sync.Mutex // guards the fields below, and is held only briefly
	founding int        // highest feature version that all founding nodes reported
	blocked  []blocker  // why the leader cannot raise the feature version
}

// errBusy asks the node to send the same request again shortly.
var errBusy = errors.New("try again")

// blocker is a member that keeps the feature version from being raised, and the
// reason.
type blocker struct{ id, why string }

// reports returns the highest feature version that this node reports as known.
func (f *features) reports() int {
	if f.cfg.Features < fsm.FeatureMend {
		return 0 // programs with only these feature versions do not report one
	}
	return f.cfg.Features
}

// Features returns the feature version of the cluster as of the last entry that
// this node has applied. From fsm.FeatureMend on it never goes down, so every
// member knows the commands that it includes.
func (n *Node) Features() int { return n.machine.Features() }

// FeatureVersion returns Features, but first makes sure that a result below
// need is current. If Features is below need, this node may only be behind.
// Then FeatureVersion asks the leader for the end of the log and waits until
// this node has applied it, at most Options.LeaderWait. So if a client has seen
// the raised version at another node, this node does not refuse the commands of
// that version.
func (n *Node) FeatureVersion(need int) int {
	if now := n.Features(); now >= need || need > n.cfg.Features {
		return now
	}
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(n.Table().Find([]byte(fsm.PositionCommand)), 0, [][]byte{nil})
	reply, err := n.NewSession().Do(&g, false, nil)
	if err != nil {
		return n.Features() // without a leader, the current feature version cannot be determined
	}
	var index uint64
	if _, err := fmt.Sscanf(string(reply), ":%d\r\n", &index); err != nil {
		n.log.Error("failed to parse the leader's log index", "reply", string(reply), "error", err)
		return n.Features()
	}
	applied := make(chan bool, 1)
	n.machine.WhenApplied(index, func(ok bool) { applied <- ok })
	wait := time.NewTimer(n.cfg.Options.LeaderWait)
	defer wait.Stop()
	select {
	case <-applied:
	case <-wait.C:
	}
	return n.Features()
}

// ofTerm returns the feature version to write into the TermStart of this node's
// term.
func (f *features) ofTerm() (int, error) {
	if f.cfg.Features < fsm.FeatureMend {
		return f.cfg.Features, nil
	}
	if now := f.machine.Features(); now >= fsm.FeatureMend {
		return now, nil // the state machine ignores it
	}
	// An earlier leader may have set it, so apply the whole log first.
	if err := f.raft.await(f.ctx, f.raft.running().Barrier(0)); err != nil {
		return 0, err
	}
	var cluster string
	f.machine.View(func(m *fsm.Machine) { cluster = m.ClusterID() })
	if cluster != "" {
		return f.machine.Features(), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.founding, nil
}

// setFounding stores the highest feature version that all founding nodes reported.
func (f *features) setFounding(reported int) {
	f.mu.Lock()
	f.founding = reported
	f.mu.Unlock()
}

// raise raises the feature version of the cluster if this node leads and every
// member knows a higher one. ld is the open leadership, or nil. ask asks the
// members for their reports. raise is called periodically.
func (f *features) raise(ld *leadership, ask func(context.Context) []NodeStatus) {
	current := f.machine.Features()
	if ld == nil || current >= f.reports() {
		f.setBlocked(nil)
		return
	}
	// Asking the members takes a second if a member is silent. It is done
	// without the lock, because otherwise nodes could hardly ever join. If a
	// node is admitted meanwhile, the index of the configuration changes.
	index := f.machine.Configured()
	asked := ask(f.ctx)
	if !f.checking.TryLock() {
		return // the caller tries again
	}
	defer f.checking.Unlock()
	if f.raisingLocked() || f.machine.Configured() != index {
		return
	}
	// Read the members again: a request may have added a member after its
	// sender stopped waiting for it.
	next, blocked := nextFeatures(membersOf(ld.raft), asked, current)
	f.setBlocked(blocked)
	if len(blocked) > 0 || f.ctx.Err() != nil {
		return
	}
	f.log.Info("raising the cluster's feature version: every member knows a newer one", "from", current, "to", next)
	f.raising = ld.forwarder.command(f.machine.Table(),
		[][]byte{[]byte(fsm.FeaturesCommand), decimal(ld.term), decimal(uint64(next))})
}

// raisingLocked reports whether the outcome of a raise is not known yet.
// checking must be held.
func (f *features) raisingLocked() bool {
	if f.raising == nil {
		return false
	}
	select {
	case <-f.raising.done: // a failed raise is tried again
		f.raising = nil
		return false
	default:
		return true
	}
}

// whileUnchanged calls admit while no raise is checked, proposed or awaited. It
// fails with errBusy if that is not possible now. admit must check the feature
// version of the joining node itself: see allow.
func (f *features) whileUnchanged(admit func() error) error {
	if !f.checking.TryLock() {
		return fmt.Errorf("another member is being admitted or checked: %w", errBusy)
	}
	defer f.checking.Unlock()
	if f.raisingLocked() {
		return fmt.Errorf("the feature version of the cluster is being raised: %w", errBusy)
	}
	return admit()
}

// allow returns an error if the program of a joining node does not know the
// feature version of the cluster.
func (f *features) allow(req adminRequest) error {
	if now := f.machine.Features(); now >= fsm.FeatureMend && req.Features < now {
		return fmt.Errorf("the cluster uses feature version %d and the program of %s knows %s: "+
			"install version %s or a newer one", now, req.Node, knownVersion(req.Features), f.cfg.Version)
	}
	return nil
}

// nextFeatures returns the highest feature version that all members have
// reported, and the members that have not reported more than the current one.
func nextFeatures(members []member.Member, asked []NodeStatus, current int) (next int, blocked []blocker) {
	for i, m := range members {
		j := slices.IndexFunc(asked, func(st NodeStatus) bool { return st.ID == m.ID && st.Reachable })
		if j < 0 {
			blocked = append(blocked, blocker{m.ID, "does not answer"})
			continue
		}
		st := &asked[j]
		if st.Features <= current {
			blocked = append(blocked, blocker{m.ID, fmt.Sprintf("runs version %s, which knows feature version %s",
				cmp.Or(st.Version, "unknown"), knownVersion(st.Features))})
		}
		if i == 0 || st.Features < next {
			next = st.Features
		}
	}
	return next, blocked
}

// knownVersion formats a reported feature version.
func knownVersion(features int) string {
	if features == 0 {
		return fmt.Sprintf("%d at most", fsm.FeatureMend-1)
	}
	return fmt.Sprint(features)
}

// setBlocked stores why the feature version is not raised, and logs the reasons
// when they have changed.
func (f *features) setBlocked(blocked []blocker) {
	f.mu.Lock()
	changed := !slices.Equal(blocked, f.blocked)
	f.blocked = blocked
	f.mu.Unlock()
	if changed && len(blocked) > 0 {
		f.log.Info("feature version of the cluster cannot be raised yet", "present", f.machine.Features(),
			"this_node_knows", f.reports(), "blocked_by", describe(blocked))
	}
}

func describe(blocked []blocker) string {
	all := make([]string, len(blocked))
	for i, b := range blocked {
		all[i] = b.id + " " + b.why
	}
	return strings.Join(all, ", ")
}

// blockers returns what kept the feature version from being raised when
// this node last tried.
func (f *features) blockers() []blocker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blocked
}
