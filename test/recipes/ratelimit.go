package recipes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// allowScript lets limit calls pass in any window of time: a sorted set holds the
// moment of each call by the server's clock, and calls that have left the window are
// removed.
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

// allow reports whether a call may pass. The call's id makes it safe to ask again.
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
	var asked []time.Time // when the calls that passed were asked for, and answered
	var answered []time.Time
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
	// Calls that were certainly executed within one window: asked for after its
	// beginning and answered before its end.
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
