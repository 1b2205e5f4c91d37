package fsm_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestMachine_Bytes compares the counted size of the data set with the memory
// that it takes on the heap. The two must not differ much, because --maxmemory
// limits the counted size.
func TestMachine_Bytes(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	long := strings.Repeat("v", 1000)
	for _, c := range []struct {
		line string
		n    int
	}{
		{"SET lock:%d 12345678-1234-1234-1234-123456789012 PX 600000", 40_000},
		{"SET key:%d value:%d", 40_000},
		{"SET key:%d " + long, 10_000},
		{"SET key:%d " + strings.Repeat(long, 100), 200},
		{"HSET hash:%d 12345678-1234-1234-1234-123456789012:17 1", 20_000},
		{"HSET h field:%d value:%d", 40_000},
		{"RPUSH l element:%d", 40_000},
		{"RPUSH list:%d element:%d", 20_000},
		{"SADD s member:%d", 40_000},
		{"SADD set:%d member", 20_000},
		{"ZADD z %d member:%d", 40_000},
		{"ZADD zset:%d 1 member", 20_000},
		{"XADD x * field value:%d", 40_000},
	} {
		t.Run(strings.ReplaceAll(c.line[:min(len(c.line), 24)], " ", "_"), func(t *testing.T) {
			f := newFeed(t)
			batch, i := max(min(100, 100_000/len(c.line)), 1), 0
			send := func() {
				f.group.Reset(2, 1)
				for range batch {
					var args []any
					for range strings.Count(c.line, "%d") {
						args = append(args, i)
					}
					f.add(strings.Fields(fmt.Sprintf(c.line, args...))...)
					i++
				}
				f.send()
			}
			send() // allocates the buffers before the heap is measured
			before, uncounted := heap(), f.m.Bytes()
			for i < c.n {
				send()
			}
			took, counted := heap()-before, f.m.Bytes()-uncounted
			share := float64(counted) / float64(took)
			t.Logf("each command takes %d bytes of heap and counts %d bytes: ratio %.2f",
				took/int64(c.n), counted/int64(c.n), share)
			if share < 0.7 || share > 1.3 {
				t.Errorf("counted %d bytes, but the heap grew by %d bytes: want between 0.7 and 1.3 times the growth",
					counted, took)
			}
		})
	}
}
