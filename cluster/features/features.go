// Package features tracks the feature version of the cluster, and raises it
// when the programs of all members know a newer one.
package features

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/fsm"
)

// The feature version of the cluster is part of the replicated state: see
// package fsm. The leader raises it when every member, voter or not, has
// reported that its program knows a higher feature version.
//
// A member must never apply a raise to a version that its program does not
// know. The leader holds Features.checking while it reads the latest
// configuration, checks the members' reports and proposes the raise, and it
// admits no member meanwhile. The raise is in the log after the configuration
// that was checked, so a later leader has both entries or does not have the
// raise. The raise names its term, so it has no effect if it is proposed again
// in another term. A member that was added but not started does not answer,
// which blocks the raise. A member that is removed, wiped and added again is
// checked when it joins.
//
// One case remains: a member whose program is replaced by an older one after
// the member has reported. No order of messages can exclude this case, because
// a stopped process reports nothing. The case is equivalent to a downgrade
// after the raise. The older program stops at the entry of the raise, or at the
// first snapshot of the leader after it. It stops with an error that names the
// reason, before it changes anything.
//
// Programs that do not know fsm.FeatureMend report nothing, and take the
// feature version from each TermStart. So while the feature version is below
// FeatureMend, a leader writes the current one into its TermStart. Only the
// first TermStart of a cluster sets another value: the highest one that all
// founding nodes reported.

// Features is the part of a node that tracks the feature version of the
// cluster, and raises it while the node leads. Its methods are safe for
// concurrent use.
type Features struct {
	cfg Config

	// checking is held while the reports are checked, and while a member is
	// admitted: see WhileUnchanged. It is only taken with TryLock: it may be
	// held for seconds, and the simulator's virtual time does not advance while a
	// goroutine waits for a mutex.
	checking sync.Mutex
	// raising receives one value when the outcome of a raise is known. It is
	// nil if no raise is under way. checking guards it.
	raising <-chan struct{}

	mu       sync.Mutex // guards the fields below, and is held only briefly
	founding int        // highest feature version that all founding nodes reported
	blocked  []Blocker  // why the leader cannot raise the feature version
}

// Config contains the data and functions that Features needs from its node.
type Config struct {
	Known   int    // highest feature version that this node's program knows
	Version string // version of this node's program
	Machine *machine.Machine
	// Barrier waits until this node, which leads, has applied its whole log.
	Barrier func() error
	Logger  hclog.Logger
}

// New returns the Features of a node.
func New(cfg Config) *Features { return &Features{cfg: cfg} }

// Leadership contains the parts of this node's open leadership that a raise
// needs.
type Leadership struct {
	Term    uint64
	Members func() []member.Member // members of the latest configuration
	// Propose proposes a command. done receives one value when the outcome is
	// known.
	Propose func(args ...[]byte) (done <-chan struct{})
}

// ErrBusy asks the node that sent a request to send it again shortly.
var ErrBusy = errors.New("try again")

// Blocker is a member that keeps the feature version from being raised, and the
// reason.
type Blocker struct{ ID, why string }

// Reports returns the highest feature version that this node reports as known.
func (f *Features) Reports() int {
	if f.cfg.Known < fsm.FeatureMend {
		return 0 // programs with only these feature versions do not report one
	}
	return f.cfg.Known
}

