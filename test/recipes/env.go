package recipes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Env is where a demonstration runs.
type Env struct {
	Addrs []string // client addresses of a cluster's nodes
	// Others are the addresses of two more clusters, an address each, for the
	// recipe that wants independent ones. Empty: there are none.
	Others []string
	// Middle is called once, when a demonstration is half done, for whoever wants
	// to break something at that moment. It returns when the harm is done.
	Middle func()
	// Log says what happens.
	Log func(format string, args ...any)

	mu      sync.Mutex
	clients []*redis.Client
	middle  sync.Once
}

// Client returns a client that prefers node i and goes on with the next node when
// one does not answer. It does not repeat commands by itself: a repeated SETNX
// would be answered "taken" by the client's own first one. Safe for concurrent use;
// Close closes it.
func (e *Env) Client(i int) *redis.Client { return e.client(e.Addrs, i) }

func (e *Env) client(addrs []string, i int) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr:       addrs[i%len(addrs)],
		MaxRetries: -1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var errs []error
			for k := range addrs {
				d := net.Dialer{Timeout: time.Second}
				conn, err := d.DialContext(ctx, network, addrs[(i+k)%len(addrs)])
				if err == nil {
					return conn, nil
				}
				errs = append(errs, err)
			}
			return nil, errors.Join(errs...)
		},
	})
	e.mu.Lock()
	e.clients = append(e.clients, c)
	e.mu.Unlock()
	return c
}

// Close closes the clients.
func (e *Env) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, c := range e.clients {
		errs = append(errs, c.Close())
	}
	e.clients = nil
	return errors.Join(errs...)
}

// half calls Middle, the first time.
func (e *Env) half() {
	e.middle.Do(func() {
		if e.Middle != nil {
			e.Middle()
		}
	})
}

// token returns a value that nobody else has.
func token() string { return rand.Text() }

// each runs f for 0 to n-1, all at the same time, and waits. The first error ends
// the context of the others.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(ctx, i); err != nil {
				cancel(fmt.Errorf("worker %d: %w", i, err))
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// wait waits for d, or until ctx ends. It is what a client does between two tries.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// persist repeats f while it fails because a node could not be reached: for
// commands that may be repeated.
func persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || errors.Is(err, redis.Nil) || isReply(err) {
			return err
		}
		if werr := wait(ctx, 20*time.Millisecond); werr != nil {
			return errors.Join(err, werr)
		}
	}
}

// isReply tells an answer of the server from a broken connection.
func isReply(err error) bool {
	var r redis.Error
	return errors.As(err, &r)
}
