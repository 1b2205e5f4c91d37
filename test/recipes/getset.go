package recipes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// The value of this lock is the moment at which it may be taken over, on the clock
// of the server (TIME), so that clients whose clocks differ agree.
func serverNow(ctx context.Context, c *redis.Client) (now time.Time, err error) {
	err = persist(ctx, func() error {
		now, err = c.Time(ctx).Result()
		return err
	})
	return now, err
}

// tryGetset takes the lock if it is free, or if its time is over and no other client
// was faster: GETSET returns the replaced value to exactly one of the clients that
// try. tryGetset returns the value that it wrote and the value that it replaced,
// none if the lock was free.
func tryGetset(ctx context.Context, c *redis.Client, key string, hold time.Duration) (mine, old string, taken bool, err error) {
	now, err := serverNow(ctx, c)
	if err != nil {
		return "", "", false, err
	}
	mine = strconv.FormatInt(now.Add(hold).UnixNano(), 10)
	if taken, err = c.SetNX(ctx, key, mine, 0).Result(); err != nil || taken {
		return mine, "", taken, err
	}
	seen, err := c.Get(ctx, key).Result()
	if err != nil {
		return "", "", false, ignoreNil(err)
	}
	until, err := strconv.ParseInt(seen, 10, 64)
	if err != nil {
		return "", "", false, fmt.Errorf("lock %s holds %q, which is no time", key, seen)
	}
	if now.UnixNano() < until {
		return "", "", false, nil
	}
	// Sent by name: newer client libraries have only SET with GET, which is the same.
	replaced, err := c.Do(ctx, "GETSET", key, mine).Text()
	if err != nil {
		return "", "", false, ignoreNil(err)
	}
	return mine, seen, replaced == seen, nil
}

// page: end

func ignoreNil(err error) error {
	if err == redis.Nil {
		return nil
	}
	return err
}

// getsetDemo lets five clients fight for a lock whose owners all die while they
// hold it: every time the lock runs out, exactly one of the five may get it.
//
// It does not compare the moments of two grants. A loser of the race overwrites the
// winner's moment with its own, which is the earlier one if it asked for the time
// first and then was slow; the next grant may then come before the winner's end.
func getsetDemo(ctx context.Context, e *Env) error {
	const key, hold, clients, grants = "recipe:getset", 300 * time.Millisecond, 5, 8
	var granted atomic.Int64
	var replaced sync.Map // the value each grant replaced -> the value it wrote
	return each(ctx, clients, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for granted.Load() < grants {
			// TIME counts microseconds: the number below them makes each value its writer's.
			mine, old, taken, err := tryGetset(ctx, c, key, hold+time.Duration(i))
			if err != nil && !isReply(err) {
				// A broken connection: this client does not know whether it was granted
				// the lock. It behaves as if not; the lock runs out by itself.
				taken, err = false, nil
			}
			if err != nil {
				return err
			}
			if taken {
				// The classic race, and a write lost with the leader: two clients are told
				// that they replaced the same value, or both that the lock was free.
				if other, twice := replaced.LoadOrStore(old, mine); twice {
					return fmt.Errorf("granted twice: %s and %s both replaced %q", other, mine, old)
				}
				if granted.Add(1) == grants/2 {
					e.half()
				}
			}
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
}
