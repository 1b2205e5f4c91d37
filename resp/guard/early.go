package guard

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/holdfast-kv/holdfast/cluster/yield"
)

// earlyConns counts the connections that need the processor for their first
// command: accepted connections that have not tried to read yet, and connections
// whose first command is being read, parsed or executed. A connection that waits
// for input, or in a blocking command, is not counted.
//
// While there are too many such connections, Accept waits. It also yields before
// each connection: see wait. The yields keep a flood of connections from delaying
// other clients. A yield lets all goroutines run that can run, and the limit bounds
// how many of these goroutines belong to new connections. Connections that Accept
// has not taken wait in the kernel. earlyConns is safe for concurrent use.
type earlyConns struct {
	most  int64
	pause time.Duration // maximum time that one Accept waits
	n     atomic.Int64
	eased chan struct{} // receives a token when n falls below most; capacity 1
}

const (
	earlyPerProcessor = 4
	// earlyPause bounds the wait, because first commands may take long without
	// needing the processor, for example while the cluster has no leader.
	earlyPause = 2 * time.Millisecond
)

func newEarlyConns() earlyConns {
	return earlyConns{
		most:  int64(earlyPerProcessor * runtime.GOMAXPROCS(0)),
		pause: earlyPause,
		eased: make(chan struct{}, 1),
	}
}

// wait waits until e.n is less than e.most, until the time e.pause is over, or
// until the channel closing is closed. Then it yields. Without the yield, Accept
// and the goroutines that it starts would hand the processor to each other. On a
// single processor, Go's scheduler would then neither poll the network nor run the
// goroutines that the network has woken, for up to a second.
func (e *earlyConns) wait(closing <-chan struct{}) {
	defer yield.Now()
	if e.n.Load() < e.most {
		return
	}
	t := time.NewTimer(e.pause)
	defer t.Stop()
	for e.n.Load() >= e.most {
		select {
		case <-e.eased:
		case <-t.C:
			return
		case <-closing:
			return
		}
	}
}

// startEarly counts g among the owner's earlyConns.
func (g *Conn) startEarly() {
	if g.owner == nil {
		return
	}
	g.lifeMu.Lock()
	defer g.lifeMu.Unlock()
	if !g.closed && g.early.CompareAndSwap(false, true) {
		g.owner.early.n.Add(1)
	}
}

// endEarly removes g from the owner's earlyConns, if it is there.
func (g *Conn) endEarly() {
	if !g.early.CompareAndSwap(true, false) {
		return
	}
	e := &g.owner.early
	if e.n.Add(-1) == e.most-1 {
		select {
		case e.eased <- struct{}{}:
		default:
		}
	}
}
