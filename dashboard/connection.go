package dashboard

import (
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

// requestLimit bounds what one request asks of the node. It is longer than the
// time that a node waits for a leader, so that the node's own error arrives
// first.
const requestLimit = 10 * time.Second

// connection is a connection to the node's client port within the process, with
// the rights of one user. It is safe for concurrent use: it runs one function at a
// time.
type connection struct {
	client *redis.Client
	conn   *redis.Conn
	user   string        // "" before a login
	db     int           // selected database; guarded by busy
	busy   chan struct{} // capacity 1: held while a function runs
	broken atomic.Bool
}

var errClosed = errors.New("the connection to the node has ended")

// dial opens a connection that has not authenticated.
func (d *Dashboard) dial(from net.Addr) *connection {
	dialed := false
	client := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			// A second connection would not have the rights of the user.
			if dialed {
				return nil, errClosed
			}
			dialed = true
			return d.cfg.Dial(ctx, from)
		},
		Protocol: 3, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, DisableIdentity: true,
		ReadTimeout: requestLimit, WriteTimeout: requestLimit,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	return &connection{client: client, conn: client.Conn(), busy: make(chan struct{}, 1)}
}

// login authenticates the connection.
func (c *connection) login(ctx context.Context, user, password string) error {
	return c.run(ctx, func(ctx context.Context, conn *redis.Conn) error {
		if err := conn.Do(ctx, "AUTH", user, password).Err(); err != nil {
			return err
		}
		// The connection could not choose the protocol before it had a user.
		if err := conn.Do(ctx, "HELLO", "3", "SETNAME", "dashboard").Err(); err != nil && !denied(err) {
			return err
		}
		c.user = user
		return nil
	})
}

// run calls f with the connection. The connection is unusable after an error that
// is not a reply of the node.
func (c *connection) run(ctx context.Context, f func(context.Context, *redis.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return fmt.Errorf("another request of this session takes too long: %w", ctx.Err())
	}
	if c.broken.Load() {
		return errClosed
	}
	err := f(ctx, c.conn)
	if reply := redis.Error(nil); err != nil && !errors.As(err, &reply) {
		c.close()
	}
	return err
}

// close closes the connection. It may be called more than once.
func (c *connection) close() {
	if !c.broken.Swap(true) {
		// The pipe in the process has nothing to flush, so an error means nothing.
		_ = c.conn.Close()
		_ = c.client.Close()
	}
}

// denied reports whether the node refused a command for lack of rights.
func denied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }
