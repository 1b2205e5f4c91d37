package pubsub

import (
	"fmt"
	"testing"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestTracking_Sweep checks that connections that open, read a key that never
// changes, and close do not make the memory grow.
func TestTracking_Sweep(t *testing.T) {
	h := newTestHub()
	tr := &h.track
	tr.onLocked(1, &tracker{})
	tr.reader("k", 1).hold(1)
	for id := uint64(2); id < 4*sweepReadings; id++ {
		tr.onLocked(id, &tracker{})
		h.mu.Lock()
		tr.reader("k", id).hold(1)
		tr.sweep()
		tr.offLocked(id)
		h.mu.Unlock()
	}
	keys, items, _ := h.TrackedSizes()
	if keys != 1 || items > sweepReadings+2 || items != len(tr.keys["k"]) {
		t.Errorf("%d keys with %d readings, in truth %d, of one connection", keys, items, len(tr.keys["k"]))
	}
	if r := tr.keys["k"][1]; r == nil || !r.armed {
		t.Error("the connection that is still there was forgotten")
	}
	tr.offLocked(1)
	if keys, items, _ := h.TrackedSizes(); keys != 0 || items != 0 {
		t.Errorf("%d keys with %d readings when nobody tracks", keys, items)
	}
}

// others counts how often another goroutine gets access to the table of
// readings while work runs and holds the lock of the hub. Accesses before and
// after work do not count.
func others(h *Hub, work func()) (seen int) {
	_, before, _ := h.TrackedSizes()
	ended, counted := make(chan struct{}), make(chan int)
	begun := make(chan struct{})
	go func() {
		close(begun)
		n := 0
		for {
			select {
			case <-ended:
				counted <- n
				return
			default:
			}
			if _, items, _ := h.TrackedSizes(); items < before && items > 0 {
				n++
			}
		}
	}()
	<-begun
	work()
	close(ended)
	return <-counted
}

// TestTracking_Slices checks that other goroutines get the lock while all read
// keys are dropped, and while the readings of closed connections are dropped.
func TestTracking_Slices(t *testing.T) {
	h := newTestHub()
	tr := &h.track
	fill := func(id uint64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range 100_000 {
			tr.reader(fmt.Sprint("key", i), id).hold(1)
		}
	}
	for id := range uint64(3) {
		tr.onLocked(id, &tracker{c: NewSubscriber(1, mute{})})
	}
	fill(1)
	if n := others(h, func() { h.Applied(2, []fsm.Event{{Kind: fsm.EventFlushed}}) }); n == 0 {
		t.Error("nobody else got the lock during FLUSHALL")
	}
	if keys, items, _ := h.TrackedSizes(); keys != 0 || items != 0 {
		t.Errorf("FLUSHALL left %d keys with %d readings", keys, items)
	}
	fill(1)
	tr.offLocked(1)
	if n := others(h, func() { h.Arm(2, []string{"kept"}) }); n == 0 {
		t.Error("nobody else got the lock during a sweep")
	}
	if keys, items, _ := h.TrackedSizes(); keys != 1 || items != 1 {
		t.Errorf("the sweep left %d keys with %d readings", keys, items)
	}
}

// TestTracking_FlushUnderWay checks a read of a key while all keys are being
// dropped. Whether the reading is kept depends on the log index of the read, and
// not on whether the walk has reached the key.
func TestTracking_FlushUnderWay(t *testing.T) {
	for _, c := range []struct {
		at    uint64
		armed bool
	}{{4, false}, {5, true}, {6, true}} {
		h := newTestHub()
		tr := &h.track
		tr.onLocked(1, &tracker{c: NewSubscriber(1, mute{})})
		h.Arm(1, []string{"k"})
		h.Settle(1, []string{"k"}, 2, true)
		h.Arm(1, []string{"k"})
		tr.flushes, tr.flushedAt = tr.flushes+1, 5 // the walk has not reached the key
		h.Settle(1, []string{"k"}, c.at, true)
		if r := tr.keys["k"][1]; (r != nil && r.armed) != c.armed {
			t.Errorf("read at %d, all forgotten at 5: armed is not %v", c.at, c.armed)
		}
		h.mu.Lock()
		tr.walk(func(key string, id uint64, r *reading) { tr.refresh(r) })
		if r := tr.keys["k"][1]; (r != nil && r.armed) != c.armed {
			t.Errorf("read at %d, all forgotten at 5, behind the walk: armed is not %v", c.at, c.armed)
		}
		tr.reader("old", 1).hold(3)
		tr.flushes, tr.flushedAt = tr.flushes+1, 7
		if r := tr.reader("old", 1); r.armed {
			t.Error("a key that was forgotten is still remembered")
		}
		h.mu.Unlock()
	}
}
