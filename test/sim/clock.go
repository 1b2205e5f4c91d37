package sim

import (
	"sync"
	"time"
)

// clock is a node's clock. Its monotonic and its wall reading follow the time
// of the bubble until a fault changes them. The clock belongs to a machine and
// not to a process, so a crash does not correct it.
type clock struct {
	mu   sync.Mutex
	at   time.Time     // when the readings were last updated
	mono time.Duration // reading of the monotonic clock at that time
	wall time.Time
	rate float64 // rate of the monotonic and the wall clock; 1 is the bubble's rate
	seen struct{ jumps, drifts int64 }
}

// newClock returns a clock whose monotonic reading starts at mono. Every node
// gets a different start, so that a monotonic time of one node is never valid
// on another.
func newClock(mono time.Duration) *clock {
	return &clock{at: time.Now(), mono: mono, wall: time.Now(), rate: 1}
}

func (c *clock) setLocked() {
	now := time.Now()
	passed := time.Duration(float64(now.Sub(c.at)) * c.rate)
	c.at, c.mono, c.wall = now, c.mono+passed, c.wall.Add(passed)
}

// Mono implements cluster.Clock.
func (c *clock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	return c.mono
}

// Wall implements cluster.Clock.
func (c *clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	return c.wall
}

// jump moves the wall clock by the given duration.
func (c *clock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	c.wall = c.wall.Add(by)
	c.seen.jumps++
}

// drift makes both readings advance at the given rate; 0 stops them.
func (c *clock) drift(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	c.rate = rate
	c.seen.drifts++
}
