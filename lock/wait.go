package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Dedicator is implemented by a Client that can open a separate connection for a
// command that waits. A redis.Client and a redis.ClusterClient need not implement
// it, because Acquire itself opens such a connection for them.
type Dedicator interface {
	// Dedicated opens a connection to the node that serves the key. The
	// connection must let a command wait for its reply for at least the
	// duration wait.
	Dedicated(ctx context.Context, key string, wait time.Duration) (Dedicated, error)
}

// Dedicated is a connection for a command that waits.
type Dedicated struct {
	Conn Client // sends the command that waits
	// Probe is a client of the same node that uses another connection. Acquire
	// sends PING over it, in order to notice a failure of the node.
	Probe Client
	// Close closes the connection, even while a command waits.
	Close func() error
}

const (
	// probeEvery is the interval at which a waiting Acquire probes whether its
	// node is alive.
	probeEvery = 2 * time.Second
	// probeLimit is the time within which a node must answer a probe.
	probeLimit = 5 * time.Second
	// replyMargin is the time after the end of a wait within which the reply
	// may still arrive.
	replyMargin = 5 * time.Second
)

// queue waits in the queue of the lock, on a separate connection. A waiter leaves
// the queue when its connection ends. So a canceled Acquire gives up its position
// by closing the connection.
func (a *attempt) queue(ctx context.Context) (grant, error) {
	wait := longestWait
	if !a.until.IsZero() {
		wait = min(wait, time.Until(a.until))
	}
	own, err := dedicate(ctx, a.client, a.key, wait+replyMargin)
	if err != nil {
		return grant{}, err
	}
	waiting, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	probed := make(chan struct{})
	go func() {
		defer close(probed)
		probe(waiting, leave, own.Probe)
	}()
	g, err := a.send(waiting, own.Conn, wait)
	if waiting.Err() != nil && ctx.Err() == nil {
		err = context.Cause(waiting)
	}
	leave(nil)
	<-probed
	if cerr := own.Close(); cerr != nil && err == nil && !errors.Is(cerr, redis.ErrClosed) {
		err = fmt.Errorf("close the connection of a wait: %w", cerr)
	}
	if err != nil {
		return g, err
	}
	// The lease began at an unknown time during the wait.
	return a.renew(ctx, g)
}

// probe ends the wait when the node no longer answers. Without probe, Acquire would
// notice a failure of the node's host only at the end of the wait.
func probe(ctx context.Context, leave context.CancelCauseFunc, client Client) {
	t := time.NewTicker(probeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		limited, stop := context.WithTimeout(ctx, probeLimit)
		_, err := call(limited, client, "PING")
		stop()
		if err != nil && ctx.Err() == nil {
			leave(fmt.Errorf("the node does not answer: %w", err))
			return
		}
	}
}

// dedicate opens a separate connection for a wait.
func dedicate(ctx context.Context, client Client, key string, wait time.Duration) (Dedicated, error) {
	switch c := client.(type) {
	case Dedicator:
		return c.Dedicated(ctx, key, wait)
	case *redis.Client:
		return ownConnection(c, wait), nil
	case interface {
		MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	}:
		node, err := c.MasterForKey(ctx, key)
		if err != nil {
			return Dedicated{}, fmt.Errorf("find the node of a key: %w", err)
		}
		return ownConnection(node, wait), nil
	}
	return Dedicated{}, fmt.Errorf("a client of type %T cannot wait for a lock: use WithWait(0), or implement "+
		"lock.Dedicator", client)
}

// ownConnection opens a separate connection to the node of c. Its client does
// not retry commands, because Acquire retries them itself.
func ownConnection(c *redis.Client, wait time.Duration) Dedicated {
	opt := *c.Options()
	opt.PoolSize, opt.MinIdleConns, opt.MaxIdleConns, opt.MaxActiveConns = 1, 0, 0, 0
	opt.ReadTimeout = wait
	opt.MaxRetries = -1
	own := redis.NewClient(&opt)
	return Dedicated{Conn: own, Probe: c, Close: own.Close}
}
