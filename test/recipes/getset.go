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

// serverNow returns the time of the server's clock (TIME). The value of a lock
// is the time from which another client may take the lock over. All clients use
// the server's clock, so their own clocks need not agree.
func serverNow(ctx context.Context, c *redis.Client) (now time.Time, err error) {
	err = persist(ctx, func() error {
		now, err = c.Time(ctx).Result()
		return err
	})
	return now, err
}

// tryGetset takes the lock if it is free, or if it has expired and no other
// client was faster: GETSET returns the value of the expired lock to exactly
// one of the clients that try. tryGetset returns the value that it wrote and
// the value that it replaced, "" if the lock was free.
func tryGetset(ctx context.Context, c *redis.Client, key string, hold time.Duration) (mine, old string, taken bool,
	err error) {
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
		return "", "", false, fmt.Errorf("the value of lock %s is %q, not a time", key, seen)
	}
	if now.UnixNano() < until {
		return "", "", false, nil
	}
	// Do sends GETSET by its name, because the method GetSet of go-redis is
	// deprecated. SET with the option GET does the same.
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

// getsetDemo lets five clients compete for a lock whose owners all die while
// they hold it. Whenever the lock expires, exactly one of the five may get it.
//
// It does not compare the times of two grants. A client that loses the race
// overwrites the winner's time with its own. Its time is earlier if the client
// read the clock earlier and then was slow. In that case the next grant may
// come before the time that the winner wrote.
func getsetDemo(ctx context.Context, e *Env) error {
	const key, hold, clients, grants = "recipe:getset", 300 * time.Millisecond, 5, 8
	var granted atomic.Int64
	var replaced sync.Map // key: the value that a grant replaced; value: the value that the grant wrote
	return each(ctx, clients, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for granted.Load() < grants {
			// TIME counts microseconds. The nanoseconds that are added to hold
			// make each value unique to its writer.
			mine, old, taken, err := tryGetset(ctx, c, key, hold+time.Duration(i))
			if err != nil && !isReply(err) {
				// The connection broke, so this client does not know whether it
				// was granted the lock. It behaves as if it were not, and the
				// lock expires.
				taken, err = false, nil
			}
			if err != nil {
				return err
			}
			if taken {
				// Detect the classic race, and a write that was lost with the
				// leader: two clients replaced the same value, or both found
				// the lock free.
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
