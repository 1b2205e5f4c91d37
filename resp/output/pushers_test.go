package output

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestPushers_Bounded checks that only a few outboxes send at the same time,
// and that all messages are sent eventually.
func TestPushers_Bounded(t *testing.T) {
	p := NewPushers()
	var sending, most, sent atomic.Int64
	var all sync.WaitGroup
	for range 200 {
		all.Go(func() {
			for range 20 {
				p.send(func() {
					if n := sending.Add(1); n > most.Load() {
						most.Store(n)
					}
					runtime.Gosched()
					sent.Add(1)
					sending.Add(-1)
				})
			}
		})
	}
	all.Wait()
	if sent.Load() != 200*20 {
		t.Errorf("%d messages were sent, want %d", sent.Load(), 200*20)
	}
	if limit := int64(2 * runtime.GOMAXPROCS(0)); most.Load() > limit {
		t.Errorf("%d outboxes sent at the same time, want at most %d", most.Load(), limit)
	}
}
