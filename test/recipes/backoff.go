package recipes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// backoff returns how long to wait after try number n has failed. The wait is
// random, so that waiting clients do not all try again at the same moment. Its
// upper bound doubles with every try up to a limit, and exceeds the remaining
// TTL of the lock by at most 1 ms.
func backoff(ctx context.Context, c *redis.Client, key string, n int) (time.Duration, error) {
	const first, limit = 2 * time.Millisecond, 200 * time.Millisecond
	d := min(first<<min(n, 10), limit)
	var left time.Duration
	err := persist(ctx, func() (err error) {
		left, err = c.PTTL(ctx, key).Result()
		return err
	})
	if err != nil {
		return 0, err
	}
	if left > 0 { // -1 and -2 mean that there is no TTL, or no lock
		d = min(d, left)
	}
	return time.Millisecond + rand.N(d), nil
}

func acquirePatiently(ctx context.Context, c *redis.Client, key string, ttl time.Duration) (l *lease, tries int, err error) {
	for tries = 1; ; tries++ {
		if l, err = acquire(ctx, c, key, ttl); err != nil || l != nil {
			return l, tries, err
		}
		d, err := backoff(ctx, c, key, tries)
		if err != nil {
			return nil, tries, err
		}
		if err := wait(ctx, d); err != nil {
			return nil, tries, err
		}
	}
}

// page: end

func backoffDemo(ctx context.Context, e *Env) error {
	const workers, rounds = 8, 4
	var r region
	return each(ctx, workers, func(ctx context.Context, i int) error {
		c, who := e.Client(i), fmt.Sprint("worker-", i)
		for range rounds {
			l, _, err := acquirePatiently(ctx, c, "recipe:backoff", time.Minute)
			if err != nil {
				return err
			}
			if err := r.enter(who, false); err != nil {
				return err
			}
			if r.count() == workers*rounds/2 {
				e.half()
			}
			r.leave(who)
			if err := l.release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
