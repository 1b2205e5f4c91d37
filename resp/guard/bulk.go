package guard

import "syscall"

// bulkSize is the number of bytes that More reads at a time.
const bulkSize = maxBatch

// bulkState is the part of a Conn that serves clients that send long pipelines.
// redcon asks for 4 KiB at a time. If the socket fills such a read, more input
// is probably waiting there, and More reads it.
type bulkState struct {
	// filled says that the last read from the socket was filled.
	filled bool
	// passed is the number of bytes of commands that Read and More have returned.
	passed int64
	rawIn  syscall.RawConn // for More; nil before its first call
}

// More returns complete commands that the client has sent already, in the form
// in which Read returns them. It returns at most 1024 commands; the parameter
// most limits their total size in bytes. It returns nil if there are no such
// commands, if most is not positive, or if the client has not authenticated. With
// TLS, it returns only commands that arrived with the bytes that Read has
// received. More does not wait.
//
// parsed is the number of bytes of commands that the caller has received so far,
// from Read and from More. If Read and More together have returned more bytes than
// that, the rest is still in a buffer between the Conn and the caller. More then
// returns nil, because its commands must not overtake the commands in that buffer.
//
// Like Read, More may only be called by the goroutine of the connection.
func (g *Conn) More(most int, parsed int64) []byte {
	if most <= 0 || !g.auth.Load() || g.passed != parsed || len(g.big) > 0 || g.refused || g.padPending {
		return nil
	}
	if g.filled && len(g.buf)-g.off < most {
		g.readMore()
	}
	if len(g.buf) == g.off {
		return nil
	}
	p := make([]byte, min(most, len(g.buf)-g.off))
	n := g.takeCommands(p, true)
	if rest := g.buf[g.off:]; len(g.big) == 0 && len(rest) < bufSize/2 && cap(g.buf) > bufSize {
		// The scanner may have processed a part of the rest.
		scanned := g.scan - g.off
		g.buf = nil
		g.charge(0)
		g.keep(rest)
		g.scan = scanned
	}
	if n == 0 {
		return nil
	}
	g.passed += int64(n)
	g.delivered()
	return p[:n]
}

// readMore moves bytes that have been read ahead to buf. If there are none, it
// reads once from the socket into buf, without waiting. It ignores errors and the
// end of the input, because the next Read finds them again.
func (g *Conn) readMore() {
	g.filled = false
	if g.ahead.size > 0 {
		g.grow(bulkSize)
		n := g.takeAhead(g.buf[len(g.buf):cap(g.buf)])
		g.buf = g.buf[:len(g.buf)+n]
		g.filled = n >= bufSize
		return
	}
	if g.readErr != nil {
		return
	}
	if g.rawIn == nil {
		c, ok := g.Conn.(syscall.Conn)
		if !ok {
			return
		}
		raw, err := c.SyscallConn()
		if err != nil {
			return
		}
		g.rawIn = raw
	}
	g.grow(bulkSize)
	room, n := g.buf[len(g.buf):cap(g.buf)], 0
	err := g.rawIn.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), room)
		return true
	})
	if err != nil || n <= 0 {
		if len(g.buf) == g.off {
			g.release()
		}
		return
	}
	g.buf = g.buf[:len(g.buf)+n]
	g.filled = n >= bufSize
}
