package testutil

import "time"

// SinceNow returns a monotonic clock that begins at 0. In a synctest bubble, it
// is the clock of the bubble.
func SinceNow() func() time.Duration {
	begun := time.Now()
	return func() time.Duration { return time.Since(begun) }
}
