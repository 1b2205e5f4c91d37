package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
)

// page: begin

// newRedlock makes the client of a Redlock library for the given servers: it takes
// a lock at a majority of them.
func newRedlock(clients ...*goredis9.Client) *redsync.Redsync {
	var pools []redis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	return redsync.New(pools...)
}

// page: end

// redlockDemo takes locks at one node of the cluster, which is all that is needed,
// then tries all nodes of the cluster as if they were independent, and, where there
// are more clusters, takes locks at three of them, of which one may be lost as a
// whole.
func redlockDemo(ctx context.Context, e *Env) error {
	one := func(i int) *redsync.Redsync { return newRedlock(e.Client(i)) }
	if err := redlockNodes(ctx, e); err != nil {
		return fmt.Errorf("the nodes of one cluster: %w", err)
	}
	if err := redlockRounds(ctx, e, "recipe:redlock:one", one); err != nil {
		return fmt.Errorf("one cluster: %w", err)
	}
	if len(e.Others) < 2 {
		return nil
	}
	three := func(i int) *redsync.Redsync {
		return newRedlock(e.Client(i), e.client(e.Others[:1], 0), e.client(e.Others[1:2], 0))
	}
	if err := redlockRounds(ctx, e, "recipe:redlock:three", three); err != nil {
		return fmt.Errorf("three clusters: %w", err)
	}
	return nil
}

// redlockNodes points the client at three nodes of one cluster. They are one place,
// not three: the second SET NX finds the first, so the client never has a majority.
// It must not believe that it has the lock, and must leave nothing behind.
func redlockNodes(ctx context.Context, e *Env) error {
	if len(e.Addrs) < 3 {
		return nil
	}
	const key = "recipe:redlock:nodes"
	m := newRedlock(e.Client(0), e.Client(1), e.Client(2)).NewMutex(key, redsync.WithExpiry(20*time.Second), redsync.WithTries(3))
	if err := m.LockContext(ctx); err == nil {
		return errors.New("a majority, though there is only one lock")
	}
	var left int64
	err := persist(ctx, func() (err error) {
		left, err = e.Client(0).Exists(ctx, key).Result()
		return err
	})
	if err == nil && left != 0 {
		err = errors.New("the lock that nobody got is still held")
	}
	return err
}

func redlockRounds(ctx context.Context, e *Env, key string, client func(i int) *redsync.Redsync) error {
	const workers, rounds = 3, 6
	var r region
	return each(ctx, workers, func(ctx context.Context, i int) error {
		rs, who := client(i), fmt.Sprint("worker-", i)
		for n := 0; n < rounds; n++ {
			m := rs.NewMutex(key, redsync.WithExpiry(20*time.Second), redsync.WithTries(2000), redsync.WithRetryDelay(10*time.Millisecond))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			if err := r.enter(who, false); err != nil {
				return err
			}
			if r.count() == workers*rounds/2 {
				e.half()
			}
			r.leave(who)
			ok, err := m.UnlockContext(ctx)
			for err != nil && !ok && ctx.Err() == nil { // a node was gone: give back what is left
				var taken *redsync.ErrTaken
				if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
					break // the first try went through, though its answer was lost
				}
				if werr := wait(ctx, 10*time.Millisecond); werr != nil {
					return werr
				}
				ok, err = m.UnlockContext(ctx)
			}
		}
		return nil
	})
}
