package guard

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// maxAhead bounds the bytes that are read ahead. If a client sends more bytes
// than that while its command waits, the guard does not notice that the client
// disconnects.
const maxAhead = 1 << 20

// ReadAhead reads from the socket while a command of the client runs, in order to
// notice that the client disconnects. gone is closed when that happens. Read
// delivers the bytes later.
//
// Only the goroutine that calls Read may call ReadAhead, between two Reads. It must
// call stop before the next Read. Until then, no read deadline is in effect.
func (g *Conn) ReadAhead() (gone <-chan struct{}, stop func(), err error) {
	g.endEarly()
	if !g.deadlines.armed.IsZero() {
		g.deadlines.armed = time.Time{}
		if err := g.Conn.SetReadDeadline(time.Time{}); err != nil {
			return nil, nil, fmt.Errorf("lift read deadline: %w", err)
		}
	}
	left, finished := make(chan struct{}), make(chan struct{})
	var stopping atomic.Bool
	go func() {
		defer close(finished)
		if g.readErr != nil { // an earlier call has already noticed the end of the connection
			close(left)
		}
		var part [512]byte // small, because a silent client occupies it for the whole wait
		for g.readErr == nil && len(g.big) == 0 && len(g.buf)-g.off < maxAhead {
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
		// If this call fails, the connection is closed, and the read has ended for
		// that reason.
		_ = g.Conn.SetReadDeadline(time.Unix(1, 0))
		<-finished
		_ = g.Conn.SetReadDeadline(time.Time{})
	}
	return left, stop, nil
}
