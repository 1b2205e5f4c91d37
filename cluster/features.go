package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/seeded"
	"github.com/holdfast-kv/holdfast/fsm"
)

// The feature version of the cluster is part of the replicated state: see package
// fsm. The leader raises it when every member, voter or not, has reported that
// its program knows the next one.
//
// A member must not be surprised by a raise. The leader reads the latest
// configuration, asks all of it and proposes the raise with features.mu held, and
// it takes in no member meanwhile. The raise is in the log behind the configuration
// that it was checked against, so a leader that comes later has both or neither,
// and the raise names its term, so it has no effect when it is proposed again in
// another one. A member that was added and is not started yet does not answer, and
// holds up the raise. One that is removed, wiped and added anew is checked when it
// joins. What remains is a member whose program is replaced by an older one
// after it has reported. No order of messages can exclude that, because a stopped
// process reports nothing. It is what a downgrade after the raise is: the older
// program stops at the entry of the raise with an error that says so, and changes
// nothing before that.
//
// Programs from before fsm.FeatureMend report nothing and take the feature version
// from each TermStart. So while it is below FeatureMend a leader writes the one
// that is in force, and only the first TermStart of a cluster sets another: what
// all nodes reported that formed it.

// features is the feature version as this node's leadership raises it.
type features struct {
	// mu is held while the members are asked, or one is taken in. Nobody waits for it:
	// that may take long, and the virtual time of the simulator stands still while a
	// goroutine waits for a mutex.
	mu      sync.Mutex
	raising *call // the raise under way, nil for none; guarded by mu

	// What follows is guarded by Node.mu.
	founding int       // what all nodes reported that formed the cluster
	blocked  []blocker // why the leader does not raise it
}

// errBusy asks for the same request again, a moment later.
var errBusy = errors.New("try again")

// blocker is a member that keeps the feature version from being raised.
type blocker struct{ id, why string }

// reports returns the highest feature version that this node says it knows.
func (n *Node) reports() int {
	if n.cfg.Features < fsm.FeatureMend {
		return 0 // such programs do not report it
	}
	return n.cfg.Features
}

// Features returns the feature version of the cluster, as of the last entry that
// this node has applied. From fsm.FeatureMend on it never goes down, so a command
// that it includes is known to every member.
func (n *Node) Features() int { return int(n.machine.features.Load()) }

// FeatureVersion returns Features. If that is less than need, this node may only be
// behind: then FeatureVersion asks the leader for the end of the log and waits
// until this node has applied it, but no longer than Options.LeaderWait. A command
// is not refused behind a raise that a client may know of.
func (n *Node) FeatureVersion(need int) int {
	if now := n.Features(); now >= need || need > n.cfg.Features {
		return now
	}
	var g fsm.Group
	g.Reset(2, 0)
	g.Command(n.Table().Find([]byte(fsm.PositionCommand)), 0, [][]byte{nil})
	reply, err := n.NewSession().Do(&g, false, nil)
	if err != nil {
		return n.Features() // without a leader nothing can be learned
	}
	var index uint64
	if _, err := fmt.Sscanf(string(reply), ":%d\r\n", &index); err != nil {
		n.log.Error("log index of the leader cannot be read", "reply", string(reply), "error", err)
		return n.Features()
	}
	applied := make(chan bool, 1)
	n.machine.whenApplied(index, func(ok bool) { applied <- ok })
	wait := time.NewTimer(n.cfg.Options.LeaderWait)
	defer wait.Stop()
	select {
	case <-applied:
	case <-wait.C:
	}
	return n.Features()
}

