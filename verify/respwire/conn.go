package respwire

import (
	"bufio"
	"context"
	"fmt"
	"net"
)

// Conn is a connection to a server. Only one goroutine at a time may read from
// it, and only one at a time may write to it.
type Conn struct {
	net.Conn
	R *bufio.Reader // reads from Conn
}

// NewConn returns a Conn that uses conn.
func NewConn(conn net.Conn) *Conn { return &Conn{conn, bufio.NewReader(conn)} }

// Dial connects to a server. The context limits only the connecting.
func Dial(ctx context.Context, network, addr string) (*Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return NewConn(conn), nil
}

// Read reads bytes that Receive has not read. It implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.R.Read(b) }

// Send sends commands in one write, without waiting for their replies.
func (c *Conn) Send(cmds ...[]string) error {
	_, err := c.Write(Pipeline(cmds...))
	return err
}

// Receive reads the next reply or push.
func (c *Conn) Receive() (Value, error) { return Read(c.R) }

// Do sends one command and reads the next reply or push.
func (c *Conn) Do(args ...string) (Value, error) {
	if err := c.Send(args); err != nil {
		return Value{}, err
	}
	return c.Receive()
}
