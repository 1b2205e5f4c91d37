package checker

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"
)

// Added is an attempt to add an entry with a unique value to a stream.
type Added struct {
	Stream, Value string
	ID            string // the id that the cluster returned, if Done
	Client        int
	Call, Return  time.Duration
	Outcome       Outcome
}

// GroupRead is the result of one client's read for a consumer group, or of its
// claim of entries that have been pending for some time.
type GroupRead struct {
	Stream, Consumer string
	Client           int
	Claim            bool
	Values           map[string]string // by entry id
	Call, Return     time.Duration
	Outcome          Outcome
}

// GroupAck is an attempt to acknowledge entries.
type GroupAck struct {
	Stream       string
	IDs          []string
	Acked        int64 // the reply: how many of the entries were still pending
	Client       int
	Call, Return time.Duration
	Outcome      Outcome
}

// GroupEnd is the final state of a stream and of its one consumer group.
type GroupEnd struct {
	Stream  string
	Entries []GroupEntry
	Last    string          // id of the last entry that was delivered, "0-0" for none
	Pending map[string]bool // entries that were delivered and not acknowledged
}

// GroupEntry is an entry of a stream.
type GroupEntry struct{ ID, Value string }

// Groups checks streams to which clients only add entries. Each stream has one
// consumer group.
//
//   - An entry is in the stream once if its addition was acknowledged, never if
//     it was refused, and at most once if its outcome is unknown. The order of
//     the entries agrees with real time.
//   - Every entry is either not delivered yet, or pending, or acknowledged by a
//     consumer.
//   - At most one read that is not a claim delivers an entry, and a client
//     receives only entries that are in the stream.
//   - An entry that a consumer has acknowledged is no longer pending, and was
//     not acknowledged twice.
func Groups(added []Added, reads []GroupRead, acks []GroupAck, ends []GroupEnd) (checked int, bad []Violation) {
	for _, end := range ends {
		g := &groupCheck{end: end, at: make(map[string]int), byID: make(map[string]string)}
		for i, e := range end.Entries {
			g.at[e.ID], g.byID[e.ID] = i, e.Value
		}
		g.additions(added)
		g.reads(reads)
		g.acks(acks)
		checked += len(end.Entries)
		bad = append(bad, g.bad...)
	}
	return checked, bad
}

type groupCheck struct {
	end  GroupEnd
	at   map[string]int    // position of an entry in the stream
	byID map[string]string // value of an entry
	bad  []Violation
}

func (g *groupCheck) say(from, to time.Duration, format string, args ...any) {
	g.bad = append(g.bad, Violation{"stream group", g.end.Stream, fmt.Sprintf(format, args...), from, to})
}

// additions checks the entries of the stream against the attempts to add them.
func (g *groupCheck) additions(added []Added) {
	times, place := make(map[string]int), make(map[string]int)
	for i, e := range g.end.Entries {
		times[e.Value]++
		place[e.Value] = i
	}
	known := make(map[string]bool)
	var done []*Added
	for i := range added {
		a := &added[i]
		if a.Stream != g.end.Stream {
			continue
		}
		known[a.Value] = true
		switch n := times[a.Value]; {
		case n > 1:
			g.say(a.Call, a.Return, "%s was added %d times by one command", a.Value, n)
		case n == 0 && a.Outcome == Done:
			g.say(a.Call, a.Return, "%s was acknowledged as %s and is missing", a.Value, a.ID)
		case n == 1 && a.Outcome == Refused:
			g.say(a.Call, a.Return, "%s was refused as not executed, but it was executed", a.Value)
		case n == 1 && a.Outcome == Done:
			if id := g.end.Entries[place[a.Value]].ID; id != a.ID {
				g.say(a.Call, a.Return, "%s was acknowledged as %s, but is in the stream as %s", a.Value, a.ID, id)
			}
			done = append(done, a)
		}
	}
	for _, e := range g.end.Entries {
		if !known[e.Value] {
			g.say(0, 0, "%s contains %s, which no client added", e.ID, e.Value)
		}
	}
	sort.Slice(done, func(i, j int) bool { return place[done[i].Value] < place[done[j].Value] })
	var latest *Added
	for _, a := range done {
		if latest != nil && a.Return < latest.Call {
			g.say(a.Call, latest.Return, "%s was acknowledged before %s was sent, but comes after it in the stream",
				a.Value, latest.Value)
		}
		if latest == nil || a.Call > latest.Call {
			latest = a
		}
	}
}

// reads checks the entries that clients received.
func (g *groupCheck) reads(reads []GroupRead) {
	given := make(map[string]*GroupRead)
	for i := range reads {
		r := &reads[i]
		if r.Stream != g.end.Stream || r.Outcome != Done {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(r.Values)) {
			switch value, there := g.byID[id]; {
			case !there:
				g.say(r.Call, r.Return, "client %d received %s, which is not in the stream", r.Client, id)
			case value != r.Values[id]:
				g.say(r.Call, r.Return, "client %d received %s with the value %s, but its value is %s", r.Client, id,
					r.Values[id], value)
			}
			if r.Claim {
				continue
			}
			if other := given[id]; other != nil {
				g.say(r.Call, r.Return, "%s was delivered to client %d and to client %d", id, other.Client, r.Client)
			}
			given[id] = r
		}
	}
	last, delivered := g.at[g.end.Last], g.end.Last != "0-0"
	for _, id := range slices.Sorted(maps.Keys(given)) {
		if at, there := g.at[id]; there && (!delivered || at > last) {
			g.say(given[id].Call, given[id].Return,
				"%s was delivered to client %d, but the last id that the group has delivered is %s", id,
				given[id].Client, g.end.Last)
		}
	}
}

// acks checks the pending entries against the acknowledgements of the consumers.
func (g *groupCheck) acks(acks []GroupAck) {
	sure, maybe := make(map[string]int), make(map[string]bool)
	for i := range acks {
		a := &acks[i]
		if a.Stream != g.end.Stream || a.Outcome == Refused {
			continue
		}
		if a.Outcome == Done && a.Acked > int64(len(a.IDs)) {
			g.say(a.Call, a.Return, "%d of %d entries were acknowledged", a.Acked, len(a.IDs))
		}
		for _, id := range a.IDs {
			if a.Outcome == Done && a.Acked == int64(len(a.IDs)) {
				sure[id]++
			} else if a.Outcome == Unknown || a.Acked > 0 {
				maybe[id] = true
			}
			if a.Outcome == Done && g.end.Pending[id] {
				g.say(a.Call, a.Return, "%s was acknowledged by client %d and is pending", id, a.Client)
			}
		}
	}
	last, delivered := g.at[g.end.Last], g.end.Last != "0-0"
	if _, there := g.at[g.end.Last]; delivered && !there {
		g.say(0, 0, "the last id that the group has delivered is %s, which is not in the stream", g.end.Last)
		return
	}
	for i, e := range g.end.Entries {
		switch behind := !delivered || i > last; {
		case behind && g.end.Pending[e.ID]:
			g.say(0, 0, "%s is pending, and was not delivered", e.ID)
		case sure[e.ID] > 1:
			g.say(0, 0, "%s was acknowledged %d times", e.ID, sure[e.ID])
		case behind && sure[e.ID] > 0:
			g.say(0, 0, "%s was acknowledged, and was not delivered", e.ID)
		case !behind && !g.end.Pending[e.ID] && sure[e.ID] == 0 && !maybe[e.ID]:
			g.say(0, 0, "%s was delivered, is not pending, and was not acknowledged", e.ID)
		}
	}
}
