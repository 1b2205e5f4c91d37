package recipes

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// arrive reports that me has reached the barrier, and waits until n
// participants have reached it. A set counts each participant once, even if it
// reports twice.
func arrive(ctx context.Context, c *redis.Client, key, me string, n int64) error {
	err := persist(ctx, func() error { return c.SAdd(ctx, key, me).Err() })
	for err == nil {
		var here int64
		err = persist(ctx, func() (err error) {
			here, err = c.SCard(ctx, key).Result()
			return err
		})
		if err != nil || here >= n {
			return err
		}
		err = wait(ctx, 5*time.Millisecond)
	}
	return err
}

// page: end

func barrierDemo(ctx context.Context, e *Env) error {
	const workers, phases = 5, 6
	var reached [phases]atomic.Int64
	return each(ctx, workers, func(ctx context.Context, i int) error {
		c, me := e.Client(i), fmt.Sprint("worker-", i)
		for p := range phases {
			if i == 0 && p == phases/2 {
				e.half() // at this moment the other workers wait for this one
			}
			reached[p].Add(1)
			if err := arrive(ctx, c, fmt.Sprint("recipe:barrier:", p), me, workers); err != nil {
				return err
			}
			if n := reached[p].Load(); n != workers {
				return fmt.Errorf("the barrier of phase %d opened when %d of %d workers had arrived", p, n, workers)
			}
		}
		return nil
	})
}
