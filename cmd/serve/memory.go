package serve

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector starts when the heap has grown by a percentage of what
// the last collection left. A high percentage saves processor time, and a node
// with little data needs little memory anyway. For a large heap, the percentage
// is lower, so that a node with many connections or much data does not take
// five times the memory that it uses.
const (
	maxGCPercent = 400
	minGCPercent = 100
	// gcRoom is how much garbage a node may have before the percentage falls
	// below maxGCPercent.
	gcRoom = 128 << 20
)

// gcPercent returns the percentage for a heap with a number of live bytes.
func gcPercent(live uint64) int {
	if live <= gcRoom*100/maxGCPercent {
		return maxGCPercent
	}
	return max(int(gcRoom*100/live), minGCPercent)
}

// tuneMemory sets the percentage after each garbage collection, unless GOGC is
// set.
func tuneMemory() {
	if os.Getenv("GOGC") != "" {
		return
	}
	current := maxGCPercent
	debug.SetGCPercent(current)
	afterGC(func() {
		// A change stops all goroutines for a moment, so small ones are left out.
		if next := gcPercent(liveBytes()); next*10 < current*9 || next*9 > current*10 ||
			next != current && (next == maxGCPercent || next == minGCPercent) {
			current = next
			debug.SetGCPercent(current)
		}
	})
}

// liveBytes returns how many bytes of the heap the last collection left.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0 // another version of Go
	}
	return sample[0].Value.Uint64()
}

// afterGC calls f after each garbage collection, on the runtime's goroutine for
// finalizers. f must not block.
func afterGC(f func()) {
	// The object is a pointer, so that the runtime does not put it into one
	// block with other small objects.
	runtime.SetFinalizer(new(*byte), func(**byte) {
		f()
		afterGC(f)
	})
}
