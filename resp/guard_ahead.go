package resp

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// guardAheadMost bounds what is read ahead of the commands. A client that sends
// more behind a command that waits is not noticed when it leaves.
const guardAheadMost = 1 << 20

// readAhead reads what the client sends while a command of it waits, for the
// sake of noticing when it leaves: gone is closed then. What was read is delivered
// by Read later. It is for the goroutine that calls Read, between two calls, and
// stop must be called before the next one; no deadline holds meanwhile.
func (g *Guard) readAhead() (gone <-chan struct{}, stop func(), err error) {
	if !g.clock.armed.IsZero() {
		g.clock.armed = time.Time{}
		if err := g.Conn.SetReadDeadline(time.Time{}); err != nil {
			return nil, nil, fmt.Errorf("lift read deadline: %w", err)
		}
	}
	left, finished := make(chan struct{}), make(chan struct{})
	var stopping atomic.Bool
	go func() {
		defer close(finished)
		var part [512]byte // a client that is silent keeps no more
		for g.readErr == nil && len(g.big) == 0 && len(g.buf)-g.off < guardAheadMost {
			n, err := g.Conn.Read(part[:])
			if n > 0 {
				g.grow(n)
				g.buf = append(g.buf, part[:n]...)
			}
			if err != nil && stopping.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
				return
			}
			if g.readErr = err; err != nil {
				close(left)
			}
		}
	}()
	stop = func() {
		stopping.Store(true)
		// An error means that the connection is closed, which ends Read as well.
		_ = g.Conn.SetReadDeadline(time.Unix(1, 0))
		<-finished
		_ = g.Conn.SetReadDeadline(time.Time{})
	}
	return left, stop, nil
}
