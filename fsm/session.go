package fsm

// Status is what became of a group.
type Status byte

const (
	// StatusDone: the group ran, now or earlier; the reply is its own.
	StatusDone Status = iota
	// StatusGap: not run, an earlier group of the session is missing.
	StatusGap
	// StatusFenced: not run, the entry was stamped in an older term.
	StatusFenced
	// StatusStale: not run, the session belongs to an older start of its node.
	StatusStale
	// StatusReplyLost: the group ran earlier, but its reply was too large to be kept.
	StatusReplyLost
)

// What a session keeps for repeated groups is bounded: by the bytes of one
// reply and of all of them. A reply beyond that is kept as StatusReplyLost.
const (
	maxKeptReply   = 64 << 10
	maxKeptReplies = 16 << 20
)

// session is the machine's memory of one start of one node.
type session struct {
	boot    uint64
	lastSeq uint64
	// replies are those of (floor, lastSeq], in order.
	floor   uint64
	replies []keptReply
	bytes   int // of replies
	// superseded: a later start of the node has replaced the session. Only the
	// entry that holds the later start can still see it: see runs.
	superseded bool
}

// runs reports whether the groups of a session are run: not if it is nil,
// because a later start of its node is known. From FeatureMend on the same is
// true if the later start stands in the same entry. Before, the groups of both
// starts ran, and both left waiters.
func (s *session) runs(features int) bool {
	return s != nil && !(s.superseded && features >= FeatureMend && !seeded("superseded-runs"))
}

type keptReply struct {
	status Status
	bytes  []byte
}

// ack drops the replies that have arrived.
func (s *session) ack(floor uint64) {
	floor = min(floor, s.lastSeq)
	if floor <= s.floor {
		return
	}
	for _, r := range s.replies[:floor-s.floor] {
		s.bytes -= len(r.bytes)
	}
	n := copy(s.replies, s.replies[floor-s.floor:])
	clear(s.replies[n:])
	s.replies = s.replies[:n]
	s.floor = floor
}

func (s *session) keep(status Status, reply []byte) {
	if len(reply) > maxKeptReply || s.bytes+len(reply) > maxKeptReplies {
		status, reply = StatusReplyLost, nil
	}
	s.bytes += len(reply)
	s.lastSeq++
	s.replies = append(s.replies, keptReply{status, reply})
}

// kept returns the stored reply of a group that ran. A reply below the floor
// was acknowledged by its own gateway, which therefore never asks again.
func (s *session) kept(seq uint64) keptReply {
	if seq <= s.floor {
		return keptReply{StatusReplyLost, nil}
	}
	return s.replies[seq-s.floor-1]
}

// sessionFor finds or opens the session of id. A node's newer start replaces
// the older one, whose groups are refused from then on.
func (m *Machine) sessionFor(id SessionID) (*session, bool) {
	s := m.sessions[id.NodeID]
	switch {
	case s == nil || s.boot < id.Boot:
		if s != nil {
			s.superseded = true
		}
		s = &session{boot: id.Boot}
		m.sessions[id.NodeID] = s
	case s.boot > id.Boot:
		return nil, false
	}
	return s, true
}

// SessionState is what a session has got so far: for a gateway that connects
// to a new leader.
type SessionState struct {
	LastSeq uint64
	Replies []GroupResult // those kept, in order
	Stale   bool          // a newer start of the node is known
}

// Session returns the state of a session; one that has not spoken yet has
// LastSeq 0.
func (m *Machine) Session(id SessionID) SessionState {
	s := m.sessions[id.NodeID]
	switch {
	case s == nil || s.boot < id.Boot:
		return SessionState{}
	case s.boot > id.Boot:
		return SessionState{Stale: true}
	}
	st := SessionState{LastSeq: s.lastSeq}
	for i, r := range s.replies {
		st.Replies = append(st.Replies, GroupResult{Seq: s.floor + 1 + uint64(i), Status: r.status, Reply: r.bytes})
	}
	return st
}

// SessionCount returns the number of sessions known.
func (m *Machine) SessionCount() int { return len(m.sessions) }
