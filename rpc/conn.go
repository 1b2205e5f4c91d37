package rpc

import (
	"errors"
	"net"
	"time"
)

// conn is a connection that its Mux knows, so that closing the Mux ends reads that have no deadline.
type conn struct {
	sealedConn
	mux      *Mux
	accepted bool // counts against Config.MaxConns

	// Whose it is once the handshake is over; guarded by mux.mu.
	stream *Stream    // set for a framed connection
	layer  *raftLayer // set for a raft connection
}

// Close closes the connection and takes it out of the Mux's books.
func (c *conn) Close() error {
	c.mux.forget(c)
	return c.Conn.Close()
}

// drop closes a connection that is given up. The error of closing it says nothing new: the reason for giving up is reported.
func (c *conn) drop() {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.mux.log.Debug("close connection", "remote", c.RemoteAddr(), "error", err)
	}
}

// interrupt ends whatever reads and writes are under way on the connection.
func (c *conn) interrupt() {
	if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
		c.drop()
	}
}
