package recipes

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// page: begin

// nextNumber returns first, first+1, … to its callers. SET NX sets the counter
// to first-1 if it has no value, and INCR adds 1. Both are in one transaction,
// so no client sees the counter between them.
func nextNumber(ctx context.Context, c *redis.Client, key string, first int64) (n int64, err error) {
	var count *redis.IntCmd
	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SetNX(ctx, key, first-1, 0)
		count = p.Incr(ctx, key)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return count.Val(), nil
}

// page: end

// counterDemo draws numbers with many clients. If a connection breaks, the
// counter may grow although no client receives the number. So the numbers are
// unique, but may have gaps.
func counterDemo(ctx context.Context, e *Env) error {
	const first, workers, draws = 1000, 5, 40
	var mu sync.Mutex
	seen := make(map[int64]bool)
	lost := 0
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c := e.Client(i)
		last := int64(0)
		for range draws {
			n, err := nextNumber(ctx, c, "recipe:counter", first)
			if err != nil {
				if isReply(err) || ctx.Err() != nil {
					return err
				}
				mu.Lock()
				lost++
				mu.Unlock()
				continue
			}
			mu.Lock()
			again, half := seen[n], len(seen) == workers*draws/2
			seen[n] = true
			mu.Unlock()
			if again || n <= last || n < first {
				return fmt.Errorf("drew %d (already drawn by some client: %v); this client's previous number was %d",
					n, again, last)
			}
			last = n
			if half {
				e.half()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	highest := int64(first - 1)
	for n := range seen {
		highest = max(highest, n)
	}
	if gaps := int(highest-first+1) - len(seen); gaps > lost {
		return fmt.Errorf("%d numbers are missing, but only %d replies were lost", gaps, lost)
	}
	return nil
}
