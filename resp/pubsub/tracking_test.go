package pubsub

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-kv/holdfast/fsm"
)

// TestTracking_Sweep checks that the number of readings stays bounded when many
// connections, one after the other, read a key that never changes and then stop
// tracking.
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
		t.Errorf("counted %d keys with %d readings, want 1 key with %d readings", keys, items, len(tr.keys["k"]))
	}
	if r := tr.keys["k"][1]; r == nil || !r.armed {
		t.Error("the reading of an open connection was removed, want it to stay")
	}
	tr.offLocked(1)
	if keys, items, _ := h.TrackedSizes(); keys != 0 || items != 0 {
		t.Errorf("%d keys with %d readings are left when no connection tracks, want none", keys, items)
	}
}

// others counts how often another goroutine sees, with the lock of the hub, that
// work has removed a part of the readings. work also takes that lock.
func others(h *Hub, work func()) int {
	_, before, _ := h.TrackedSizes()
	return seenDuring(work, func() bool {
		_, items, _ := h.TrackedSizes()
		return items < before && items > 0
	})
}

// seenDuring counts how often seen returns true on another goroutine while work
// runs.
func seenDuring(work func(), seen func() bool) int {
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
			if seen() {
				n++
			}
		}
	}()
	<-begun
	work()
	close(ended)
	return <-counted
}

// awaitOthers repeats work until work returns more than 0, that is, until another
// goroutine has got the lock while work ran. A single attempt is not enough on a
// busy machine, where the other goroutine may get no processor while work runs.
func awaitOthers(t *testing.T, what string, work func() int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		if work() > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("no other goroutine got the lock during ", what)
		}
	}
}

// TestTracking_Slices checks that other goroutines get the lock while the readings
// of all keys are dropped, and while those of closed connections are dropped.
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
	awaitOthers(t, "FLUSHALL", func() int {
		fill(1)
		return others(h, func() { h.Applied(2, []fsm.Event{{Kind: fsm.EventFlushed}}) })
	})
	if keys, items, _ := h.TrackedSizes(); keys != 0 || items != 0 {
		t.Errorf("FLUSHALL left %d keys with %d readings, want none", keys, items)
	}
	awaitOthers(t, "a sweep", func() int {
		tr.onLocked(1, &tracker{c: NewSubscriber(1, mute{})})
		fill(1)
		tr.offLocked(1)
		return others(h, func() { h.Arm(2, []string{"kept"}) })
	})
	if keys, items, _ := h.TrackedSizes(); keys != 1 || items != 1 {
		t.Errorf("the sweep left %d keys with %d readings, want 1 key with 1 reading", keys, items)
	}
}

// counting counts the messages that are pushed to it.
type counting struct {
	mute
	pushed *atomic.Int64
}

func (c counting) Push(Cause, func(proto int) *Payload) { c.pushed.Add(1) }

// TestTracking_SlicesOfClients checks that other goroutines get the lock while
// many clients get an invalidation of all keys.
func TestTracking_SlicesOfClients(t *testing.T) {
	h := newTestHub()
	const clients = 50_000
	var pushed atomic.Int64
	for id := range uint64(clients) {
		h.track.onLocked(id, &tracker{c: NewSubscriber(id, counting{pushed: &pushed})})
	}
	awaitOthers(t, "FLUSHALL", func() int {
		pushed.Store(0)
		n := seenDuring(func() { h.Applied(2, []fsm.Event{{Kind: fsm.EventFlushed}}) }, func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			n := pushed.Load()
			return 0 < n && n < clients
		})
		if pushed.Load() != clients {
			t.Errorf("%d clients got an invalidation, want %d", pushed.Load(), clients)
		}
		return n
	})
}

// TestTracking_SlicesOfKeys checks that other goroutines get the lock while a
// command with many keys is announced and settled.
func TestTracking_SlicesOfKeys(t *testing.T) {
	h := newTestHub()
	h.track.onLocked(1, &tracker{c: NewSubscriber(1, mute{})})
	var keys []string
	for i := range 100_000 {
		keys = append(keys, fmt.Sprint("key", i))
	}
	announced := 0
	awaitOthers(t, "the announcement or settling of keys", func() int {
		announced += seenDuring(func() { h.Arm(1, keys) }, func() bool {
			_, items, _ := h.TrackedSizes()
			return 0 < items && items < len(keys)
		})
		return min(announced, others(h, func() { h.Settle(1, keys, 1, false) }))
	})
	if got, _, _ := h.TrackedSizes(); got != 0 {
		t.Errorf("%d keys are remembered although they were not read, want none", got)
	}
}

// TestTracking_AllPending checks that a key beyond the limit costs little while
// all other keys have reads under way. If each further key caused a search of
// all keys, this test would not end in time.
func TestTracking_AllPending(t *testing.T) {
	h := newTestHub()
	h.track.max = 200_000
	h.track.onLocked(1, &tracker{c: NewSubscriber(1, mute{})})
	var keys []string
	for i := range 2 * h.track.max {
		keys = append(keys, fmt.Sprint("key", i))
	}
	h.Arm(1, keys)
	h.Settle(1, keys, 1, false)
	if got, readings, _ := h.TrackedSizes(); got != 0 || readings != 0 {
		t.Errorf("%d keys with %d readings are left, want none", got, readings)
	}
}

// TestTracking_FlushUnderWay checks a read of a key while all keys are being
// dropped. Only the log index of the read decides whether the reading stays,
// and not the progress of the walk.
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
			t.Errorf("read at %d, flush at 5: armed is not %v", c.at, c.armed)
		}
		h.mu.Lock()
		tr.walk(func(key string, id uint64, r *reading) { tr.refresh(r) })
		if r := tr.keys["k"][1]; (r != nil && r.armed) != c.armed {
			t.Errorf("read at %d, flush at 5, after the walk: armed is not %v", c.at, c.armed)
		}
		tr.reader("old", 1).hold(3)
		tr.flushes, tr.flushedAt = tr.flushes+1, 7
		if r := tr.reader("old", 1); r.armed {
			t.Error("a reading from before the flush is still armed")
		}
		h.mu.Unlock()
	}
}
