package serve

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"

	"github.com/holdfast-kv/holdfast/cluster"
	"github.com/holdfast-kv/holdfast/platform"
)

// The garbage collector starts when the heap has grown by a percentage (GOGC) of
// the live heap that the last collection left. A high percentage saves processor
// time. For a large heap, the percentage is lower: with 400 %, a node with many
// connections or much data would take five times the memory that it uses.
const (
	maxGCPercent = 400
	minGCPercent = 100
	// gcRoom is how much garbage a node may have before the percentage falls
	// below maxGCPercent.
	gcRoom = 128 << 20
)

// gcPercent returns the percentage for a heap with the given number of live
// bytes.
func gcPercent(live uint64) int {
	if live <= gcRoom*100/maxGCPercent {
		return maxGCPercent
	}
	return max(int(gcRoom*100/live), minGCPercent)
}

// defaultMaxMemory returns --maxmemory=auto in bytes: 30% of the memory that the
// process may use, or less if that memory is small. A restore, the garbage
// collector, the clients and the log need the rest. defaultMaxMemory returns 0, for
// no limit, if the system does not report the memory.
func defaultMaxMemory() int64 {
	memory, err := platform.ProcessMemory()
	if err != nil {
		return 0
	}
	return cluster.DefaultMaxMemory(memory)
}

// The soft limit of the Go runtime makes the garbage collector start earlier.
const (
	// softShare is the percentage of the process's memory that the runtime may
	// use. The rest is for the program's code and for the kernel.
	softShare = 90
	// softBase is the memory that a node needs besides its data: for the log, the
	// forwarder, and clients with little traffic.
	softBase = 16 << 20
)

// softLimit returns the soft limit in bytes. memory is the memory that the
// process may use, 0 if it is not known. maxMemory is the limit of the data
// set, 0 for none. live is the size of the objects that the last collection
// left. rest is the memory of the runtime other than the objects of the heap:
// the stacks of connections, fragmentation, and the runtime's own data. The
// soft limit includes rest.
//
// The limit is about twice maxMemory, but at most softShare percent of memory.
// It is higher if the heap contains much more than the data set may have:
// clients, a snapshot that the node reads, or data that was stored before
// maxMemory was set. With twice maxMemory, the collector would then run all the
// time.
func softLimit(memory uint64, maxMemory int64, live, rest uint64) int64 {
	hard := int64(math.MaxInt64)
	if memory > 0 {
		hard = int64(memory / 100 * softShare)
	}
	if maxMemory <= 0 || maxMemory > hard/2 {
		return hard
	}
	return min(hard, max(2*maxMemory, int64(live/4*5))+max(softBase, int64(rest)))
}

// memoryTuner adapts the garbage collector to the heap and to maxmemory.
type memoryTuner struct {
	memory uint64 // bytes that the process may use, 0 if not known
	// maxMemory returns the limit of the data set in bytes, 0 for none.
	maxMemory atomic.Pointer[func() int64]

	percent int   // GOGC as last set, 0 if the environment sets it
	soft    int64 // soft limit as last set, 0 if the environment sets it
}

// tuneMemory sets the percentage and the soft limit, and adapts them after each
// garbage collection. If the environment sets GOGC or GOMEMLIMIT, tuneMemory does
// not change that value. maxMemory is the limit of the data set until the method
// use is called.
func tuneMemory(maxMemory int64) *memoryTuner {
	t := &memoryTuner{}
	if n, err := platform.ProcessMemory(); err == nil {
		t.memory = n
	}
	t.use(func() int64 { return maxMemory })
	if os.Getenv("GOGC") == "" {
		t.percent = maxGCPercent
		debug.SetGCPercent(t.percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		t.soft = softLimit(t.memory, maxMemory, 0, 0)
		debug.SetMemoryLimit(t.soft)
	}
	afterGC(t.adapt)
	return t
}

// use sets the function that returns the limit of the data set.
func (t *memoryTuner) use(maxMemory func() int64) { t.maxMemory.Store(&maxMemory) }

// adapt sets the percentage and the soft limit after a collection. Each change
// stops all goroutines for a moment. So adapt does not make small changes, unless
// the percentage reaches maxGCPercent or minGCPercent.
func (t *memoryTuner) adapt() {
	live := liveBytes()
	if next := gcPercent(live); t.percent > 0 && (differ(int64(next), int64(t.percent)) ||
		next != t.percent && (next == maxGCPercent || next == minGCPercent)) {
		t.percent = next
		debug.SetGCPercent(next)
	}
	if next := softLimit(t.memory, (*t.maxMemory.Load())(), live, restBytes()); t.soft > 0 && differ(next, t.soft) {
		t.soft = next
		debug.SetMemoryLimit(next)
	}
}

// differ reports whether two numbers differ by more than a tenth.
func differ(a, b int64) bool { return min(a, b) < max(a, b)/10*9 }

// liveBytes returns how many bytes of the heap the last collection left.
func liveBytes() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return 0 // another version of Go
	}
	return sample[0].Value.Uint64()
}

// restBytes returns how many bytes the runtime holds besides the objects and the
// free part of the heap.
func restBytes() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
	}
	metrics.Read(samples)
	rest := uint64(0)
	for i, s := range samples {
		switch {
		case s.Value.Kind() != metrics.KindUint64:
			return 0 // another version of Go
		case i == 0:
			rest = s.Value.Uint64()
		default:
			rest -= min(rest, s.Value.Uint64())
		}
	}
	return rest
}

// afterGC calls f after each garbage collection, on the runtime's goroutine for
// finalizers. f must not block.
func afterGC(f func()) {
	// The object contains a pointer. The runtime puts small objects without
	// pointers into one block with others, and their finalizers may then never run.
	runtime.SetFinalizer(new(*byte), func(**byte) {
		f()
		afterGC(f)
	})
}
