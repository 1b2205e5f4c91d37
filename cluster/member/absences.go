package member

import (
	"maps"
	"sync"
	"time"
)

// Absences records since when members have been away, measured on the leader's
// monotonic clock. The methods of Absences are safe for concurrent use.
type Absences struct {
	mu    sync.Mutex
	since map[string]time.Duration // by id; guarded by mu
}

// NewAbsences returns an empty record.
func NewAbsences() *Absences { return &Absences{since: make(map[string]time.Duration)} }

// Note records which members are away. now is the current monotonic time. Note
// returns the member with the longest recorded absence, and the length of that
// absence. An absence that Note records now has no length yet. Note forgets all
// nodes that are not members. So if a node is removed and added again, its
// earlier absence does not count.
func (a *Absences) Note(members []Member, now time.Duration, away func(Member) bool) (m Member, longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.since, func(id string, _ time.Duration) bool {
		m, listed := Find(members, id)
		return !listed || !away(m)
	})
	for _, member := range members {
		since, known := a.since[member.ID]
		switch {
		case known && now-since > longest:
			m, longest = member, now-since
		case !known && away(member):
			a.since[member.ID] = now
		}
	}
	return m, longest
}

// Has reports whether an absence of the node is recorded.
func (a *Absences) Has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.since[id]
	return known
}

// Forget removes the record of one node.
func (a *Absences) Forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, id)
}

// Clear removes all records.
func (a *Absences) Clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.since)
}
