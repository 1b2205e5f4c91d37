// Package pulse provides a ticker that ticks less often while nothing happens, so
// that an idle node uses little processor time.
package pulse

import (
	"sync/atomic"
	"time"
)

// restAfter is the time after which a Ticker slows down if Touch is not called
// and its owner is not busy.
const restAfter = time.Second

// A Ticker serves one goroutine, its owner, which does its work at intervals.
// The owner receives from C and from Woken, and calls Next after each of them.
// Any goroutine may call Touch and Resting.
type Ticker struct {
	fast, slow time.Duration
	timer      *time.Timer
	woken      chan struct{}
	quiet      time.Duration // time for which nothing has happened; only the owner uses it

	touched atomic.Bool // Touch was called since the last call of Next
	resting atomic.Bool // the next tick comes after the interval slow
}

// New returns a Ticker that ticks at the interval fast. Once nothing has
// happened for a second, the Ticker rests: it ticks at the interval slow.
func New(fast, slow time.Duration) *Ticker {
	return &Ticker{fast: fast, slow: max(fast, slow), timer: time.NewTimer(fast), woken: make(chan struct{}, 1)}
}

// C returns the channel of the ticks.
func (t *Ticker) C() <-chan time.Time { return t.timer.C }

// Woken returns the channel that receives a token when Touch has ended a rest.
func (t *Ticker) Woken() <-chan struct{} { return t.woken }

// Touch tells the Ticker that something has happened, and ends a rest. It is
// cheap enough to be called for each command.
func (t *Ticker) Touch() {
	if t.touched.Load() {
		return
	}
	t.touched.Store(true)
	if t.resting.CompareAndSwap(true, false) {
		select {
		case t.woken <- struct{}{}:
		default: // a token of an earlier rest is still there, and wakes the owner as well
		}
	}
}

// Resting reports whether the Ticker ticks at the interval slow. If so, as much
// time as that interval may have passed since the last tick.
func (t *Ticker) Resting() bool { return t.resting.Load() }

// Next schedules the next tick. busy says that the owner has work that must be
// continued soon.
func (t *Ticker) Next(busy bool) {
	t.resting.Store(false)
	select {
	case <-t.woken:
	default:
	}
	if t.touched.Swap(false) || busy {
		t.quiet = 0
	}
	if t.quiet < restAfter {
		t.quiet += t.fast
		t.timer.Reset(t.fast)
		return
	}
	t.timer.Reset(t.slow)
	t.resting.Store(true)
	// Touch does not wake the owner if it was called before resting was set.
	if t.touched.Load() && t.resting.CompareAndSwap(true, false) {
		t.quiet = 0
		t.timer.Reset(t.fast)
	}
}

// Stop ends the ticks.
func (t *Ticker) Stop() { t.timer.Stop() }
