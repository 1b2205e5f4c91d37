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

// errLost means that a lock expired before it could be renewed.
var errLost = errors.New("lock lost")

var renewScript = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`)

// keep runs work and renews the lock, which was taken for ttl, every third of
// ttl. It cancels the context of work if a renewal finds that the lock is lost.
// It also cancels the context when ttl has passed since the client sent the
// last successful command, because the lock may then have expired.
func (l *lease) keep(ctx context.Context, ttl time.Duration, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := time.AfterFunc(time.Until(l.sent.Add(ttl)), func() { cancel(errLost) })
	defer end.Stop()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	for pause := ttl / 3; ; {
		select {
		case err := <-done:
			return errors.Join(context.Cause(ctx), err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), <-done)
		case <-time.After(pause):
		}
		sent := time.Now()
		n, err := renewScript.Run(ctx, l.c, []string{l.key}, l.token, ttl.Milliseconds()).Int()
		switch {
		case err == nil && n == 1:
			end.Reset(time.Until(sent.Add(ttl)))
			pause = ttl / 3
		case err == nil:
			cancel(errLost)
		default: // the cluster has not answered: there may be time for another attempt
			pause = ttl / 20
		}
	}
}

// page: end

// renewalDemo keeps a lock through several seconds of work and the death of the
// leader, while another client tries to take it. It then stops renewing, and
// the other client must get the lock.
//
// If the machine stalls for one TTL, the owner loses the lock, and keep must
// report the loss. In that case the demonstration starts again with a longer
// TTL.
func renewalDemo(ctx context.Context, e *Env) error {
	for ttl := 2 * time.Second; ; ttl *= 2 {
		if err := renewed(ctx, e, ttl); ttl > 5*time.Second || !errors.Is(err, errLost) {
			return err
		}
		e.middle = sync.Once{} // so that Middle is called in this attempt too
	}
}

func renewed(ctx context.Context, e *Env, ttl time.Duration) error {
	const key = "recipe:renewal"
	mine, err := take(ctx, e.Client(0), key, ttl)
	if err != nil {
		return err
	}
	worked := make(chan struct{})
	return each(ctx, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			defer close(worked)
			return mine.keep(ctx, ttl, func(ctx context.Context) error {
				if err := wait(ctx, ttl/2); err != nil {
					return err
				}
				e.half()
				return wait(ctx, 2*ttl) // longer than one TTL
			})
		}
		c := e.Client(1)
		for {
			l, err := acquire(ctx, c, key, ttl)
			if err != nil {
				return err
			}
			select {
			case <-worked:
				if l != nil {
					return l.release(ctx)
				}
			default:
				if l != nil {
					// The owner may have ended its work before acquire took the
					// lock, and may not have closed worked yet.
					select {
					case <-worked:
					case <-time.After(100 * time.Millisecond):
						return fmt.Errorf("another client got the lock while its owner renewed it")
					}
					return l.release(ctx)
				}
			}
			if err := wait(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
	})
}
