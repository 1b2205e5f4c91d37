package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// holder is the part of an office that says which nodes' waiters are served. An
// element given to a waiter whose node is gone is lost, so the waiters of a node
// that is not linked are held, in the log, and forgotten after a while. Replies
// that were served already stay until the node has them, has started anew, or is no
// member any more. keepTime calls tend, every ExpireEvery and when a link begins or
// ends.
type holder struct {
	gone map[fsm.SessionID]time.Duration // not linked, since
	said *call                           // words on their way, nil for none
}

// silence is how long a linked node may say nothing before it counts as gone: it
// pings more often.
func (o *Options) silence() time.Duration {
	return max(3*o.LeaderWait/pingsPerWait, time.Second)
}

// tend compares the links with what the machine holds, and says what is new.
func (o *office) tend() {
	h := &o.holder
	if h.said != nil {
		select {
		case <-h.said.done:
			h.said = nil
		default:
			return
		}
	}
	var waiting []fsm.WaitSession
	var features int
	o.machine.view(func(m *fsm.Machine) { waiting, features = m.WaitSessions(), m.Features() })
	h.keep(waiting)
	now := o.clock.Mono()
	var words [][][]byte
	for _, s := range waiting {
		if word := o.wordOn(s, features, now); word != "" {
			o.log.Debug("waiters of a node", "session", s.ID, "hold", word, "open", s.Open, "served", s.Served)
			// The term is named because what this office saw means nothing in the next.
			words = append(words, [][]byte{[]byte(fsm.HoldCommand), decimal(o.term), []byte(s.ID.NodeID), decimal(s.ID.Boot), []byte(word)})
		}
	}
	if words != nil {
		h.said = o.gateway.command(o.machine.table, words...)
	}
}

// keep forgets the sessions that have no waiters any more.
func (h *holder) keep(waiting []fsm.WaitSession) {
	for id := range h.gone {
		if !slices.ContainsFunc(waiting, func(s fsm.WaitSession) bool { return s.ID == id }) {
			delete(h.gone, id)
		}
	}
}

// wordOn returns what is to be said of a session, "" for nothing.
func (o *office) wordOn(s fsm.WaitSession, features int, now time.Duration) string {
	gone := o.holder.gone
	if o.linked(s.ID) {
		delete(gone, s.ID)
		if s.Held {
			return fsm.HoldOff
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
	case mend && away > dropGraces*o.opts.WaiterGrace && !o.mayReturn(s.ID):
		return fsm.HoldDrop
	case away > o.opts.WaiterGrace && (s.Open > 0 || !mend):
		return fsm.HoldEnd
	case !s.Held:
		return fsm.HoldOn
	}
	return ""
}

// dropGraces is how many times WaiterGrace the replies that were served to a node
// are kept after it has gone and is known not to come back.
const dropGraces = 60

// mayReturn reports whether a session that is not linked may link again: its node
// is a member, and no other data directory serves that member.
func (o *office) mayReturn(id fsm.SessionID) bool {
	node := memberOf(id)
	if !slices.ContainsFunc(membersOf(o.raft), func(m Member) bool { return m.ID == node }) {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for other := range o.sinks {
		if other.NodeID != id.NodeID && memberOf(other) == node {
			return false
		}
	}
	return true
}

// linked reports whether a session has a link, and spoke not long ago.
func (o *office) linked(id fsm.SessionID) bool {
	o.mu.Lock()
	all := o.sinks[id]
	o.mu.Unlock()
	return slices.ContainsFunc(all, func(s sink) bool {
		w, remote := s.(*writeServer)
		return !remote || time.Duration(o.gateway.coarse.Load()-w.heard.Load()) <= o.opts.silence()
	})
}

func decimal(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }
