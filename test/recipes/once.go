package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// once runs f unless some client has run it before, and returns when f has run.
// The flag has no time to live. The lock that guards the run has one, so that
// another client can run f if the client that runs it dies.
func once(ctx context.Context, c *redis.Client, name string, f func() error) error {
	flag, lock := name+":done", name+":lock"
	done := func() (yes bool, err error) {
		err = persist(ctx, func() error {
			n, err := c.Exists(ctx, flag).Result()
			yes = n == 1
			return err
		})
		return yes, err
	}
	for {
		if yes, err := done(); yes || err != nil {
			return err
		}
		l, err := acquire(ctx, c, lock, time.Minute)
		if err != nil {
			return err
		}
		if l == nil {
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		yes, err := done() // another client may have run f before this one got the lock
		if err == nil && !yes {
			if err = f(); err == nil {
				err = persist(ctx, func() error { return c.Set(ctx, flag, l.token, 0).Err() })
			}
		}
		return errors.Join(err, l.release(ctx))
	}
}

// page: end

func onceDemo(ctx context.Context, e *Env) error {
	const jobs, workers = 20, 4
	var ran [jobs]atomic.Int64
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for n := range jobs {
			err := once(ctx, c, fmt.Sprint("recipe:once:", n), func() error {
				ran[n].Add(1)
				if n == jobs/2 {
					e.half()
				}
				return nil
			})
			if err != nil {
				return err
			}
			if got := ran[n].Load(); got != 1 {
				return fmt.Errorf("job %d ran %d times, want once", n, got)
			}
		}
		return nil
	})
	return err
}
