package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/member"
	"github.com/holdfast-kv/holdfast/fsm"
)

// suspender is the part of a leadership that decides which nodes' waiters are
// served. An element would be lost if a waiter of a node that is gone got it. So
// the leader suspends, in the log, the waiters of a node that is not connected. If
// the node is still not connected after passAfter, other waiters get the locks for
// which the node's waiters wait. After WaiterGrace, the leader removes the node's
// waiters. Replies of waiters that were served before remain in the state until the
// node has received them, has started again, or cannot return (see mayReturn).
//
// From fsm.FeatureParts on, the leader removes the waiters of a session in
// parts: one entry removes as many waiters as WaiterWork permits. When the
// entry is applied, the leader proposes the next part.
//
// keepTime calls checkWaiters every ExpireEvery while there are waiters, when a
// link begins or ends, and when a part is applied. Only the goroutine of
// keepTime uses the suspender, so the suspender needs no lock.
type suspender struct {
	gone    map[fsm.SessionID]absence // the sessions that have waiters and no link
	pending *call                     // commands in flight that change the state of waiters, nil for none
	parts   bool                      // checkWaiters has more to propose when pending has ended
}

// absence describes a session that has waiters and no link.
type absence struct {
	since time.Duration // monotonic time at which the leader noticed the absence
	next  uint64        // id of the connection at which the next part begins; 0 for the session's first connection
}

// partDone returns a channel that receives a value when checkWaiters should be
// called because pending has ended. It returns nil if nothing has to be
// proposed before the next regular call.
func (h *suspender) partDone() <-chan struct{} {
	if h.pending == nil || !h.parts {
		return nil
	}
	return h.pending.done
}

// ended records that pending has ended, and reports whether its commands were
// executed. If they were not, the leader tries again at the next regular check.
func (h *suspender) ended() bool {
	executed := h.pending.err == nil
	h.pending, h.parts = nil, false
	return executed
}

// silence returns how long a connected node may send nothing before it counts
// as gone. It is longer than the interval of the node's pings.
func (o *Options) silence() time.Duration {
	return max(3*o.LeaderWait/pingsPerWait, time.Second)
}

// checkWaiters compares the links with the waiters in the state machine, and
// proposes the new states of the waiters. It proposes nothing while earlier
// changes are in flight. It reports whether there may be waiters.
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
	work := ld.opts.waiterWork()
	h.parts = false
	for _, s := range waiting {
		state := ld.nextState(s, features, now)
		if state == "" {
			continue
		}
		var names [][]byte
		if ends := state == fsm.SuspendEnd || state == fsm.SuspendDrop; ends && features >= fsm.FeatureParts {
			switch {
			case s.Locks > 0 && !s.Passed:
				state, h.parts = fsm.SuspendPass, true
			case !s.Suspended:
				state, h.parts = fsm.SuspendOn, true
			case work <= 0:
				h.parts = true
				continue
			default:
				if names, work = ld.nextPart(s.ID, state, work); names == nil {
					continue // without names, the command would remove all waiters
				}
			}
		}
		ld.log.Debug("changing the state of a session's waiters", "session", s.ID,
			"state", state, "open", s.Open, "served", s.Served)
		cmds = append(cmds, append(ld.suspendArgs(s.ID, state), names...))
	}
	if cmds != nil {
		h.pending = ld.forwarder.housekeep(ld.machine.Table(), cmds...)
	}
	return len(waiting) > 0
}

// nextPart returns the names of the next waiters of a session: as many as one entry
// can remove within work, a number of steps, but at least one if there is one. left
// is the number of steps that remain. Each part begins where the previous one ended,
// so that the leader does not examine the served waiters, which SuspendEnd does not
// remove, in every part. names is nil if no waiter that the command would remove is
// left after the previous part; the next part then begins with the first waiter
// again.
func (ld *leadership) nextPart(id fsm.SessionID, state string, work int) (names [][]byte, left int) {
	h := &ld.suspender
	a := h.gone[id]
	var list []fsm.WaiterInfo
	ld.machine.View(func(m *fsm.Machine) {
		list, a.next, left = m.EndList(id, a.next, state == fsm.SuspendDrop, work)
	})
	h.gone[id] = a
	h.parts = h.parts || a.next != 0
	for _, n := range list {
		names = append(names, decimal(n.Origin), decimal(uint64(n.Pos)))
	}
	return names, left
}

// suspendArgs returns the arguments of a call of fsm.SuspendCommand. They
// contain the term, because the observations of this leadership do not apply to
// the next term.
func (ld *leadership) suspendArgs(id fsm.SessionID, state string) [][]byte {
	return [][]byte{
		[]byte(fsm.SuspendCommand), decimal(ld.term), []byte(id.NodeID), decimal(id.Boot), []byte(state),
	}
}

