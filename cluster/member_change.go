package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfast-kv/holdfast/cluster/failpoint"
	"github.com/holdfast-kv/holdfast/cluster/features"
	"github.com/holdfast-kv/holdfast/cluster/health"
	"github.com/holdfast-kv/holdfast/cluster/machine"
	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/cluster/outcome"
	"github.com/holdfast-kv/holdfast/cluster/raftlog"
	"github.com/holdfast-kv/holdfast/fsm"
	"github.com/holdfast-kv/holdfast/rpc"
)

var pid = os.Getpid()

// errNotLeader means that the sender of a request must try again, at the leader.
// It is not an outcome.Error.
var errNotLeader = errors.New("this node does not lead")

// membership changes the members of the cluster. Only the leader makes changes;
// admin.askLeader passes requests of other nodes to it.
type membership struct {
	*environment
	raft        *raftInstance
	raftLog     *raftlog.Log
	machine     *machine.Machine
	mux         *rpc.Mux
	peers       *peers
	leaderships *leaderships
	features    *features.Features
	transfers   *transfers
	status      *statusReporter
	health      *health.Book
	// submit executes a group as if a client had sent it.
	submit func(g *fsm.Group) ([]byte, error)

	changes changeLock

	away *member.Absences

	// Only keep uses the fields below. warned is the last warning about each
	// member that is away. After a removal that failed, removeAway removes
	// nothing before the monotonic time awayRetry.
	warned    map[string]string
	awayRetry time.Duration
	even      evenVoters
}

// changed waits until raft has committed a change of the members, whose future
// is f. The error says whether the change was made. See outcome.Error.
func (ms *membership) changed(ctx context.Context, f raft.Future) error {
	failpoint.Hit(failpoint.MemberProposed)
	err := ms.raft.await(ctx, f)
	if err == nil {
		failpoint.Hit(failpoint.MemberChanged)
	}
	return changeError(err)
}

// changeError converts an error of raft into one with an outcome. Only the
// errors that are named here say that the change never got into the log.
// (hashicorp/raft 1.7.3 has no exported value for the last one.)
func changeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader):
		return errNotLed
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return errChanging
	case strings.HasPrefix(err.Error(), "configuration changed since"):
		return errMoved
	}
	return outcome.NewChangeUnknown(err)
}

// enqueueTimeout returns how long raft may take to begin a change that must be
// made before ctx ends. raft begins a change only after the previous one is
// committed. The timeout is shorter than the time that ctx leaves, so that the
// caller learns in time that raft has not begun this change.
func enqueueTimeout(ctx context.Context) time.Duration {
	left := adminTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline)/2)
	}
	return max(left, time.Millisecond) // for raft, 0 means no limit
}

// raiseFeatures raises the feature version if this node leads and all members
// know a newer one.
func (ms *membership) raiseFeatures() {
	var lead *features.Leadership
	if ld := ms.leaderships.current(); ld != nil {
		lead = &features.Leadership{
			Term:    ld.term,
			Members: func() []member.Member { return membersOf(ld.raft) },
			Propose: func(args ...[]byte) <-chan struct{} { return ld.forwarder.housekeep(ms.table, args).done },
		}
	}
	ms.features.Raise(ms.ctx, lead, ms.status.ofCluster)
}

// keep makes non-voters voters once they have caught up, unless they are learners.
// It also removes members that have been away for too long, and raises the feature
// version. It runs until the node stops.
func (ms *membership) keep() {
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ms.ctx.Done():
			return
		case <-t.C:
		}
		ms.raiseFeatures()
		if ms.leaderships.current() == nil {
			ms.away.Clear()
			ms.even = evenVoters{}
			continue
		}
		ms.warnEven()
		ms.removeAway()
		learners := ms.learners()
		for _, m := range ms.raft.members() {
			if !m.Voter && !slices.Contains(learners, m.ID) {
				if err := ms.promote(m); err != nil && ms.ctx.Err() == nil {
					ms.log.Debug("member cannot become a voter yet", "node", m.ID, "error", err)
				}
			}
		}
	}
}

// promotionLag is how many entries a node may be behind when it becomes a
// voter.
const promotionLag = 256

// promote makes a non-voter a voter if it has caught up. It reads the log index
// of the latest configuration before it asks the node. raft refuses the change
// if the log contains a later configuration. Without the index, AddVoter would
// add back a node that was removed meanwhile.
func (ms *membership) promote(m member.Member) error {
	index, err := ms.listed(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ms.ctx, time.Second)
	defer cancel()
	var r adminReply
	if err := ms.peers.askContext(ctx, m.Addr, m.ID, adminRequest{Op: opStatus}, &r); err != nil {
		return err
	}
	// A node that has applied nothing may have nothing on its disk. As a voter it
	// would wait for a leader that may need its vote: see founder.join. A node
	// that is settling gives no votes.
	commit := ms.raft.committed(ms.raftLog)
	if r.Status == nil || r.Status.Applied == 0 || r.Status.Settling || r.Status.Applied+promotionLag < commit {
		return errors.New("still catching up")
	}
	return ms.vote(m, index)
}

// vote makes a member a voter. index is the log index of the configuration that
// the caller has checked. vote fails if a later configuration exists.
func (ms *membership) vote(m member.Member, index uint64) error {
	added := ms.raft.running().AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, adminTimeout)
	if err := ms.changed(ms.ctx, added); err != nil {
		return err
	}
	ms.log.Info("member is a voter now", "node", m.ID)
	return nil
}

// listed returns the log index of the latest configuration if that
// configuration contains m as a non-voter. The index comes from the state
// machine, because the index that raft.GetConfiguration returns is always 0
// (hashicorp/raft 1.7.3). listed reads the index before the members. If the
// index is then too low, raft refuses the change and keep tries again.
func (ms *membership) listed(m member.Member) (index uint64, err error) {
	if index = ms.machine.Configured(); index == 0 {
		return 0, errors.New("no configuration has been applied yet")
	}
	if slices.Contains(ms.raft.members(), m) && !m.Voter {
		return index, nil
	}
	return 0, fmt.Errorf("%s is no longer a non-voter", m.ID)
}

// changeLock is held while a change of the members is checked and made, which
// may take seconds. It is a channel and not a sync.Mutex because of the
// simulator: its virtual time does not advance while a goroutine waits for a
// mutex, so the change that holds the lock would never end.
type changeLock chan struct{}

func newChangeLock() changeLock { return make(changeLock, 1) }

// lock acquires the lock. It returns errChanging if ctx ends first, because
// then another change of the members is still under way.
func (l changeLock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errChanging
	}
}

func (l changeLock) unlock() { <-l }
