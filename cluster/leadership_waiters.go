package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/fsm"
)

// suspender is the part of a leadership that decides which nodes' waiters are
// served. An element that is given to a waiter whose node is gone would be
// lost. So the leader suspends, in the log, the waiters of a node that is not
// connected. If the node is still not connected after passAfter, other waiters
// get the locks that its waiters wait for. After WaiterGrace, the leader
// removes the waiters of the node. Replies that were served before remain until
// the node has received them, has restarted, or is no longer a member.
//
// keepTime calls checkWaiters every ExpireEvery, and when a link begins or ends.
// Only that goroutine uses the suspender, so it needs no lock.
type suspender struct {
	// monotonic time since which a session has had no link
	gone    map[fsm.SessionID]time.Duration
	pending *call // commands in flight that change the state of waiters, nil for none
}

// silence returns how long a connected node may send nothing before it counts
// as gone. It is longer than the interval of the node's pings.
func (o *Options) silence() time.Duration {
	return max(3*o.LeaderWait/pingsPerWait, time.Second)
}

// checkWaiters compares the links with the waiters in the state machine, and
// proposes the changes. It proposes nothing while earlier changes are in flight.
// It reports whether there may be waiters.
func (ld *leadership) checkWaiters() (waiters bool) {
	h := &ld.suspender
	if h.pending != nil {
		select {
		case <-h.pending.done:
			h.pending = nil
		default:
			return true
		}
	}
	var waiting []fsm.WaitSession
	var features int
	ld.machine.View(func(m *fsm.Machine) { waiting, features = m.WaitSessions(), m.Features() })
	h.prune(waiting)
	now := ld.clock.Mono()
	var cmds [][][]byte
	for _, s := range waiting {
		if state := ld.nextState(s, features, now); state != "" {
			ld.log.Debug("changing the state of a session's waiters", "session", s.ID,
				"state", state, "open", s.Open, "served", s.Served)
			// The command names the term, because what this leadership observed
			// means nothing in the next term.
			cmds = append(cmds, [][]byte{
				[]byte(fsm.SuspendCommand), decimal(ld.term), []byte(s.ID.NodeID), decimal(s.ID.Boot), []byte(state),
			})
		}
	}
	if cmds != nil {
		h.pending = ld.forwarder.housekeep(ld.machine.Table(), cmds...)
	}
	return len(waiting) > 0
}

// prune removes the sessions that no longer have waiters from gone.
func (h *suspender) prune(waiting []fsm.WaitSession) {
	for id := range h.gone {
		if !slices.ContainsFunc(waiting, func(s fsm.WaitSession) bool { return s.ID == id }) {
			delete(h.gone, id)
		}
	}
}

// nextState returns the new state for the waiters of a session, as an argument
// of fsm.SuspendCommand. It returns "" if the state does not change.
func (ld *leadership) nextState(s fsm.WaitSession, features int, now time.Duration) string {
	gone := ld.suspender.gone
	if ld.linked(s.ID) {
		delete(gone, s.ID)
		if s.Suspended {
			return fsm.SuspendOff
		}
		return ""
	}
	since, known := gone[s.ID]
	if !known {
		since = now
		gone[s.ID] = since
	}
	away, mend := now-since, features >= fsm.FeatureMend
	switch {
	case mend && away > dropGraces*ld.opts.WaiterGrace && !ld.mayReturn(s.ID):
		return fsm.SuspendDrop
	case away > ld.opts.WaiterGrace && (s.Open > 0 || s.Locks > 0 || !mend):
		return fsm.SuspendEnd
	case !s.Suspended:
		return fsm.SuspendOn
	case s.Locks > 0 && !s.Passed && away > passAfter:
		return fsm.SuspendPass
	}
	return ""
}

// passAfter is how long a node must have had no link before other waiters get the
// locks that its waiters wait for. It is longer than a node takes to connect to a
// new leader, so a change of leader alone does not cost a waiter the lock.
const passAfter = 25 * time.Millisecond

// dropGraces bounds, as a multiple of WaiterGrace, how long the replies of served
// waiters are kept for a node that is gone and cannot return: see mayReturn.
const dropGraces = 60

// mayReturn reports whether a session that has no link may be linked again: its
// node is a member, and no other data directory serves that member.
func (ld *leadership) mayReturn(id fsm.SessionID) bool {
	node := memberOf(id)
	if !slices.ContainsFunc(membersOf(ld.raft), func(m member.Member) bool { return m.ID == node }) {
		return false
	}
	ld.mu.Lock()
	defer ld.mu.Unlock()
	for other := range ld.receivers {
		if other.NodeID != id.NodeID && memberOf(other) == node {
			return false
		}
	}
	return true
}

// linked reports whether a session has a link and the node has sent something
// recently.
func (ld *leadership) linked(id fsm.SessionID) bool {
	ld.mu.Lock()
	all := ld.receivers[id]
	ld.mu.Unlock()
	return slices.ContainsFunc(all, func(s resultReceiver) bool {
		w, remote := s.(*writeServer)
		return !remote || time.Duration(ld.forwarder.recent()-w.heard.Load()) <= ld.opts.silence()
	})
}

func decimal(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }
