// Package slow records the slow commands of a node in two forms: the slow log,
// and the latency events.
package slow

import (
	"sync"
	"sync/atomic"
	"time"
)

// Log keeps the slow commands of a node's clients. The time of a write includes
// the time until a majority has stored the write on disk. A Log is safe for
// concurrent use.
type Log struct {
	// Threshold is in microseconds. If it is negative, nothing is logged.
	Threshold atomic.Int64

	mu      sync.Mutex
	max     int
	next    int64 // id of the next entry
	entries []Entry
}

// Entry is a slow command.
type Entry struct {
	ID         int64 // set by Add
	At         time.Time
	Took       time.Duration
	Args       []string
	Addr, Name string // address and name of the client
}

// Wants reports whether a command that took d belongs in the log.
func (l *Log) Wants(d time.Duration) bool {
	threshold := l.Threshold.Load()
	return threshold >= 0 && d.Microseconds() >= threshold
}

// Add adds an entry and gives it the next id.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.trimLocked()
}

func (l *Log) trimLocked() {
	if n := len(l.entries) - l.max; n > 0 {
		l.entries = append(l.entries[:0], l.entries[n:]...)
	}
}

// Limit returns the maximum number of entries.
func (l *Log) Limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.max
}

// SetLimit sets the maximum number of entries.
func (l *Log) SetLimit(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.max = n
	l.trimLocked()
}

// Newest returns up to count entries, or all of them if count is negative, the
// newest first.
func (l *Log) Newest(count int64) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.entries)
	if count >= 0 {
		n = int(min(count, int64(n)))
	}
	out := make([]Entry, n)
	for i := range out {
		out[i] = l.entries[len(l.entries)-1-i]
	}
	return out
}

// Len returns the number of entries.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset removes all entries.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}