// termFeatures returns the feature version for the TermStart of this node's term.
func (n *Node) termFeatures() (int, error) {
	if n.cfg.Features < fsm.FeatureMend || seeded.On(seeded.LeaderRaises) {
		return n.cfg.Features, nil
	}
	if now := n.Features(); now >= fsm.FeatureMend {
		return now, nil // the machine ignores it
	}
	// What earlier leaders have set counts, so it must have been applied.
	if err := n.await(n.ctx, n.raft.Barrier(0)); err != nil {
		return 0, err
	}
	var cluster string
	n.machine.view(func(m *fsm.Machine) { cluster = m.ClusterID() })
	if cluster != "" {
		return n.Features(), nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.features.founding, nil
}

// found notes what all nodes reported that form the cluster.
func (n *Node) found(features int) {
	n.mu.Lock()
	n.features.founding = features
	n.mu.Unlock()
}

// raiseFeatures raises the feature version of the cluster if this node leads and
// every member knows a higher one. keepMembers calls it.
func (n *Node) raiseFeatures() {
	o := n.currentOffice()
	current := n.Features()
	if o == nil || current >= n.reports() {
		n.setBlocked(nil)
		return
	}
	// Asking takes a second if a member is silent, so it is done before the lock: a
	// node could hardly ever join meanwhile. A node that has been taken in since has
	// left a configuration in the log.
	index := n.machine.configured.Load()
	asked := n.ClusterStatus(n.ctx)
	f := &n.features
	if !f.mu.TryLock() {
		return // keepMembers comes again
	}
	defer f.mu.Unlock()
	if f.raisingLocked() || n.machine.configured.Load() != index {
		return
	}
	// Read again, so that no member is missed that a request added which its
	// asker has given up.
	next, blocked := nextFeatures(membersOf(o.raft), asked, current)
	n.setBlocked(blocked)
	if len(blocked) > 0 || n.ctx.Err() != nil {
		return
	}
	n.log.Info("every member knows a newer feature version: raising that of the cluster", "from", current, "to", next)
	f.raising = o.gateway.command(n.machine.table, [][]byte{[]byte(fsm.FeaturesCommand), decimal(o.term), decimal(uint64(next))})
}

// raisingLocked reports whether a raise is under way whose outcome is not known.
func (f *features) raisingLocked() bool {
	if f.raising == nil {
		return false
	}
	select {
	case <-f.raising.done: // if it failed it is tried again
		f.raising = nil
		return false
	default:
		return true
	}
}

// nextFeatures returns the highest feature version that all members have reported,
// and those that have not reported more than the current one.
func nextFeatures(members []Member, asked []NodeStatus, current int) (next int, blocked []blocker) {
	for i, m := range members {
		j := slices.IndexFunc(asked, func(st NodeStatus) bool { return st.ID == m.ID && st.Reachable })
		if j < 0 {
			blocked = append(blocked, blocker{m.ID, "does not answer"})
			continue
		}
		st := &asked[j]
		if st.Features <= current {
			blocked = append(blocked, blocker{m.ID, fmt.Sprintf("runs version %s, which knows feature version %s", cmp.Or(st.Version, "unknown"), knows(st.Features))})
		}
		if i == 0 || st.Features < next {
			next = st.Features
		}
	}
	return next, blocked
}

// knows names a reported feature version.
func knows(features int) string {
	if features == 0 {
		return fmt.Sprintf("%d at most", fsm.FeatureMend-1)
	}
	return fmt.Sprint(features)
}

// setBlocked notes why the feature version is not raised, and logs it when that
// has changed.
func (n *Node) setBlocked(blocked []blocker) {
	n.mu.Lock()
	changed := !slices.Equal(blocked, n.features.blocked)
	n.features.blocked = blocked
	n.mu.Unlock()
	if changed && len(blocked) > 0 {
		n.log.Info("feature version of the cluster cannot be raised yet", "present", n.Features(), "this_node_knows", n.reports(), "blocked_by", describe(blocked))
	}
}

func describe(blocked []blocker) string {
	all := make([]string, len(blocked))
	for i, b := range blocked {
		all[i] = b.id + " " + b.why
	}
	return strings.Join(all, ", ")
}

// featuresBlocked returns what keeps the feature version from being raised, as far
// as this node has tried.
func (n *Node) featuresBlocked() []blocker {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.features.blocked
}

// admit takes in a node that has been added, as takeIn does, if its program knows
// the feature version of the cluster.
func (n *Node) admit(req adminRequest, reply *adminReply) error {
	if n.currentOffice() == nil {
		return errNotLeader
	}
	f := &n.features
	if !f.mu.TryLock() {
		return fmt.Errorf("another member is being added or asked: %w", errBusy)
	}
	defer f.mu.Unlock()
	if f.raisingLocked() {
		return fmt.Errorf("the feature version of the cluster is being raised: %w", errBusy)
	}
	if now := n.Features(); now >= fsm.FeatureMend && req.Features < now {
		return fmt.Errorf("the cluster uses feature version %d and the program of %s knows %s: install version %s or a newer one", now, req.Node, knows(req.Features), n.cfg.Version)
	}
	return n.takeIn(req, reply)
}
