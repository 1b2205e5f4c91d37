package serve

import (
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {32 << 20, 400}, {64 << 20, 200}, {128 << 20, 100}, {8 << 30, 100}} {
		if got := gcPercent(c.live); got != c.want {
			t.Errorf("%d live bytes: %d %%, want %d", c.live, got, c.want)
		}
	}
}

func TestSoftLimit(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		memory    uint64
		maxMemory int64
		live      uint64
		rest      uint64
		want      int64
	}{
		{0, 0, 0, 0, math.MaxInt64},
		{1000 * mb, 0, 0, 0, 900 * mb},
		{1000 * mb, 128 * mb, 0, 0, 272 * mb},
		{1000 * mb, 128 * mb, 160 * mb, 0, 272 * mb},
		{1000 * mb, 128 * mb, 400 * mb, 0, 516 * mb}, // the node had the data before the limit was set
		{1000 * mb, 128 * mb, 900 * mb, 0, 900 * mb},
		{1000 * mb, 500 * mb, 0, 0, 900 * mb}, // twice maxMemory is more than the runtime may use
		{0, 128 * mb, 0, 0, 272 * mb},
		{1000 * mb, 128 * mb, 0, 60 * mb, 316 * mb}, // many connections
	} {
		if got := softLimit(c.memory, c.maxMemory, c.live, c.rest); got != c.want {
			t.Errorf("%+v: soft limit is %d", c, got)
		}
	}
}

// TestAfterGC checks that the function is called after every collection, not
// only after the first.
func TestAfterGC(t *testing.T) {
	var calls atomic.Int64
	var live atomic.Uint64
	afterGC(func() {
		live.Store(liveBytes())
		calls.Add(1)
	})
	deadline := time.After(10 * time.Second)
	for want := int64(1); want <= 3; want++ {
		runtime.GC()
		for calls.Load() < want {
			select {
			case <-deadline:
				t.Fatalf("%d calls after %d collections", calls.Load(), want)
			default:
				runtime.Gosched()
			}
		}
	}
	if live.Load() == 0 {
		t.Error("the runtime reports 0 live bytes of the heap")
	}
}
