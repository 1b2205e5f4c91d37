package sim

import (
	"sync"
	"time"
)

// clock is a node's clock. Its two hands run with the bubble's time until a
// fault makes them run otherwise. They are a machine's, not a process's: a crash
// does not set them right.
type clock struct {
	mu   sync.Mutex
	at   time.Time     // when the hands were last set
	mono time.Duration // then
	wall time.Time
	rate float64 // of the monotonic hand; the wall hand runs at the same rate
	seen struct{ jumps, drifts int64 }
}

// newClock returns a clock whose monotonic hand counts from its own moment: no
// node may take another's for its own.
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

// jump moves the wall clock.
func (c *clock) jump(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	c.wall = c.wall.Add(by)
	c.seen.jumps++
}

// drift makes both hands run at a rate: 0 stops them.
func (c *clock) drift(rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked()
	c.rate = rate
	c.seen.drifts++
}
