package lock

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Repeater is implemented by a Client whose Do may send a command several times.
// Release uses DoOnce, because it must know whether an earlier command may have
// released the lock.
type Repeater interface {
	// DoOnce sends a command to one node. If that node does not answer, the next
	// command goes to another node.
	DoOnce(ctx context.Context, args ...any) *redis.Cmd
}

// once is a Client that sends each command once. It can prevent a repetition only
// if the client of the caller is a Repeater or a client of go-redis.
type once struct{ client Client }

func (o once) Do(ctx context.Context, args ...any) *redis.Cmd {
	switch c := o.client.(type) {
	case Repeater:
		return c.DoOnce(ctx, args...)
	case interface {
		Process(ctx context.Context, cmd redis.Cmder) error
	}:
		cmd := unrepeated{redis.NewCmd(ctx, args...)}
		if err := c.Process(ctx, cmd); err != nil {
			cmd.SetErr(err)
		}
		return cmd.Cmd
	}
	return o.client.Do(ctx, args...)
}

// unrepeated is a command that the clients of go-redis send only once.
type unrepeated struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (unrepeated) NoRetry() bool { return true }

// mayHaveRun reports whether a command that failed with err may have been executed.
func mayHaveRun(err error) bool {
	var reply redis.Error
	if errors.As(err, &reply) {
		return strings.HasPrefix(reply.Error(), "UNKNOWN")
	}
	var op *net.OpError
	return !errors.As(err, &op) || op.Op != "dial"
}
