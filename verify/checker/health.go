package checker

import (
	"sort"
	"time"
)

// Span is an interval of the history.
type Span struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// Health says when the cluster can be expected to count time and to expire
// keys. A time to live counts down only while there is a leader, and each
// change of leader loses a little of the counted time. The time at which a key
// must be gone therefore depends on the health of the cluster. With the zero
// value and with nil, no key ever has to be gone.
type Health struct {
	// Slack is how late a healthy cluster may expire a key. It includes the
	// measurement error of the times in the history.
	Slack time.Duration
	// Ill contains the intervals whose time does not count, because the cluster
	// was not healthy. Each interval begins before a fault or a change of
	// leader, because the cluster loses the time that the old leader had not
	// logged. The interval ends when the cluster is whole again. Intervals may
	// overlap.
	Ill []Span
	// Known says that Ill is complete. If Known is false, no key ever has to be
	// gone.
	Known bool
	// Early is how much shorter than requested a time to live may be. It is 0
	// for Holdfast, whose clock counts nanoseconds. It is not 0 for Redis, which
	// counts milliseconds and reads its clock once for many commands.
	Early time.Duration

	merged []Span
}

// driftPPM is how much slower than real time the cluster's clock may run, in
// parts per million.
const driftPPM = 1000

// Gone returns the time at which a key must be gone if the command that set its
// time to live returned at ret. From ret until that time, the cluster was
// healthy for the time to live plus drift and Slack.
func (h *Health) Gone(ret, ttl time.Duration) time.Duration {
	if h == nil || !h.Known {
		return Forever
	}
	if h.merged == nil {
		h.merge()
	}
	at, left := ret, ttl+ttl*driftPPM/1e6+h.Slack
	for _, s := range h.merged {
		if s.To <= at {
			continue
		}
		if s.From > at {
			if s.From-at >= left {
				return at + left
			}
			left -= s.From - at
		}
		at = s.To
		if at == Forever {
			return Forever
		}
	}
	return at + left
}

func (h *Health) early() time.Duration {
	if h == nil {
		return 0
	}
	return h.Early
}

// Add adds an interval in which the cluster was unhealthy.
func (h *Health) Add(from, to time.Duration) {
	h.Ill = append(h.Ill, Span{from, to})
	h.merged = nil
}

func (h *Health) merge() {
	sorted := append([]Span{}, h.Ill...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].From < sorted[j].From })
	h.merged = []Span{}
	for _, s := range sorted {
		if n := len(h.merged); n > 0 && s.From <= h.merged[n-1].To {
			h.merged[n-1].To = max(h.merged[n-1].To, s.To)
			continue
		}
		h.merged = append(h.merged, s)
	}
}

// Well reports whether the cluster is known to have been healthy between two
// times.
func (h *Health) Well(from, to time.Duration) bool {
	if h == nil || !h.Known {
		return false
	}
	if h.merged == nil {
		h.merge()
	}
	for _, s := range h.merged {
		if s.From <= to && s.To >= from {
			return false
		}
	}
	return true
}
