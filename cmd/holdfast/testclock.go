package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// testClock is a clock that lies, for tests of what clocks may do to a cluster.
// A file says how: "<wall offset> <rate>", such as "-1h 0.5", where rate is how
// fast the monotonic clock runs, 0 to stop it. No program can make the system's
// own clock lie to one process: a static binary reads it without a library that
// could be replaced, and moving it would move it for all.
type testClock struct {
	path string

	mu     sync.Mutex
	said   string        // the file, as last understood
	offset time.Duration // of the wall clock
	rate   float64
	base   time.Duration // monotonic clock shown at since
	since  time.Time
}

// testClockEvery is how often the file is looked at.
const testClockEvery = 10 * time.Millisecond

func newTestClock(path string) (*testClock, error) {
	c := &testClock{path: path, rate: 1, since: time.Now()}
	return c, c.read()
}

var _ cluster.Clock = (*testClock)(nil)

// Mono implements cluster.Clock.
func (c *testClock) Mono() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.monoLocked()
}

func (c *testClock) monoLocked() time.Duration {
	return c.base + time.Duration(float64(time.Since(c.since))*c.rate)
}

// Wall implements cluster.Clock.
func (c *testClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset)
}

// read makes the clock lie as the file says.
func (c *testClock) read() error {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("test clock: %w", err)
	}
	text := string(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == c.said {
		return nil
	}
	var wall string
	var rate float64
	if _, err := fmt.Sscan(text, &wall, &rate); err != nil {
		return fmt.Errorf("test clock: %s: %w", c.path, err)
	}
	offset, err := time.ParseDuration(wall)
	if err != nil || rate < 0 {
		return fmt.Errorf("test clock: %s says %q, not an offset and a rate", c.path, text)
	}
	c.base, c.since = c.monoLocked(), time.Now()
	c.said, c.offset, c.rate = text, offset, rate
	return nil
}

// follow reads the file until ctx ends. One that cannot be read, because it is
// just being written, leaves the clock as it is.
func (c *testClock) follow(ctx context.Context) {
	t := time.NewTicker(testClockEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_ = c.read()
		}
	}
}
