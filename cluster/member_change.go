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
	"github.com/holdfast-kv/holdfast/cluster/outcome"
)

var pid = os.Getpid()

// errNotLeader makes the sender of a request ask the leader instead. It has no
// outcome.
var errNotLeader = errors.New("this node does not lead")

// membership changes the members of the cluster, and the feature version that
// depends on what the members know. Only the leader makes changes; see askLeader
// for requests at other nodes.
type membership struct {
	node     *Node
	changes  changeLock
	features features // see features.go
}

func newMembership(n *Node) *membership {
	return &membership{node: n, changes: newChangeLock()}
}

// changed waits until raft has committed a change of the members, whose future
// is f. The error says whether the change was made. See outcome.Error.
func (ms *membership) changed(ctx context.Context, f raft.Future) error {
	failpoint.Hit(failpoint.MemberProposed)
	err := ms.node.raft.await(ctx, f)
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

// enqueueTimeout returns how long raft may take to begin a change whose time
// limit is ctx. raft begins a change only after the previous one is committed.
// The timeout is shorter than the limit of ctx, so that the caller learns in
// time that raft has not begun this change.
func enqueueTimeout(ctx context.Context) time.Duration {
	left := adminTimeout
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline)/2)
	}
	return max(left, time.Millisecond) // for raft, 0 means no limit
}

// toLeader sends a request to the leader and ignores the content of the reply.
// This node may be the leader.
func (n *Node) toLeader(req adminRequest) error {
	_, err := n.askLeader(n.ctx, req)
	return err
}

// askLeader sends a request to the leader and returns its reply. It fails with
// outcome.ErrNoLeader if this node knows no leader.
func (n *Node) askLeader(ctx context.Context, req adminRequest) (adminReply, error) {
	var reply adminReply
	r := n.raft.running()
	if r == nil {
		return reply, outcome.ErrNoLeader
	}
	addr, id := r.LeaderWithID()
	switch id {
	case "":
		return reply, outcome.ErrNoLeader
	case n.self:
		return reply, n.answer(ctx, req, &reply)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return reply, n.peers.askContext(ctx, string(n.peers.addressOf(id, addr)), string(id), req, &reply)
}

// keepMembers makes non-voters voters once they have caught up, and raises the
// feature version. It runs until the node stops.
func (ms *membership) keepMembers() {
	n := ms.node
	defer n.wg.Done()
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		ms.raiseFeatures()
		if n.currentLeadership() == nil {
			continue
		}
		for _, m := range n.raft.members() {
			if !m.Voter {
				if err := ms.promote(m); err != nil && n.ctx.Err() == nil {
					n.log.Debug("member does not vote yet", "node", m.ID, "error", err)
				}
			}
		}
	}
}

// promotionLag is how many entries a node may be behind when it becomes a
// voter.
const promotionLag = 256

// promote makes a non-voter a voter if it has caught up. It reads the log index
// of the latest configuration before it asks the node, and raft refuses the
// change if the log contains another configuration by then. Otherwise AddVoter
// would add again a node that was removed meanwhile.
func (ms *membership) promote(m Member) error {
	n := ms.node
	index, err := ms.listed(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	var r adminReply
	if err := n.peers.askContext(ctx, m.Addr, m.ID, adminRequest{Op: opStatus}, &r); err != nil {
		return err
	}
	// A node that has applied nothing has nothing on its disk either. As a
	// voter it would wait for a leader that may need its vote: see join. A node
	// that is settling gives no votes.
	commit := n.raft.committed(n.raftLog)
	if r.Status == nil || r.Status.Applied == 0 || r.Status.Settling || r.Status.Applied+promotionLag < commit {
		return errors.New("still catching up")
	}
	return ms.vote(m, index)
}

// vote makes a member a voter. It fails if a later configuration than the one
// at index exists.
func (ms *membership) vote(m Member, index uint64) error {
	n := ms.node
	added := n.raft.running().AddVoter(raft.ServerID(m.ID), raft.ServerAddress(m.Addr), index, adminTimeout)
	if err := ms.changed(n.ctx, added); err != nil {
		return err
	}
	n.log.Info("member votes", "node", m.ID)
	return nil
}

// listed returns the log index of the latest configuration if that
// configuration contains m as a non-voter. The index comes from the state
// machine, because the one of raft.GetConfiguration is always 0 (hashicorp/raft
// 1.7.3). listed reads the index before the members. If the index is then too
// low, raft refuses the change and keepMembers tries again.
func (ms *membership) listed(m Member) (index uint64, err error) {
	n := ms.node
	if index = n.machine.Configured(); index == 0 {
		return 0, errors.New("no configuration has been applied yet")
	}
	if slices.Contains(n.raft.members(), m) && !m.Voter {
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
