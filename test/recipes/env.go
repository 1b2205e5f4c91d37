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

// Env is the environment of a demonstration.
type Env struct {
	Addrs []string // client addresses of a cluster's nodes
	// Others contains one address of each of two more clusters, for the recipe
	// that needs independent clusters. It is empty if there are none.
	Others []string
	// Middle is called once, in the middle of a demonstration. It lets the
	// program that runs the demonstration inject a fault, and returns when this
	// is done.
	Middle func()
	// Log logs the steps of the demonstration.
	Log func(format string, args ...any)

	mu      sync.Mutex
	clients []*redis.Client
	middle  sync.Once
}

// Client returns a client that prefers node i. If the client cannot connect to
// a node, it connects to the next one. It never repeats a command: if it
// repeated a SETNX, the reply would say that the lock is taken, although the
// client's own first SETNX has taken it. The client is safe for concurrent use.
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

// half calls Middle when it is called for the first time. Later calls do
// nothing.
func (e *Env) half() {
	e.middle.Do(func() {
		if e.Middle != nil {
			e.Middle()
		}
	})
}

// token returns a unique value.
func token() string { return rand.Text() }

// each calls f concurrently with the numbers 0 to n-1, and waits until all
// calls return. The first error cancels the context of the other calls.
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

// wait waits for d, or until ctx ends. Clients wait in this way between two
// attempts.
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

// persist repeats f while f fails because a node could not be reached. It is
// only for commands that may be repeated.
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

// isReply reports whether an error is a reply of the server, and not a broken
// connection.
func isReply(err error) bool {
	var r redis.Error
	return errors.As(err, &r)
}
