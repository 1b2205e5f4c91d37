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

// newRedlock returns the client of a Redlock library for the given servers. The
// client takes each lock on a majority of the servers.
func newRedlock(clients ...*goredis9.Client) *redsync.Redsync {
	var pools []redis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	return redsync.New(pools...)
}

// page: end

// redlockDemo first tries to take a lock on three nodes of the cluster as if
// they were independent, which must fail. It then takes locks through one node,
// which is sufficient. If there are more clusters, it also takes locks on three
// clusters; such a lock survives the loss of one cluster.
func redlockDemo(ctx context.Context, e *Env) error {
	one := func(i int) *redsync.Redsync { return newRedlock(e.Client(i)) }
	if err := redlockNodes(ctx, e); err != nil {
		return fmt.Errorf("lock on the nodes of one cluster: %w", err)
	}
	if err := redlockRounds(ctx, e, "recipe:redlock:one", one); err != nil {
		return fmt.Errorf("lock on one cluster: %w", err)
	}
	if len(e.Others) < 2 {
		return nil
	}
	three := func(i int) *redsync.Redsync {
		return newRedlock(e.Client(i), e.client(e.Others[:1], 0), e.client(e.Others[1:2], 0))
	}
	if err := redlockRounds(ctx, e, "recipe:redlock:three", three); err != nil {
		return fmt.Errorf("lock on three clusters: %w", err)
	}
	return nil
}

// redlockNodes gives the client three nodes of one cluster. All of them have
// the same keys, so the second SET NX finds the key of the first, and the
// client never gets a majority. The client must not report that it has the
// lock, and must leave no key behind.
func redlockNodes(ctx context.Context, e *Env) error {
	if len(e.Addrs) < 3 {
		return nil
	}
	const key = "recipe:redlock:nodes"
	m := newRedlock(e.Client(0), e.Client(1), e.Client(2)).NewMutex(key, redsync.WithExpiry(20*time.Second),
		redsync.WithTries(3))
	if err := m.LockContext(ctx); err == nil {
		return errors.New("the client got a majority although all nodes have the same lock")
	}
	var left int64
	err := persist(ctx, func() (err error) {
		left, err = e.Client(0).Exists(ctx, key).Result()
		return err
	})
	if err == nil && left != 0 {
		err = errors.New("the keys of a failed attempt were not deleted")
	}
	return err
}

func redlockRounds(ctx context.Context, e *Env, key string, client func(i int) *redsync.Redsync) error {
	const workers, rounds = 3, 6
	var r region
	return each(ctx, workers, func(ctx context.Context, i int) error {
		rs, who := client(i), fmt.Sprint("worker-", i)
		for n := 0; n < rounds; n++ {
			m := rs.NewMutex(key, redsync.WithExpiry(20*time.Second), redsync.WithTries(2000),
				redsync.WithRetryDelay(10*time.Millisecond))
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
			for err != nil && !ok && ctx.Err() == nil { // a node was down: delete the remaining keys
				var taken *redsync.ErrTaken
				if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
					break // an earlier attempt succeeded, but its reply was lost
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
