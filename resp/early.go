package resp

import (
	"syscall"
)

// early lets the goroutine that delivers the results of a log entry write the
// replies of a group to the client's socket. The connection's goroutine waits
// for the replies at that time (see Executor.Do). The replies of many clients
// are written one after the other before any of these goroutines is woken:
// docs/architecture.md, "Sending replies", has the reason.
//
// The fields belong to the connection's goroutine. While that goroutine is in
// Do, they belong to sendEarly.
type early struct {
	send func(replies []byte) // sendEarly, bound to the connection
	may  bool                 // the replies of the current group may be sent early
	sent int                  // bytes that the socket has accepted
}

// flushLast flushes the group at the end of a pipeline. If the group writes,
// and the pipeline has no other replies, its replies may be sent early.
func (c *conn) flushLast() {
	c.early.may = c.sent == 0 && c.group.Write && !c.silent()
	c.flush()
	c.early.may = false
}

// now returns the function to pass to Do, or nil if replies must not be sent
// early.
func (e *early) now() func(replies []byte) {
	if e.may {
		return e.send
	}
	return nil
}

// rest returns the part of the replies that sendEarly has not sent.
func (e *early) rest(replies []byte) []byte {
	n := e.sent
	e.sent = 0
	return replies[n:]
}

// sendEarly sends as many bytes as the socket accepts without waiting. The
// connection's goroutine sends the rest and then the messages of the outbox.
func (c *conn) sendEarly(replies []byte) {
	g, ok := c.net.(*Guard)
	if !ok || !c.out.writing.TryLock() { // a message is being sent
		return
	}
	defer c.out.writing.Unlock()
	c.early.sent = g.tryWrite(replies)
	c.sent += c.early.sent
}

// tryWrite sends what the socket accepts without waiting, and returns the
// number of bytes. It ignores errors, because the next Write returns them.
func (g *Guard) tryWrite(p []byte) (sent int) {
	if !g.writeMu.TryLock() {
		return 0
	}
	defer g.writeMu.Unlock()
	if g.raw == nil {
		c, ok := g.Conn.(syscall.Conn)
		if !ok {
			return 0
		}
		var err error
		if g.raw, err = c.SyscallConn(); err != nil {
			return 0
		}
	}
	err := g.raw.Write(func(fd uintptr) bool {
		sent, _ = syscall.Write(int(fd), p) // the Write of the rest returns the error again
		return true
	})
	if err != nil {
		return 0
	}
	return max(sent, 0)
}
