package rpc

import (
	"errors"
	"net"
	"time"
)

// conn is a connection that its Mux tracks, so that closing the Mux also ends
// reads that have no deadline.
type conn struct {
	sealedConn
	mux      *Mux
	accepted bool // counts against Config.MaxConns
	// peer is the id of the node that opened a raft connection. It is set before
	// raftLayer.Accept returns the connection.
	peer string

	key *authenticator // secret of the connection, nil without one; guarded by mux.mu

	// The owner of the connection after the handshake; guarded by mux.mu.
	stream *Stream    // set for a framed connection
	layer  *raftLayer // set for a raft connection
}

// PeerID returns the id of the node that opened the connection, if
// raftLayer.Accept has returned the connection. Otherwise, it returns "".
func (c *conn) PeerID() string { return c.peer }

// Close closes the connection and removes it from the Mux's tables.
func (c *conn) Close() error {
	c.mux.untrack(c)
	return c.Conn.Close()
}

// drop closes a connection after a failure. It only logs the error of Close,
// because the caller reports the failure.
func (c *conn) drop() {
	if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.mux.log.Debug("cannot close connection", "remote", c.RemoteAddr(), "error", err)
	}
}

// interrupt ends all reads and writes that are in progress on the connection.
func (c *conn) interrupt() {
	if err := c.SetDeadline(time.Unix(1, 0)); err != nil {
		c.drop()
	}
}
