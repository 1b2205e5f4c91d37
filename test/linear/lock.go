package linear

import (
	"fmt"
	"sort"
	"time"
)

// hold is one grant of a lock to one client, in the checker's own monotonic
// time.
type hold struct {
	lock, token string
	// called and granted are when the acquiring command was sent and answered.
	called, granted time.Duration
	// released is when the owner sent its release, 0 if it never did.
	released time.Duration
	ttl      time.Duration
	// renewed is when the last renewal that was granted had been sent, 0 for none.
	renewed time.Duration
}

// end is until when the owner could rely on the lock: a TTL counts from the
// moment the node built the entry, which is after the command was sent.
func (h hold) end() time.Duration {
	end := max(h.called, h.renewed) + h.ttl
	if h.released > 0 {
		end = min(end, h.released)
	}
	return end
}

// overlaps returns the pairs of holds of one lock that were both certain at the
// same moment, as sentences.
func overlaps(holds []hold) []string {
	sort.Slice(holds, func(i, j int) bool { return holds[i].granted < holds[j].granted })
	var bad []string
	last := make(map[string]hold) // by lock: the hold that lasts longest so far
	for _, h := range holds {
		if h.end() <= h.granted {
			continue // over before the owner heard of it
		}
		if p, ok := last[h.lock]; ok && h.granted < p.end() {
			bad = append(bad, fmt.Sprintf("%s: %s was sure of it from %v to %v, %s from %v to %v", h.lock, p.token, p.granted, p.end(), h.token, h.granted, h.end()))
		}
		if p, ok := last[h.lock]; !ok || h.end() > p.end() {
			last[h.lock] = h
		}
	}
	return bad
}