// OfTerm returns the feature version to write into the TermStart of this node's
// term.
func (f *Features) OfTerm() (int, error) {
	if f.cfg.Known < fsm.FeatureMend {
		return f.cfg.Known, nil
	}
	if now := f.cfg.Machine.Features(); now >= fsm.FeatureMend {
		return now, nil // the state machine ignores this value
	}
	// An earlier leader may have set the feature version, so apply the whole
	// log first.
	if err := f.cfg.Barrier(); err != nil {
		return 0, err
	}
	var cluster string
	f.cfg.Machine.View(func(m *fsm.Machine) { cluster = m.ClusterID() })
	if cluster != "" {
		return f.cfg.Machine.Features(), nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.founding, nil
}

// SetFounding stores the highest feature version that all founding nodes reported.
func (f *Features) SetFounding(reported int) {
	f.mu.Lock()
	f.founding = reported
	f.mu.Unlock()
}

// Raise raises the feature version of the cluster if this node leads and every
// member knows a higher one. ld is the open leadership, or nil. ask asks the
// members for their reports, until ctx ends. Raise is called periodically.
func (f *Features) Raise(
	ctx context.Context, ld *Leadership, ask func(context.Context) []health.NodeStatus,
) {
	current := f.cfg.Machine.Features()
	if ld == nil || current >= f.Reports() {
		f.setBlocked(nil)
		return
	}
	// Asking the members takes a second if a member is silent. It is done
	// without the lock, because otherwise nodes could hardly ever join. If a
	// node is admitted meanwhile, the index of the configuration changes, and
	// the reports are not used.
	index := f.cfg.Machine.Configured()
	asked := ask(ctx)
	if !f.checking.TryLock() {
		return // the caller tries again
	}
	defer f.checking.Unlock()
	if f.raisingLocked() || f.cfg.Machine.Configured() != index {
		return
	}
	// Read the members again: a request may have added a member after its
	// sender stopped waiting for it.
	next, blocked := nextFeatures(ld.Members(), asked, current)
	f.setBlocked(blocked)
	if len(blocked) > 0 || ctx.Err() != nil {
		return
	}
	f.cfg.Logger.Info("raising the cluster's feature version: every member knows a newer one",
		"from", current, "to", next)
	f.raising = ld.Propose([]byte(fsm.FeaturesCommand),
		strconv.AppendUint(nil, ld.Term, 10), strconv.AppendInt(nil, int64(next), 10))
}

// raisingLocked reports whether the outcome of a raise is not known yet.
// checking must be held.
func (f *Features) raisingLocked() bool {
	if f.raising == nil {
		return false
	}
	select {
	case <-f.raising: // a failed raise is tried again
		f.raising = nil
		return false
	default:
		return true
	}
}

// WhileUnchanged calls admit while no raise of the feature version is checked,
// proposed or awaited. It fails with ErrBusy if that is not possible now. admit
// must itself check the feature version of the joining node: see Allow.
func (f *Features) WhileUnchanged(admit func() error) error {
	if !f.checking.TryLock() {
		return fmt.Errorf("a member is being admitted, or feature versions are being checked: %w", ErrBusy)
	}
	defer f.checking.Unlock()
	if f.raisingLocked() {
		return fmt.Errorf("the feature version of the cluster is being raised: %w", ErrBusy)
	}
	return admit()
}

// Allow returns an error if the program of a joining node does not know the
// feature version of the cluster. known is the highest feature version that the
// joining node has reported, or 0.
func (f *Features) Allow(node string, known int) error {
	if now := f.cfg.Machine.Features(); now >= fsm.FeatureMend && known < now {
		return fmt.Errorf("the cluster uses feature version %d and the program of %s knows %s: "+
			"install version %s or a newer one", now, node, knownVersion(known), f.cfg.Version)
	}
	return nil
}

// nextFeatures returns the highest feature version that all members have
// reported. blocked contains the members that do not answer, or that have not
// reported a newer version than current.
func nextFeatures(members []member.Member, asked []health.NodeStatus, current int) (next int, blocked []Blocker) {
	for i, m := range members {
		j := slices.IndexFunc(asked, func(st health.NodeStatus) bool { return st.ID == m.ID && st.Reachable })
		if j < 0 {
			blocked = append(blocked, Blocker{m.ID, "does not answer"})
			continue
		}
		st := &asked[j]
		if st.Features <= current {
			blocked = append(blocked, Blocker{m.ID, fmt.Sprintf("runs version %s, which knows feature version %s",
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

// setBlocked stores the members that keep the feature version from being
// raised, and logs them if they have changed.
func (f *Features) setBlocked(blocked []Blocker) {
	f.mu.Lock()
	changed := !slices.Equal(blocked, f.blocked)
	f.blocked = blocked
	f.mu.Unlock()
	if changed && len(blocked) > 0 {
		f.cfg.Logger.Info("feature version of the cluster cannot be raised yet", "present", f.cfg.Machine.Features(),
			"this_node_knows", f.Reports(), "blocked_by", Describe(blocked))
	}
}

// Describe returns a text that lists blockers and their reasons.
func Describe(blocked []Blocker) string {
	all := make([]string, len(blocked))
	for i, b := range blocked {
		all[i] = b.ID + " " + b.why
	}
	return strings.Join(all, ", ")
}

// Blockers returns the members that kept the feature version from being raised
// when this node last tried.
func (f *Features) Blockers() []Blocker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.blocked
}
