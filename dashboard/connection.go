package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// requestLimit bounds each wait of a request to the API: for its share of a
	// quota, for its connection, and for the replies of the node. It is longer
	// than the time that a node waits for a leader by default, so that the
	// node's own error arrives first.
	requestLimit = 10 * time.Second
	// replyBytes bounds the replies of the node to one request.
	replyBytes = 8 << 20
)

// connection is a connection to the node's client port within the process, with the
// rights of one user. It is safe for concurrent use: it runs one function at a
// time.
//
// If a reply is too late or too large, the connection remains open and skips the
// rest of the reply. So such a reply does not end the login of a browser.
type connection struct {
	dial   func(context.Context) (net.Conn, error)
	user   string        // "" before a login
	busy   chan struct{} // capacity 1: held while a function runs
	broken atomic.Bool

	// The following fields are guarded by busy.

	pipe   *pipe // nil before the first command
	client *redis.Client
	conn   *redis.Conn
	db     int  // selected database, -1 if it is not known
	behind bool // the node may still send replies to earlier commands
	shut   bool // the pipe is closed
}

var (
	errClosed   = errors.New("the connection to the node has ended")
	errTooLarge = fmt.Errorf("the answer would need more than %d MiB: ask for less at a time", replyBytes>>20)
)

// pipe is the client's end of a connection within the process. Several clients may
// use it one after another, so its method Close has no effect.
type pipe struct {
	net.Conn
	left int // bytes that may still be read
}

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, errTooLarge
	}
	n, err := p.Conn.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, err
}

// Close implements net.Conn.
func (*pipe) Close() error { return nil }

// dial returns a connection that has not authenticated. The first command opens
// it.
func (d *Dashboard) dial(from net.Addr) *connection {
	c := &connection{busy: make(chan struct{}, 1)}
	c.dial = func(ctx context.Context) (net.Conn, error) { return d.cfg.Dial(ctx, from) }
	c.renew()
	return c
}

// renew makes a client for the pipe.
func (c *connection) renew() {
	used := false
	c.client = redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			// Do not let the client connect again: a second connection would not be
			// logged in as the user.
			if used {
				return nil, errClosed
			}
			used = true
			if c.pipe == nil {
				conn, err := c.dial(ctx)
				if err != nil {
					return nil, err
				}
				c.pipe = &pipe{conn, replyBytes}
			}
			return c.pipe, nil
		},
		Protocol: 3, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		ReadTimeout: requestLimit, WriteTimeout: requestLimit,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.conn = c.client.Conn()
}

// login authenticates the connection.
func (c *connection) login(ctx context.Context, user, password string) error {
	return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
		if err := conn.Do(ctx, "AUTH", user, password).Err(); err != nil {
			return err
		}
		// HELLO is not permitted before the connection has authenticated.
		if err := conn.Do(ctx, "HELLO", "3", "SETNAME", "dashboard").Err(); err != nil && !denied(err) {
			return err
		}
		c.user = user
		return nil
	})
}

// run calls f with the connection. It first waits until no other function uses the
// connection. This wait does not shorten the time limit of f.
func (c *connection) run(ctx context.Context, f func(context.Context, *redis.Conn) error) error {
	waiting, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	select {
	case c.busy <- struct{}{}:
		defer c.leave()
	case <-waiting.Done():
		return fmt.Errorf("another request of this login takes too long: %w", waiting.Err())
	}
	if c.broken.Load() {
		return errClosed
	}
	ctx, cancel = context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := c.catchUp(ctx); err != nil {
		return err
	}
	err := f(ctx, c.conn)
	if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
		return err
	}
	c.behind = true
	if errors.Is(err, errTooLarge) {
		// Read the rest of the replies, because the node closes a connection whose
		// client does not read for a while.
		return errors.Join(errTooLarge, c.catchUp(ctx))
	}
	return err
}

// catchUp skips the replies to earlier commands, if the node may still send some.
// It returns an error if the connection ends, or if a reply does not arrive in
// time.
func (c *connection) catchUp(ctx context.Context) error {
	if c.pipe != nil {
		c.pipe.left = replyBytes
	}
	if !c.behind || c.pipe == nil {
		return nil
	}
	err := c.skip(ctx)
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("an earlier request of this login has no answer yet: %w", context.DeadlineExceeded)
	}
	if err != nil {
		c.broken.Store(true)
		return errClosed
	}
	c.behind = false
	_ = c.client.Close() // closes nothing, see pipe
	c.renew()
	return nil
}

// skip sends a command that does not exist and reads until its reply. The node
// sends this reply to every user: an error that contains the name of the command.
func (c *connection) skip(ctx context.Context) error {
	until, _ := ctx.Deadline() // run has set a deadline
	if err := c.pipe.SetDeadline(until); err != nil {
		return err
	}
	mark := "resync-" + random()
	if _, err := fmt.Fprintf(c.pipe, "*1\r\n$%d\r\n%s\r\n", len(mark), mark); err != nil {
		return err
	}
	var tail []byte // the last bytes that were read
	for buf := make([]byte, 32<<10); ; {
		n, err := c.pipe.Conn.Read(buf)
		if err != nil {
			return err
		}
		tail = append(tail, buf[:n]...)
		if i := bytes.Index(tail, []byte(mark)); i >= 0 && bytes.Contains(tail[i:], []byte("\r\n")) {
			return c.pipe.SetDeadline(time.Time{})
		} else if i < 0 {
			tail = append(tail[:0], tail[max(0, len(tail)-len(mark)):]...)
		}
	}
}

// close closes the connection. If a function uses the connection, the
// connection is closed when this function returns. close may be called more
// than once.
func (c *connection) close() {
	c.broken.Store(true)
	select {
	case c.busy <- struct{}{}:
		c.leave()
	default:
	}
}

// leave ends the use of the connection. The caller holds busy.
func (c *connection) leave() {
	for {
		if c.broken.Load() && !c.shut {
			c.shut = true
			// An error has no effect, because the client has nothing left to send.
			_ = c.client.Close()
			if c.pipe != nil {
				_ = c.pipe.Conn.Close()
			}
		}
		shut := c.shut
		<-c.busy
		// close may have found the connection busy in the meantime.
		if shut || !c.broken.Load() {
			return
		}
		select {
		case c.busy <- struct{}{}:
		default:
			return
		}
	}
}

// denied reports whether the node refused a command for lack of rights.
func denied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }
