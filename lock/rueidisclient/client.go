// Package rueidisclient lets package lock use a client of rueidis.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{
//		InitAddress: []string{"127.0.0.1:6379"}, ForceSingleClient: true})
//	…
//	held, err := lock.Acquire(ctx, rueidisclient.New(client), "backup")
//
// The package is separate from package lock, so that programs that use go-redis do
// not depend on rueidis.
package rueidisclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-kv/holdfast/lock"
)

// Client implements lock.Client, lock.Repeater and lock.Dedicator.
type Client struct {
	clients []rueidis.Client
	current atomic.Int64
}

// New returns a client for lock.Acquire. Usually, each of the rueidis clients
// is connected to one node of the cluster. Do sends a command over the client
// whose node answered last. If the node of that client does not answer, Do
// tries the other clients. So a command may be executed twice, which is safe
// for the commands of package lock. One client is enough if it finds the leader
// by itself, through Sentinel or with --cluster-mode. The caller must close the
// clients.
func New(first rueidis.Client, others ...rueidis.Client) *Client {
	return &Client{clients: append([]rueidis.Client{first}, others...)}
}

// Do implements lock.Client.
func (c *Client) Do(ctx context.Context, args ...any) *redis.Cmd {
	for range len(c.clients) - 1 {
		cmd := c.DoOnce(ctx, args...)
		if lock.Ended(ctx) || !lock.Elsewhere(cmd.Err()) {
			return cmd
		}
	}
	return c.DoOnce(ctx, args...)
}

// DoOnce implements lock.Repeater. If ctx has ended before the call, the error
// says nothing about the node, so the next command goes to the same node.
func (c *Client) DoOnce(ctx context.Context, args ...any) *redis.Cmd {
	at := c.current.Load()
	tried := !lock.Ended(ctx)
	client := c.clients[at]
	cmd := reply(ctx, client.Do(ctx, command(client.B(), args)), args)
	if tried && lock.Elsewhere(cmd.Err()) && !errors.Is(ctx.Err(), context.Canceled) {
		c.current.CompareAndSwap(at, (at+1)%int64(len(c.clients)))
	}
	return cmd
}

// Dedicated implements lock.Dedicator. The caller must close the connection when
// the wait is over. If the wait was canceled, this removes the waiter from the
// queue of the lock.
func (c *Client) Dedicated(_ context.Context, _ string, _ time.Duration) (lock.Dedicated, error) {
	client := c.clients[c.current.Load()]
	own, _ := client.Dedicate() // Close closes the connection, so it does not return to the pool
	return lock.Dedicated{Conn: &dedicated{own}, Probe: New(client), Close: func() error {
		own.Close()
		return nil
	}}, nil
}

// dedicated is a connection for one command that waits.
type dedicated struct{ client rueidis.DedicatedClient }

// Do implements lock.Client.
func (d *dedicated) Do(ctx context.Context, args ...any) *redis.Cmd {
	return reply(ctx, d.client.Do(ctx, command(d.client.B(), args)), args)
}

// command builds a command. It marks the keys, because rueidis chooses the node of
// a Redis Cluster by the keys of a command.
func command(b rueidis.Builder, args []any) rueidis.Completed {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = fmt.Sprint(a)
	}
	first, keys := len(words), 0
	switch strings.ToUpper(words[0]) {
	case "LOCK":
		first, keys = 2, 1
	case "EVAL":
		first, keys = 3, 1
	case "SET":
		first, keys = 1, 1
	}
	first = min(first, len(words))
	last := min(first+keys, len(words))
	built := b.Arbitrary(words[:first]...).Keys(words[first:last]...).Args(words[last:]...)
	if waits(words) {
		return built.Blocking() // a command that waits has no time limit
	}
	return built.Build()
}

// waits reports whether a command is LOCK ACQUIRE with the option WAIT. The
// value of another option, such as META, may be the text WAIT too.
func waits(words []string) bool {
	if len(words) < 4 || !strings.EqualFold(words[0], "LOCK") || !strings.EqualFold(words[1], "ACQUIRE") {
		return false
	}
	for i := 4; i < len(words); i++ { // the options begin after the key and the owner
		switch strings.ToUpper(words[i]) {
		case "WAIT":
			return true
		case "PX", "META", "LIMIT":
			i++
		}
	}
	return false
}

// reply converts a reply of rueidis to one of go-redis.
func reply(ctx context.Context, r rueidis.RedisResult, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	v, err := r.ToAny()
	var refused *rueidis.RedisError
	switch {
	case rueidis.IsRedisNil(err):
		err = redis.Nil
	case errors.Is(err, rueidis.ErrClosing): // package lock does not repeat a command after this error
		err = redis.ErrClosed
	case errors.As(err, &refused):
		err = replyError(refused.Error())
	}
	if err != nil {
		cmd.SetErr(err)
		return cmd
	}
	cmd.SetVal(v)
	return cmd
}

// replyError is an error reply of the server. It implements redis.Error.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks the error as a reply of the server.
func (replyError) RedisError() {}
