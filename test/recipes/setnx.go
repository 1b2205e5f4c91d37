package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// lockSetnx takes a lock that has no time to live. It repeats SetNX until the
// lock belongs to me.
func lockSetnx(ctx context.Context, c *redis.Client, key, me string) error {
	uncertain := false
	for {
		taken, err := c.SetNX(ctx, key, me, 0).Result()
		uncertain = uncertain || err != nil
		if uncertain && !taken {
			// The connection broke before the reply came. The command may have
			// been executed, or may be executed later. So read which client
			// owns the lock.
			err = persist(ctx, func() error {
				owner, err := c.Get(ctx, key).Result()
				taken = owner == me
				if err == redis.Nil {
					return nil
				}
				return err
			})
		}
		if err != nil || taken {
			return err
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// unlockSetnx releases the lock. After a broken connection, it repeats DEL only
// if the lock still belongs to me. Otherwise an earlier DEL was executed, and
// another client may have the lock.
func unlockSetnx(ctx context.Context, c *redis.Client, key, me string) error {
	_, err := c.Del(ctx, key).Result()
	for err != nil {
		var owner string
		if owner, err = c.Get(ctx, key).Result(); err == redis.Nil || err == nil && owner != me {
			return nil // an earlier DEL was executed
		}
		if err == nil {
			_, err = c.Del(ctx, key).Result()
		}
		if err != nil {
			if werr := wait(ctx, 20*time.Millisecond); werr != nil {
				return werr
			}
		}
	}
	return nil
}

// page: end

func setnxDemo(ctx context.Context, e *Env) error {
	const workers, rounds = 4, 12
	var r region
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c, who := e.Client(i), fmt.Sprint("worker-", i)
		for range rounds {
			if err := lockSetnx(ctx, c, "recipe:setnx", who); err != nil {
				return err
			}
			if err := r.enter(who, false); err != nil {
				return err
			}
			if r.count() == workers*rounds/2 {
				e.half() // the lock is taken while the leader dies
			}
			r.leave(who)
			if err := unlockSetnx(ctx, c, "recipe:setnx", who); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && r.count() != workers*rounds {
		err = fmt.Errorf("%d grants, want %d", r.count(), workers*rounds)
	}
	return err
}
