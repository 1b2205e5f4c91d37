// Package yield lets a goroutine that computes for a long time give way to
// goroutines that wait for the network.
//
// runtime.Gosched is not sufficient for that. If no other goroutine is ready,
// the scheduler returns to the caller without polling the network. On a single
// processor, only the runtime's monitor then polls the network, every 10 ms. So
// messages wait for up to 10 ms while a goroutine computes.
package yield

import "time"

// Every is how long a goroutine should compute between two calls of Now. A call
// takes a few microseconds, so it costs a few percent of the time.
const Every = 100 * time.Microsecond

// maxPollers is the maximum number of goroutines that yield at the same time.
// It is also the maximum number of file descriptors that this package opens. A
// further goroutine that calls Now waits for one of those goroutines, and
// occupies no processor meanwhile.
const maxPollers = 16

// pollers contains the pollers that no goroutine uses.
var pollers = func() chan *poller {
	c := make(chan *poller, maxPollers)
	for range maxPollers {
		c <- &poller{}
	}
	return c
}()

// Now lets other goroutines run, including those whose messages have arrived
// since the scheduler last polled the network. It is safe for concurrent use.
// The caller should hold no lock.
func Now() {
	p := <-pollers
	p.poll()
	pollers <- p
}

// Pace yields in a goroutine that calls Check often while it computes. The zero
// value is ready to use.
type Pace struct {
	last time.Time // time of the last yield, or of the first call of Check
}

// Check calls Now if at least Every has passed since it last called Now, or
// since the first call of Check.
func (p *Pace) Check() {
	now := time.Now()
	switch {
	case p.last.IsZero():
		p.last = now
	case now.Sub(p.last) >= Every:
		Now()
		p.last = time.Now()
	}
}
