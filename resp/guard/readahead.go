package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-kv/holdfast/platform"
)

const (
	// maxAhead is the number of bytes after which ReadAhead stops reading. The
	// rest of the input then waits in the kernel and at the client.
	maxAhead = 1 << 20
	// maxWaitingAhead and waitingAheadPart bound the bytes that ReadAheadWaiting
	// keeps: see mostWaiting.
	maxWaitingAhead  = 64 << 20
	waitingAheadPart = 4
	// aheadChunk is the size of the largest chunks of an aheadState. The first one
	// has bufSize bytes, and each of the next is twice as large as the one before.
	aheadChunk = 64 << 10
	// hangUpInterval is how often ReadAhead asks the kernel whether the client has
	// disconnected, once it has stopped reading.
	hangUpInterval = 100 * time.Millisecond
)

// errAhead ends the input of a client that has sent too much while its command
// waited.
var errAhead = errors.New("client has sent too much while its command waited")

// aheadState contains the input that has been read ahead. receive and readMore
// take it from here before they read from the socket.
type aheadState struct {
	chunks [][]byte // oldest first
	taken  int      // the first bytes of chunks[0], which have been taken
	size   int      // bytes that have not been taken
	room   int      // capacity of all chunks
}

// space returns the unused part of the last chunk. It is empty if the last chunk
// is full.
func (a *aheadState) space() []byte {
	if len(a.chunks) == 0 {
		return nil
	}
	last := a.chunks[len(a.chunks)-1]
	return last[len(last):cap(last)]
}

// extend adds the first n bytes of space, which have been received.
func (a *aheadState) extend(n int) {
	last := &a.chunks[len(a.chunks)-1]
	*last = (*last)[:len(*last)+n]
	a.size += n
}

// begin adds a chunk that contains p. p must not be longer than bufSize.
func (a *aheadState) begin(p []byte) {
	var chunk []byte
	if len(a.chunks) == 0 {
		chunk = bufs.Get().(*[bufSize]byte)[:0]
	} else {
		chunk = make([]byte, 0, min(2*cap(a.chunks[len(a.chunks)-1]), aheadChunk))
	}
	a.chunks = append(a.chunks, append(chunk, p...))
	a.size += len(p)
	a.room += cap(chunk)
}

// take moves bytes to p, as many as there are and as p has room for. It returns
// their number.
func (a *aheadState) take(p []byte) (n int) {
	for n < len(p) && a.size > 0 {
		first := a.chunks[0]
		moved := copy(p[n:], first[a.taken:])
		n += moved
		a.size -= moved
		a.taken += moved
		if a.taken < len(first) {
			break
		}
		a.taken = 0
		a.room -= cap(first)
		a.chunks[0] = nil
		if a.chunks = a.chunks[1:]; len(a.chunks) == 0 {
			a.chunks = nil
		}
		freeBuf(first)
	}
	return n
}

// takeAhead moves input that has been read ahead to p, and returns the number of
// bytes.
func (g *Conn) takeAhead(p []byte) int {
	if g.ahead.size == 0 {
		return 0
	}
	n := g.ahead.take(p)
	g.charge(cap(g.buf))
	return n
}

// ReadAhead reads from the socket while a command of the client runs, in order to
// notice that the client disconnects. gone is closed when that happens. Read
// delivers the bytes later.
//
// When ReadAhead has read a MiB that Read has not delivered, it stops reading, so
// that a client that sends a long pipeline does not occupy more memory. Then it
// asks the kernel whether the client has closed the socket. The kernel may not
// know that while its buffer for the socket is full, and only Linux tells. So a
// command that may wait for long needs ReadAheadWaiting instead.
//
// Only the goroutine that calls Read may call ReadAhead, between two Reads. It must
// call stop before the next Read. Until then, no read deadline is in effect.
func (g *Conn) ReadAhead() (gone <-chan struct{}, stop func(), err error) {
	return g.readAhead(maxAhead, g.watchHangUp)
}

// ReadAheadWaiting is like ReadAhead, for a command that waits until another
// client does something. It always notices that the client disconnects, because
// it reads all input. But if it has read more bytes than mostWaiting, it ends the
// input of the connection and closes gone.
func (g *Conn) ReadAheadWaiting() (gone <-chan struct{}, stop func(), err error) {
	return g.readAhead(g.mostWaiting(), g.tooMuchAhead)
}

// mostWaiting returns how many bytes the guard keeps for a client whose command
// waits: 64 MiB, or a quarter of the memory for all clients if that is less.
func (g *Conn) mostWaiting() int {
	if g.mem == nil || g.mem.Limit() == 0 {
		return maxWaitingAhead
	}
	return int(min(maxWaitingAhead, g.mem.Limit()/waitingAheadPart))
}

// readAhead reads until more than most bytes have been read ahead, and then calls
// full. stopped is closed when stop is called.
func (g *Conn) readAhead(most int, full func(left chan<- struct{}, stopped <-chan struct{})) (
	gone <-chan struct{}, stop func(), err error,
) {
	g.endEarly()
	if !g.deadlines.armed.IsZero() {
		g.deadlines.armed = time.Time{}
		if err := g.Conn.SetReadDeadline(time.Time{}); err != nil {
			return nil, nil, fmt.Errorf("lift read deadline: %w", err)
		}
	}
	left, stopped, finished := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var stopping atomic.Bool
	go func() {
		defer close(finished)
		if g.readErr != nil { // an earlier call has already noticed the end of the connection
			close(left)
		}
		var part [512]byte // small, because a silent client occupies it for the whole wait
		for g.readErr == nil {
			if g.ahead.size > most {
				full(left, stopped)
				return
			}
			err := g.readOnceAhead(part[:])
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
		close(stopped)
		// If this call fails, the connection is closed, and the read has ended for
		// that reason.
		_ = g.Conn.SetReadDeadline(time.Unix(1, 0))
		<-finished
		_ = g.Conn.SetReadDeadline(time.Time{})
	}
	return left, stop, nil
}

// readOnceAhead reads once from the socket. It uses part if the chunks are full.
func (g *Conn) readOnceAhead(part []byte) error {
	if space := g.ahead.space(); len(space) > 0 {
		n, err := g.Conn.Read(space)
		g.ahead.extend(n)
		return err
	}
	n, err := g.Conn.Read(part)
	if n > 0 {
		g.ahead.begin(part[:n])
		g.charge(cap(g.buf))
	}
	return err
}

// tooMuchAhead ends the input, for readAhead.
func (g *Conn) tooMuchAhead(left chan<- struct{}, _ <-chan struct{}) {
	g.readErr = errAhead
	if g.hooks.TooMuchAhead != nil {
		g.hooks.TooMuchAhead(g, g.ahead.size)
	}
	close(left)
}

// watchHangUp closes left when the kernel knows that the client has disconnected,
// for readAhead. It does not end the input, because the kernel may still have
// bytes that the client sent before.
func (g *Conn) watchHangUp(left chan<- struct{}, stopped <-chan struct{}) {
	c := g.Conn
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // a tls.Conn
		c = t.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	again := time.NewTicker(hangUpInterval)
	defer again.Stop()
	for {
		select {
		case <-stopped:
			return
		case <-again.C:
		}
		hungUp := false
		err := raw.Control(func(fd uintptr) { hungUp = platform.HungUp(int(fd)) })
		if err != nil || hungUp { // after an error, the connection is closed
			close(left)
			return
		}
	}
}
