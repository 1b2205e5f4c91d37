package serve

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/cluster"
)

// testClock is a clock with an offset and a rate, for tests of clock faults. A file
// contains "<wall offset> <rate>", such as "-1h 0.5". The rate is that of the
// monotonic clock; 0 stops it. testClock is part of the program because a test
// cannot change the system clock for one process: a static binary reads the clock
// without a shared library that a test could replace.
type testClock struct {
	path string

	mu      sync.Mutex
	content string        // content of the file when it was last parsed
	offset  time.Duration // offset of the wall clock
	rate    float64
	base    time.Duration // reading of the monotonic clock when it was set
	since   time.Time     // when base was set
}

// testClockEvery is the interval at which the file is read.
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

// read sets offset and rate from the file.
func (c *testClock) read() error {
	b, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("test clock: %w", err)
	}
	text := string(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if text == c.content {
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
	c.content, c.offset, c.rate = text, offset, rate
	return nil
}

// follow reads the file until ctx ends. If the file cannot be parsed, for example
// because it is being written, the clock keeps its offset and its rate.
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
