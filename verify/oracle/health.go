package oracle

import (
	"sort"
	"time"
)

// Span is a stretch of the history.
type Span struct {
	From time.Duration `json:"from_ns"`
	To   time.Duration `json:"to_ns"`
}

// Health says when the cluster could be expected to count time and to expire
// keys. A time to live counts only while there is a leader, and each change of
// leader forgets a little, so what must be gone by when depends on it. The zero
// value and nil say nothing at all: no key has ever to be gone.
type Health struct {
	// Slack is what a healthy cluster may be late by, the measuring included.
	Slack time.Duration
	// Ill are the stretches that do not count: from before each fault or change
	// of leader (what the old leader had not logged is forgotten) until the
	// cluster is whole again. They may overlap.
	Ill []Span
	// Known says that Ill is complete: without it nothing has ever to be gone.
	Known bool
	// Early is by how much a cluster may count a time to live too short: 0 for
	// Holdfast, whose clock has no steps; Redis counts in milliseconds that it
	// looks up now and then.
	Early time.Duration

	merged []Span
}

// driftPPM is by how much the cluster's clock may run slow.
const driftPPM = 1000

// Gone returns when a key whose time to live was given by a command that
// returned at ret must be gone: when so much healthy time has passed.
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

// Add adds an ill stretch.
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

// Well reports whether nothing is known to have been wrong from one time to
// another.
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
