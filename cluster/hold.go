package cluster

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// holder is the part of an office that says which nodes' waiters are served. An
// element given to a waiter whose node is gone is lost, so the waiters of a node
// that is not linked are held, in the log, and forgotten after a while. keepTime
// calls tend, every ExpireEvery and when a link begins or ends.
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
	o.machine.view(func(m *fsm.Machine) { waiting = m.WaitSessions() })
	if len(waiting) == 0 {
		clear(h.gone)
		return
	}
	now := o.clock.Mono()
	var words [][][]byte
	say := func(id fsm.SessionID, word string) {
		o.log.Debug("waiters of a node", "session", id, "hold", word)
		// The term is named because what this office saw means nothing in the next.
		words = append(words, [][]byte{[]byte(fsm.HoldCommand), decimal(o.term), []byte(id.NodeID), decimal(id.Boot), []byte(word)})
	}
	for _, s := range waiting {
		switch o.linked(s.ID) {
		case true:
			delete(h.gone, s.ID)
			if s.Held {
				say(s.ID, fsm.HoldOff)
			}
		case false:
			since, known := h.gone[s.ID]
			if !known {
				since = now
				h.gone[s.ID] = since
			}
			if now-since > o.opts.WaiterGrace {
				say(s.ID, fsm.HoldEnd)
			} else if !s.Held {
				say(s.ID, fsm.HoldOn)
			}
		}
	}
	if words != nil {
		h.said = o.gateway.command(o.machine.table, words...)
	}
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
