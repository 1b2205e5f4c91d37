package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// canceling is a hook that closes the connections of a client when the context
// of one of its commands is canceled. go-redis itself obeys only the deadline
// of a context, not its cancellation.
type canceling struct {
	mu    sync.Mutex
	conns map[*trackedConn]bool // open connections
}

// track returns conn as a connection that canceling closes.
func (c *canceling) track(conn net.Conn) net.Conn {
	t := &trackedConn{conn, c}
	c.mu.Lock()
	c.conns[t] = true
	c.mu.Unlock()
	return t
}

// run calls f, which runs commands under ctx. It closes the connections when
// ctx is canceled.
func (c *canceling) run(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.Canceled) {
			return
		}
		c.mu.Lock()
		open := slices.Collect(maps.Keys(c.conns))
		c.mu.Unlock()
		for _, conn := range open {
			_ = conn.Close() // its only effect is that the command fails
		}
	})
	defer stop()
	err := f()
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("interrupted: %w", ctx.Err())
	}
	return err
}

// DialHook implements redis.Hook.
func (c *canceling) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (c *canceling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := c.run(ctx, func() error { return next(ctx, cmd) })
		if err != nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c *canceling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ran := false
		err := c.run(ctx, func() error {
			ran = true
			return next(ctx, cmds)
		})
		if !ran {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// trackedConn is a connection of a client.
type trackedConn struct {
	net.Conn
	owner *canceling
}

// Close closes the connection.
func (t *trackedConn) Close() error {
	t.owner.mu.Lock()
	delete(t.owner.conns, t)
	t.owner.mu.Unlock()
	return t.Conn.Close()
}

// SyscallConn lets go-redis find out whether the server has closed the
// connection.
func (t *trackedConn) SyscallConn() (syscall.RawConn, error) {
	if c, ok := t.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.New("the connection is not a socket")
}
