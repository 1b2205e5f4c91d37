package neighbor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/holdfast-kv/holdfast/verify/load"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// replyError is an error reply of the node.
type replyError string

func (e replyError) Error() string { return string(e) }

// client is a connection that waits for replies.
type client struct {
	*load.Conn
	stop func() bool
}

// client connects and logs in. The connection ends when ctx is done.
func (t *target) client(ctx context.Context, timeout time.Duration) (*client, error) {
	c, err := load.Dial(ctx, t.Addr, t.Login, timeout)
	if err != nil {
		return nil, err
	}
	return &client{c, context.AfterFunc(ctx, func() { _ = c.Close() })}, nil // Close makes the next command fail
}

// Close closes the connection.
func (c *client) Close() error {
	c.stop()
	return c.Conn.Close()
}

// do sends one command. If the reply is an error, do returns it as an error.
func (c *client) do(args ...string) (respwire.Value, error) {
	v, err := c.Do(args...)
	if err == nil && v.Err != "" {
		err = replyError(v.Err)
	}
	return v, err
}

// pipeline sends all commands at once, waits for all replies, and returns the
// first error reply as an error.
func (c *client) pipeline(cmds [][]string) error {
	replies, err := c.Pipeline(cmds)
	if err != nil {
		return err
	}
	for _, v := range replies {
		if v.Err != "" {
			return replyError(v.Err)
		}
		for _, e := range v.Elems {
			if e.Err != "" {
				return replyError(e.Err)
			}
		}
	}
	return nil
}

// raw is a connection on which a load can send commands without waiting for the
// replies. A reply stays unread until the load reads it.
type raw struct {
	net.Conn
	stop func() bool
}

// raw connects without a login. The connection ends when ctx is done.
func (t *target) raw(ctx context.Context) (*raw, error) {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &raw{c, context.AfterFunc(ctx, func() { _ = c.Close() })}, nil // Close makes the next read or write fail
}

// member connects and logs in. The connection ends when ctx is done.
func (t *target) member(ctx context.Context) (*raw, error) {
	c, err := t.raw(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.login(t.Login); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// login sends AUTH, if the login needs it, and reads the reply.
func (c *raw) login(l load.Login) error {
	words := l.Command()
	if words == nil {
		return nil
	}
	if err := c.send(respwire.Command(words...)); err != nil {
		return err
	}
	const ok = "+OK\r\n"
	reply := make([]byte, len(ok))
	if _, err := io.ReadFull(c, reply); err != nil {
		return err
	}
	if string(reply) != ok {
		return errors.New("the node refuses the password of the load")
	}
	return nil
}

// Close closes the connection.
func (c *raw) Close() error {
	c.stop()
	return c.Conn.Close()
}

// sendLimit bounds a write to a node that does not read.
const sendLimit = 10 * time.Second

func (c *raw) send(b []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(sendLimit)); err != nil {
		return err
	}
	_, err := c.Write(b)
	return err
}

// discard reads and drops everything until the connection ends. It records the
// first error reply in t. It returns a channel that is closed at the end.
func (c *raw) discard(t *target) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, whole := bufio.NewReader(c), true
		for {
			line, more, err := r.ReadLine()
			if err != nil {
				return // the connection has ended; the reason does not matter
			}
			if whole && len(line) > 0 && line[0] == '-' {
				t.answered(string(line[1:]))
			}
			whole = !more
		}
	}()
	return ended
}
