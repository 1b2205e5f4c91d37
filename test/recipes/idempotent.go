package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// handleOnce runs handle unless the message was handled before. It marks a
// message twice. The first mark, the token of a lease, lasts for the duration
// work, so that another client can take over if this one dies. The second mark,
// "done:" and the token, lasts for the duration remember, in which the message
// may be delivered again.
func handleOnce(ctx context.Context, c *redis.Client, id string, work, remember time.Duration, handle func() error) (handled bool, err error) {
	key := "recipe:idempotent:" + id
	l, err := acquire(ctx, c, key, work)
	if err != nil || l == nil {
		return false, err // done, or another client is working on it
	}
	if err := handle(); err != nil {
		return false, errors.Join(err, l.release(ctx)) // the next delivery may try again
	}
	// Replace the first mark with the second if the first still belongs to this
	// client. Otherwise this client was too slow, and another client may have
	// taken over and may handle the message too. The command may be repeated.
	err = persist(ctx, func() error {
		err := c.Do(ctx, "SET", key, "done:"+l.token, "PX", remember.Milliseconds(), "IFEQ", l.token).Err()
		if err == redis.Nil {
			if now, gerr := c.Get(ctx, key).Result(); gerr == nil && now == "done:"+l.token {
				return nil // an earlier attempt succeeded, but its reply was lost
			}
			return fmt.Errorf("message %s: %w", id, errLost)
		}
		return err
	})
	return err == nil, err
}

// page: end

func idempotentDemo(ctx context.Context, e *Env) error {
	const messages, deliveries = 30, 3
	var mu sync.Mutex
	handled := make(map[string]int)
	err := each(ctx, deliveries, func(ctx context.Context, i int) error {
		c := e.Client(i)
		for n := range messages {
			id := fmt.Sprint("message-", (n+i*7)%messages)
			for {
				_, err := handleOnce(ctx, c, id, time.Minute, time.Hour, func() error {
					mu.Lock()
					defer mu.Unlock()
					handled[id]++
					return nil
				})
				if err == nil {
					break
				}
				if isReply(err) || ctx.Err() != nil {
					return err
				}
				if werr := wait(ctx, 20*time.Millisecond); werr != nil {
					return werr
				}
			}
			if i == 0 && n == messages/2 {
				e.half()
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for n := range messages {
		if id := fmt.Sprint("message-", n); handled[id] != 1 {
			return fmt.Errorf("%s was handled %d times, want once", id, handled[id])
		}
	}
	return nil
}
