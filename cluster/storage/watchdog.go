package storage

import (
	"sync"
	"time"
)

// watchdog detects a write that does not return. Its goroutine is started by
// newWatchdog and stopped by stop.
//
// Returning a timeout error to the writer would not help: the write is still in
// progress, and its outcome is unknown. So the process must end.
type watchdog struct {
	interval time.Duration
	stalled  func(error) // called on the watchdog's goroutine
	quit     chan struct{}
	done     chan struct{}

	mu      sync.Mutex
	running map[*watched]struct{} // guarded by mu
}

// watched is one write in progress.
type watched struct {
	op    string
	limit time.Duration
	began time.Time
	age   time.Duration // how long the write has run, as tick counts it; guarded by watchdog.mu
}

func newWatchdog(stallAfter time.Duration, stalled func(error)) *watchdog {
	w := &watchdog{
		interval: min(max(stallAfter/20, 5*time.Millisecond), 250*time.Millisecond),
		stalled:  stalled,
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
		running:  make(map[*watched]struct{}),
	}
	go w.run()
	return w
}

// begin starts watching a write with the given time limit.
func (w *watchdog) begin(op string, limit time.Duration) *watched {
	x := &watched{op: op, limit: limit, began: time.Now()}
	w.mu.Lock()
	w.running[x] = struct{}{}
	w.mu.Unlock()
	return x
}

// end stops watching x and returns how long the write took.
func (w *watchdog) end(x *watched) time.Duration {
	w.mu.Lock()
	delete(w.running, x)
	w.mu.Unlock()
	return time.Since(x.began)
}

func (w *watchdog) run() {
	defer close(w.done)
	t := time.NewTicker(w.interval)
	defer t.Stop()
	last := time.Now()
	for {
		select {
		case <-w.quit:
			return
		case <-t.C:
			now := time.Now()
			if err := w.tick(last, now); err != nil {
				w.stalled(err)
			}
			last = now
		}
	}
}

// tick ages the writes in progress and returns an error if one has exceeded its
// limit. A write ages by at most two intervals per tick, so that a process that
// was stopped (SIGSTOP, a paused machine) does not report a stalled disk.
func (w *watchdog) tick(last, now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var err error
	for x := range w.running {
		since := last
		if x.began.After(last) {
			since = x.began
		}
		x.age += min(now.Sub(since), 2*w.interval)
		if x.age >= x.limit {
			err = &StallError{Op: x.op, After: x.age}
		}
	}
	return err
}

// stop stops the goroutine and waits for it.
func (w *watchdog) stop() {
	close(w.quit)
	<-w.done
}
