package cluster

import (
	"maps"
	"sync"
	"time"
)

// absences holds since when members have been away, as the leader has seen it,
// in monotonic time. Its methods are safe for concurrent use.
type absences struct {
	mu    sync.Mutex
	since map[string]time.Duration // by id; guarded by mu
}

func newAbsences() *absences { return &absences{since: make(map[string]time.Duration)} }

// note records which members are away at the time now. It returns the member
// that has been away for longest, and for how long. It forgets all nodes that
// are not members: a node that is removed and added again starts anew.
func (a *absences) note(members []Member, now time.Duration, away func(Member) bool) (m Member, longest time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.since, func(id string, _ time.Duration) bool {
		m, listed := find(members, id)
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

// has reports whether an absence of the node is recorded.
func (a *absences) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.since[id]
	return known
}

// forget removes the record of one node.
func (a *absences) forget(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.since, id)
}

// clear removes all records.
func (a *absences) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.since)
}