// waiterWork returns WaiterWork in steps, at least 1.
func (o *Options) waiterWork() int { return max(int(o.WaiterWork/fsm.StepNanos), 1) }

// prune removes from gone the sessions that no longer have waiters.
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
	a, known := gone[s.ID]
	if !known {
		a.since = now
		gone[s.ID] = a
	}
	away, mend := now-a.since, features >= fsm.FeatureMend
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
// locks that its waiters wait for. It is longer than a node usually takes to link
// to a new leader, so a change of leader alone usually costs no waiter the lock.
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

// linked reports whether a session has a link. The link of another node counts
// only if that node has sent something recently.
func (ld *leadership) linked(id fsm.SessionID) bool {
	ld.mu.Lock()
	all := ld.receivers[id]
	ld.mu.Unlock()
	return slices.ContainsFunc(all, func(s resultReceiver) bool {
		w, remote := s.(*writeServer)
		return !remote || time.Duration(ld.forwarder.recent()-w.heard.Load()) <= ld.opts.silence()
	})
}

// partReceiver receives the results of the groups that endEarlier proposes.
type partReceiver struct {
	applied chan struct{} // capacity 1: results have arrived
}

// deliver implements resultReceiver.
func (p *partReceiver) deliver([]fsm.GroupResult) { signal(p.applied) }

// served implements resultReceiver. It is never called, because no client waits
// in partSession.
func (p *partReceiver) served(fsm.Woken) {}

// partSession returns the session whose groups remove the waiters of earlier
// starts of nodes. It is not the session of the leader's forwarder, because the
// leader itself may be the node that has started again. Then the first group of
// the forwarder's session would remove all waiters of the earlier start at
// once. No member has the node id of partSession.
func (ld *leadership) partSession() fsm.SessionID {
	own := ld.forwarder.id
	return fsm.SessionID{NodeID: "waiters/" + own.NodeID, Boot: own.Boot}
}

// submitPart submits a group of partSession. Only the leader proposes groups of
// this session, so the leadership assigns their numbers.
func (ld *leadership) submitPart(body []byte) error {
	ld.partNumbers.Lock()
	defer ld.partNumbers.Unlock()
	id := ld.partSession()
	ld.mu.Lock()
	seq := ld.accepted[id] + 1
	ld.mu.Unlock()
	return ld.submit(id, seq-1, seq, body)
}

// endEarlier removes the waiters of an earlier start of a node before the first
// group of a later start is proposed. Otherwise, the entry with that group would
// remove all of these waiters, and might take long. id is the session of the
// later start.
//
// endEarlier returns when no waiter is left, when gone is closed, when the
// leadership ends, or after half of Options.silence. It need not remove all
// waiters: the entry with the first group of the later start removes those that
// are left.
func (ld *leadership) endEarlier(id fsm.SessionID, gone <-chan struct{}) {
	earlier, found := ld.earlier(id)
	if !found {
		return
	}
	p := &partReceiver{applied: make(chan struct{}, 1)}
	if _, _, err := ld.attach(ld.partSession(), p); err != nil {
		return
	}
	defer ld.detach(ld.partSession(), p)
	limit := time.NewTimer(ld.opts.silence() / 2)
	defer limit.Stop()
	for ; found; earlier, found = ld.earlier(id) {
		var cmds [][][]byte
		if earlier.Locks > 0 && !earlier.Passed {
			cmds = append(cmds, ld.suspendArgs(earlier.ID, fsm.SuspendPass))
		} else if !earlier.Suspended {
			cmds = append(cmds, ld.suspendArgs(earlier.ID, fsm.SuspendOn))
		}
		args := ld.suspendArgs(earlier.ID, fsm.SuspendDrop)
		ld.machine.View(func(m *fsm.Machine) {
			list, _, _ := m.EndList(earlier.ID, 0, true, ld.opts.waiterWork())
			for _, n := range list {
				args = append(args, decimal(n.Origin), decimal(uint64(n.Pos)))
			}
		})
		if err := ld.submitPart(groupOf(ld.machine.Table(), append(cmds, args)...)); err != nil {
			return
		}
		select {
		case <-p.applied:
		case <-limit.C:
			ld.log.Debug("waiters of an earlier start are left", "session", earlier.ID, "open", earlier.Open)
			return
		case <-gone:
			return
		case <-ld.done:
			return
		}
	}
}

// earlier returns a session of an earlier start of the node that id names, if
// that session has waiters. Below fsm.FeatureParts, it finds none.
func (ld *leadership) earlier(id fsm.SessionID) (s fsm.WaitSession, found bool) {
	ld.machine.View(func(m *fsm.Machine) {
		if m.Features() < fsm.FeatureParts {
			return
		}
		for _, w := range m.WaitSessions() {
			if w.ID.NodeID == id.NodeID && w.ID.Boot < id.Boot {
				s, found = w, true
			}
		}
	})
	return s, found
}

func decimal(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }
