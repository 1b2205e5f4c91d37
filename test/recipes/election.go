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

// campaign calls lead whenever this process is elected. The context of lead
// ends when the process stops being the leader. lead gets the fencing token of the
// election, which is higher than those of all earlier leaders, and sends it with
// each of its writes. campaign returns when ctx ends, or when lead returns while the
// process leads.
func campaign(ctx context.Context, c *redis.Client, key string, ttl time.Duration,
	lead func(ctx context.Context, fence int64) error) error {
	for {
		l, err := acquire(ctx, c, key, ttl)
		if err != nil {
			return err
		}
		if l == nil {
			if err := wait(ctx, ttl/10); err != nil {
				return nil
			}
			continue
		}
		err = l.keep(ctx, ttl, func(ctx context.Context) error { return lead(ctx, l.fence) })
		if errors.Is(err, errLost) {
			continue
		}
		return errors.Join(err, l.release(ctx))
	}
}

// page: end

// electionDemo runs three candidates, each of which resigns after a while. At
// most one candidate may lead at a time, and lead must be called at least three
// times in all.
func electionDemo(ctx context.Context, e *Env) error {
	const key, ttl, candidates = "recipe:election", 3 * time.Second, 3
	var r region
	var s store
	var led atomic.Int64
	err := each(ctx, candidates, func(ctx context.Context, i int) error {
		who := fmt.Sprint("candidate-", i)
		return campaign(ctx, e.Client(i), key, ttl, func(ctx context.Context, fence int64) error {
			if err := r.enter(who, false); err != nil {
				return err
			}
			defer r.leave(who)
			if err := s.write(fence, who); err != nil {
				return err
			}
			if led.Add(1) == 2 {
				e.half()
			}
			return ignoreLost(wait(ctx, ttl/2))
		})
	})
	if err == nil && led.Load() < candidates {
		err = fmt.Errorf("%d candidates have led, want %d", led.Load(), candidates)
	}
	return err
}

// ignoreLost returns nil for errLost, because a leader that loses its
// leadership stops as it should.
func ignoreLost(err error) error {
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}
