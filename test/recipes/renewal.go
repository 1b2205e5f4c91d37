package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// errLost says that a lock ran out before it could be renewed.
var errLost = errors.New("lock lost")

var renewScript = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("pexpire", KEYS[1], ARGV[2])
end
return 0`)

// keep renews the lock every third of ttl while work runs, and cancels work's
// context when the lock is gone, or when it has to be feared gone: a renewal that
// was not answered within ttl, counted from when the last good one was sent.
func (l *lease) keep(ctx context.Context, ttl time.Duration, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	defer cancel(nil)
	sure := time.Now().Add(ttl)
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(ttl / 3):
		}
		sent := time.Now()
		one, stop := context.WithDeadline(ctx, sure)
		n, err := renewScript.Run(one, l.c, []string{l.key}, l.token, ttl.Milliseconds()).Int()
		stop()
		switch {
		case err == nil && n == 1:
			sure = sent.Add(ttl)
		case err == nil, time.Now().After(sure):
			cancel(errLost)
			return errors.Join(errLost, <-done)
		}
	}
}

// page: end

// renewalDemo holds a lock of one second through several seconds of work and a
// dead leader, while others try to get it; then it stops renewing and somebody
// else has to get it.
func renewalDemo(ctx context.Context, e *Env) error {
	const key, ttl = "recipe:renewal", 2 * time.Second
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
				return wait(ctx, 2*ttl) // much longer than one TTL
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
					// The owner may have ended its work between the two looks.
					select {
					case <-worked:
					case <-time.After(100 * time.Millisecond):
						return fmt.Errorf("a second owner while the first still renewed")
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
