package resp

import (
	"syscall"
)

// early lets whoever answers the clients of a log entry, one after the other, send
// the replies of a connection's group in place of its goroutine, which waits for
// them (see Executor.Do). Its fields belong to that goroutine but while it is in
// Do: then to sendEarly.
type early struct {
	send func(replies []byte) // sendEarly
	may  bool                 // of the group that is being run
	sent int                  // bytes that the socket took
}

// flushLast is flush for what ends a pipeline. If that is a group that writes, and
// all that the pipeline is answered, its replies may be sent early.
func (c *conn) flushLast() {
	c.early.may = c.sent == 0 && c.group.Write && !c.silent()
	c.flush()
	c.early.may = false
}

// now returns what Do is called with.
func (e *early) now() func(replies []byte) {
	if e.may {
		return e.send
	}
	return nil
}

// rest returns what is still to be sent of the replies.
func (e *early) rest(replies []byte) []byte {
	n := e.sent
	e.sent = 0
	return replies[n:]
}

// sendEarly sends as much as the socket takes at once; the rest, and the outbox,
// are left to the connection's goroutine.
func (c *conn) sendEarly(replies []byte) {
	g, ok := c.net.(*Guard)
	if !ok || !c.out.writing.TryLock() { // a message is still being sent
		return
	}
	defer c.out.writing.Unlock()
	c.early.sent = g.tryWrite(replies)
	c.sent += c.early.sent
}

// tryWrite sends what the socket takes without waiting, and returns how much that
// was. Any error shows again in the next Write.
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
		sent, _ = syscall.Write(int(fd), p) // an error is met again by who sends the rest
		return true
	})
	if err != nil {
		return 0
	}
	return max(sent, 0)
}
