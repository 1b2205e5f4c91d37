package fsm

import (
	"math"
	"testing"
)

func TestDeadlineIn(t *testing.T) {
	const longest = math.MaxInt64 / 1_000_000
	for _, c := range []struct{ now, ttl, want int64 }{{0, 1, 1e6}, {5, 1000, 1e9 + 5}, {0, math.MaxInt64, Never}, {1e18, 9e12, Never}, {0, longest, longest * 1e6}, {0, longest + 1, Never}} {
		if got := DeadlineIn(c.now, c.ttl); got != c.want {
			t.Errorf("DeadlineIn(%d, %d) = %d, want %d", c.now, c.ttl, got, c.want)
		}
	}
}
