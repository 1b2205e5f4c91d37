package cluster

import (
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// yielder lets goroutines run that wait for the network. runtime.Gosched does
// not: if no other goroutine is ready, the scheduler returns to the caller
// without polling the network. On a single processor only the runtime's monitor
// then polls it, every 10 ms, so a goroutine that computes for longer delays
// every message by as much.
//
// So the goroutine waits for a timer that is a file descriptor, and the
// scheduler polls the network in order to wait for it. time.Sleep would have
// the same effect, but takes at least a millisecond.
type yielder struct {
	fd   int
	file *os.File // file for fd; nil if no descriptor was available
	part [8]byte
}

// yieldFor is how long a yielder waits if no other goroutine is ready.
const yieldFor = 10 * time.Microsecond

func newYielder() *yielder {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return &yielder{}
	}
	return &yielder{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}
}

func (y *yielder) yield() {
	if y.file == nil {
		runtime.Gosched()
		return
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(yieldFor))}
	if err := unix.TimerfdSettime(y.fd, 0, &spec, nil); err != nil {
		runtime.Gosched()
		return
	}
	_, _ = y.file.Read(y.part[:]) // the result does not matter
}

func (y *yielder) close() {
	if y.file != nil {
		_ = y.file.Close()
	}
}

// yielders keeps yielders for reuse. It is safe for concurrent use.
type yielders struct {
	mu   sync.Mutex
	shut bool
	free []*yielder
}

// maxYielders is the largest number of unused yielders that are kept, each with
// a file descriptor.
const maxYielders = 8

func (s *yielders) get() *yielder {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		y := s.free[n-1]
		s.free = s.free[:n-1]
		return y
	}
	return newYielder()
}

func (s *yielders) put(y *yielder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shut || len(s.free) >= maxYielders {
		y.close()
		return
	}
	s.free = append(s.free, y)
}

func (s *yielders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, y := range s.free {
		y.close()
	}
	s.free, s.shut = nil, true
}
