package respwire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Conn is a connection to a server. Only one goroutine at a time may read from
// it, and only one at a time may write to it.
type Conn struct {
	net.Conn
	R *bufio.Reader // reads from Conn
	// Limit bounds each Send and each Receive. If it is 0, the deadlines of
	// the connection apply.
	Limit time.Duration
}

// NewConn returns a Conn that uses conn.
func NewConn(conn net.Conn) *Conn { return &Conn{Conn: conn, R: bufio.NewReader(conn)} }

// Dial connects to a server. ctx limits only the attempt to connect.
func Dial(ctx context.Context, network, addr string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return NewConn(conn), nil
}

// connectLimit is the longest time for which Connect waits for a connection.
const connectLimit = 5 * time.Second

// Connect connects to a TCP port. limit becomes the Limit of the connection.
func Connect(addr string, limit time.Duration) (*Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), min(limit, connectLimit))
	defer cancel()
	c, err := Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.Limit = limit
	return c, nil
}

// Do sends one command on a new connection and reads the reply. limit bounds
// each step. An error reply is a Value and not an error: see NoError.
func Do(addr string, limit time.Duration, args ...string) (Value, error) {
	c, err := Connect(addr, limit)
	if err != nil {
		return Value{}, err
	}
	v, err := c.Do(args...)
	return v, errors.Join(err, c.Close())
}

// Read reads bytes that Receive has not read. It implements net.Conn, and uses
// R because R may have buffered some of these bytes.
func (c *Conn) Read(b []byte) (int, error) { return c.R.Read(b) }

// Send sends commands in one write, without waiting for their replies.
func (c *Conn) Send(cmds ...[]string) error {
	if c.Limit > 0 {
		if err := c.SetWriteDeadline(time.Now().Add(c.Limit)); err != nil {
			return err
		}
	}
	_, err := c.Write(Pipeline(cmds...))
	return err
}

// Receive reads the next reply or push.
func (c *Conn) Receive() (Value, error) {
	if c.Limit > 0 {
		if err := c.SetReadDeadline(time.Now().Add(c.Limit)); err != nil {
			return Value{}, err
		}
	}
	return Read(c.R)
}

// Do sends one command and reads the next reply or push. An error reply is a
// Value and not an error: see NoError.
func (c *Conn) Do(args ...string) (Value, error) {
	if err := c.Send(args); err != nil {
		return Value{}, err
	}
	return c.Receive()
}
