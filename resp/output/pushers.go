package output

import (
	"runtime"

	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// Pushers bounds the number of outboxes that send at the same time. A message
// to 4000 subscribers wakes 4000 goroutines. If all of them were ready to send,
// the goroutine of another client would wait behind them for a processor,
// several times in one command. With Pushers, most of the outboxes wait for a
// slot and need no processor meanwhile.
//
// An outbox does not hold a slot while it waits for its client to read.
type Pushers struct {
	slots chan *yield.Pace // the free slots; each is the yield.Pace of the outboxes that use it
}

// NewPushers returns the Pushers of a node.
func NewPushers() *Pushers {
	n := 2 * runtime.GOMAXPROCS(0)
	p := &Pushers{make(chan *yield.Pace, n)}
	for range n {
		p.slots <- &yield.Pace{}
	}
	return p
}

// send waits for a free slot and then calls try. try must not wait.
func (p *Pushers) send(try func()) {
	pace := <-p.slots
	try()
	pace.Check()
	p.slots <- pace
}
