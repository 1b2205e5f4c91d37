// Package trace describes the traces of commands: the times at which a group of
// commands passed from one stage to the next. The package itself exports no
// traces: a [Recorder] does. The package is not a supported API.
//
// Every node of a cluster derives the identity of a trace from the group's number
// (see [Group]), and decides by the identity whether the group is traced. So nothing
// about traces is sent between the nodes, and nodes with other programs or other
// settings can take part.
package trace

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// Group identifies a group of commands. Its number is 0 if the group was not sent
// through the log.
type Group struct {
	Session fsm.SessionID // session of the node whose client sent the group
	Number  uint64
}

// Span is a stage of a group.
type Span struct {
	Name       string
	Start, End time.Time
}

// Names of the stages. The node of the client records three stages. Command
// contains all other stages. Forward begins when the node begins to send the
// group, and ends when the replies have arrived. Reply follows it, and ends when
// the replies are written to the socket.
//
// The leader also records three stages. Propose lasts from the arrival of the
// group until its entry is encoded. Commit lasts until a majority has the entry
// on disk and the leader's state machine begins to execute it. Apply lasts
// until the state machine has executed the entry.
const (
	Command = "command"
	Forward = "forward"
	Read    = "read" // in place of Forward, for a group that was not sent through the log
	Reply   = "reply"
	Propose = "propose"
	Commit  = "commit"
	Apply   = "apply"
)

// Recorder records spans. Its methods are safe for concurrent use and do not
// block.
type Recorder interface {
	// Sampled reports whether a group is traced. For a group with a number, the
	// answer is the same on all nodes that trace the same share of the groups.
	// For a group without a number, the answer is random.
	Sampled(g Group) bool
	// Record records the stages of a sampled group. command is the name of its
	// first command if the spans include Command, else "".
	Record(g Group, command string, spans ...Span)
}

// Slot holds the recorder of a node. It is safe for concurrent use. The zero value
// is empty.
type Slot struct{ p atomic.Pointer[Recorder] }

// Set sets the recorder.
func (s *Slot) Set(r Recorder) { s.p.Store(&r) }

// Get returns the recorder, or nil.
func (s *Slot) Get() Recorder {
	if r := s.p.Load(); r != nil {
		return *r
	}
	return nil
}

// maxArrivals bounds the number of arrivals that Arrivals remembers.
const maxArrivals = 4096

// Arrivals remembers when sampled groups arrived at a leader. Add and Take are not
// safe for concurrent use; the other methods are.
type Arrivals struct {
	Slot *Slot // nil if no group is traced
	at   map[Group]time.Time
}

// Sampled reports whether a group is traced.
func (a *Arrivals) Sampled(id fsm.SessionID, number uint64) bool {
	if a.Slot == nil {
		return false
	}
	r := a.Slot.Get()
	return r != nil && r.Sampled(Group{id, number})
}

// Add notes the arrival of a group that is sampled.
func (a *Arrivals) Add(id fsm.SessionID, number uint64) {
	if len(a.at) >= maxArrivals {
		return
	}
	if a.at == nil {
		a.at = make(map[Group]time.Time)
	}
	a.at[Group{id, number}] = time.Now()
}

// Arrived is a group that has been applied, and the time of its arrival.
type Arrived struct {
	Group
	At time.Time
}

// Take returns the groups of an entry for which Add has noted an arrival, and
// forgets those arrivals.
func (a *Arrivals) Take(res *fsm.Result) (all []Arrived) {
	if len(a.at) == 0 {
		return nil
	}
	for _, r := range res.Groups {
		g := Group{res.Sessions[r.Session], r.Seq}
		if at, ok := a.at[g]; ok {
			delete(a.at, g)
			all = append(all, Arrived{g, at})
		}
	}
	return all
}

// Applied records the stages of groups on the leader. stamped is the time at
// which their entry was encoded. The state machine executed the entry from
// applying to applied.
func (a *Arrivals) Applied(groups []Arrived, stamped, applying, applied time.Time) {
	for _, g := range groups {
		if g.At.After(stamped) { // the leader received the group a second time
			g.At = stamped
		}
		a.Slot.Get().Record(g.Group, "", Span{Propose, g.At, stamped}, Span{Commit, stamped, applying},
			Span{Apply, applying, applied})
	}
}
