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

// once runs f unless it has been run by anybody, ever, and returns when it has been.
// The flag has no time to live; the lock that guards the run has one, so that
// another may start over when the one who was at it died.
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
		yes, err := done() // between the look and the lock somebody may have been quicker
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
	const things, workers = 20, 4
	var ran [things]atomic.Int64
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for n := range things {
			err := once(ctx, c, fmt.Sprint("recipe:once:", n), func() error {
				ran[n].Add(1)
				if n == things/2 {
					e.half()
				}
				return nil
			})
			if err != nil {
				return err
			}
			if got := ran[n].Load(); got != 1 {
				return fmt.Errorf("thing %d ran %d times", n, got)
			}
		}
		return nil
	})
	return err
}
