package resp

import "github.com/holdfast-kv/holdfast/resp/guard"

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
	g, ok := c.net.(*guard.Conn)
	if !ok || !c.out.writing.TryLock() { // a message is being sent
		return
	}
	defer c.out.writing.Unlock()
	c.early.sent = g.TryWrite(replies)
	c.sent += c.early.sent
}
