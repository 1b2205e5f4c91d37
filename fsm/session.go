package fsm

// Status says how the machine handled a group.
type Status byte

const (
	// StatusDone: the group was executed, now or earlier, and has its own
	// reply.
	StatusDone Status = iota
	// StatusGap: the group was not executed, because an earlier group of the
	// session is missing.
	StatusGap
	// StatusFenced: the group was not executed, because its entry was built in
	// another term than the one in which Raft appended it.
	StatusFenced
	// StatusStale: the group was not executed, because its session belongs to an
	// older start of the node.
	StatusStale
	// StatusReplyLost: the group was executed earlier, but its reply is not
	// kept. The reply exceeded a limit (see maxKeptReply), or the forwarder has
	// acknowledged it.
	StatusReplyLost
)

// These limits bound the replies, in bytes, that a session keeps for repeated
// groups. One limit bounds a single reply, and the other all replies together.
// A reply that exceeds a limit is kept as StatusReplyLost, without its bytes.
const (
	maxKeptReply   = 64 << 10
	maxKeptReplies = 16 << 20
)

// session is the state that the machine stores for one start of one node.
type session struct {
	boot    uint64
	lastSeq uint64
	// replies belong to the groups in (floor, lastSeq], in order.
	floor   uint64
	replies []keptReply
	bytes   int // size of replies
	// superseded is set when a later start of the node has replaced the
	// session. Only the entry that contains the later start can still refer to
	// the session: see runs.
	superseded bool
}

// runs reports whether the machine executes the groups of a session. It returns
// false if s is nil, because a later start of the node then has a session. From
// FeatureMend on, it also returns false if the later start is in the same entry.
// Before FeatureMend, the groups of both starts were executed, and both left
// waiters.
func (s *session) runs(features int) bool {
	return s != nil && !(s.superseded && features >= FeatureMend)
}

type keptReply struct {
	status Status
	bytes  []byte
}

// ack drops the replies up to floor, which the forwarder has received.
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

// kept returns the stored reply of a group that was executed. The forwarder of
// the session has acknowledged all replies up to the floor, so it never asks
// for them again.
func (s *session) kept(seq uint64) keptReply {
	if seq <= s.floor {
		return keptReply{StatusReplyLost, nil}
	}
	return s.replies[seq-s.floor-1]
}

// sessionFor returns the session of id and creates it if necessary. A newer
// start of a node replaces the older one. The machine then refuses the groups
// of the older start, and ok is false for its id.
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

// SessionState is the state of a session. A forwarder asks for it when it
// connects to a new leader.
type SessionState struct {
	LastSeq uint64
	Replies []GroupResult // the replies that are kept, in order
	Stale   bool          // a newer start of the node is known
}

// Session returns the state of a session. A session that has sent no group yet
// has LastSeq 0.
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

// SessionCount returns the number of known sessions.
func (m *Machine) SessionCount() int { return len(m.sessions) }
