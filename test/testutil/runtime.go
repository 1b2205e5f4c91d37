package testutil

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Heap returns the size of the live heap, after a garbage collection.
func Heap() uint64 {
	runtime.GC()
	runtime.GC() // twice, because the first collection keeps the contents of each sync.Pool
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Wakes calls work. It returns how often another goroutine, which wakes every
// 50 µs, has run during this call.
func Wakes(work func()) (ran int64) {
	ticker := time.NewTicker(50 * time.Microsecond)
	defer ticker.Stop()
	var n atomic.Int64
	begun, ended, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		close(begun)
		for {
			select {
			case <-ticker.C:
				n.Add(1)
			case <-ended:
				return
			}
		}
	}()
	<-begun
	before := n.Load()
	work()
	ran = n.Load() - before
	close(ended)
	<-stopped
	return ran
}
