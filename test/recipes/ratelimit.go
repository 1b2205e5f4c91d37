package recipes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// allowScript admits at most limit calls in any period of length window. A
// sorted set contains the time of each admitted call by the server's clock. The
// script removes calls that are older than the window.
var allowScript = redis.NewScript(`
local t = redis.call("time")
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local window, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call("zremrangebyscore", KEYS[1], "-inf", now - window)
if redis.call("zscore", KEYS[1], ARGV[3]) then
	return 1
end
if redis.call("zcard", KEYS[1]) >= limit then
	return 0
end
redis.call("zadd", KEYS[1], now, ARGV[3])
redis.call("pexpire", KEYS[1], window)
return 1`)

// allow reports whether a call is admitted. The request may be repeated,
// because a call with the same id counts once.
func allow(ctx context.Context, c *redis.Client, key, id string, limit int, window time.Duration) (ok bool, err error) {
	err = persist(ctx, func() error {
		n, err := allowScript.Run(ctx, c, []string{key}, window.Milliseconds(), limit, id).Int()
		ok = n == 1
		return err
	})
	return ok, err
}

// page: end

func ratelimitDemo(ctx context.Context, e *Env) error {
	const workers, limit, window = 4, 10, time.Second
	var mu sync.Mutex
	var asked []time.Time    // when the admitted calls were sent
	var answered []time.Time // when the replies to these calls arrived
	begun := time.Now()
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for time.Since(begun) < 4*window {
			before := time.Now()
			ok, err := allow(ctx, c, "recipe:ratelimit", token(), limit, window)
			if err != nil {
				return err
			}
			after := time.Now()
			if ok {
				mu.Lock()
				asked, answered = append(asked, before), append(answered, after)
				half := len(asked) == limit+limit/2
				mu.Unlock()
				if half {
					e.half()
				}
			}
			if err := wait(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(asked) < 2*limit {
		return fmt.Errorf("only %d calls passed in four windows", len(asked))
	}
	// Count the calls that were certainly executed within one window: they were
	// sent after its beginning, and their replies arrived before its end.
	for i := range asked {
		n := 0
		for k := range asked {
			if !asked[k].Before(asked[i]) && answered[k].Before(asked[i].Add(window-50*time.Millisecond)) {
				n++
			}
		}
		if n > limit {
			return fmt.Errorf("%d calls in one window, the limit is %d", n, limit)
		}
	}
	return nil
}
