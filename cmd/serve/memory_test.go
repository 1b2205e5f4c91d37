package serve

import (
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
		t.Error("the runtime does not tell how much of the heap is live")
	}
}
