package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// The lock is a hash with three fields: the owner, how often the owner has
// entered (depth), and the id of the last step.
var (
	// enterScript returns the new depth, or 0 if another owner has the lock.
	// Each call has an id, so a call that is repeated after a broken connection
	// counts once.
	enterScript = redis.NewScript(`
local owner = redis.call("hget", KEYS[1], "owner")
if owner and owner ~= ARGV[1] then
	return 0
end
if redis.call("hget", KEYS[1], "last") ~= ARGV[3] then
	redis.call("hset", KEYS[1], "owner", ARGV[1], "last", ARGV[3])
	redis.call("hincrby", KEYS[1], "depth", 1)
end
redis.call("pexpire", KEYS[1], ARGV[2])
return tonumber(redis.call("hget", KEYS[1], "depth"))`)

	// leaveScript returns the remaining depth, or -1 if the lock does not
	// belong to the caller.
	leaveScript = redis.NewScript(`
if redis.call("hget", KEYS[1], "owner") ~= ARGV[1] then
	return -1
end
if redis.call("hget", KEYS[1], "last") == ARGV[2] then
	return tonumber(redis.call("hget", KEYS[1], "depth"))
end
redis.call("hset", KEYS[1], "last", ARGV[2])
local left = redis.call("hincrby", KEYS[1], "depth", -1)
if left == 0 then
	redis.call("del", KEYS[1])
end
return left`)
)

type reentrant struct {
	c        *redis.Client
	key, who string
	ttl      time.Duration
}

func (l *reentrant) enter(ctx context.Context) (depth int, err error) {
	id := token()
	for depth == 0 && err == nil {
		err = persist(ctx, func() error {
			depth, err = enterScript.Run(ctx, l.c, []string{l.key}, l.who, l.ttl.Milliseconds(), id).Int()
			return err
		})
		if depth == 0 && err == nil {
			err = wait(ctx, 5*time.Millisecond)
		}
	}
	return depth, err
}

func (l *reentrant) leave(ctx context.Context) (left int, err error) {
	id := token()
	err = persist(ctx, func() error {
		left, err = leaveScript.Run(ctx, l.c, []string{l.key}, l.who, id).Int()
		return err
	})
	return max(left, 0), err // -1 means that an earlier attempt, whose reply was lost, has released the lock
}

// page: end

func reentrantDemo(ctx context.Context, e *Env) error {
	const workers, rounds, deep = 3, 6, 3
	var r region
	return each(ctx, workers, func(ctx context.Context, i int) error {
		l := &reentrant{c: e.Client(i), key: "recipe:reentrant", who: fmt.Sprint("worker-", i), ttl: time.Minute}
		for range rounds {
			for want := 1; want <= deep; want++ {
				depth, err := l.enter(ctx)
				if err != nil {
					return err
				}
				if depth != want {
					return fmt.Errorf("depth %d, want %d", depth, want)
				}
			}
			if err := r.enter(l.who, false); err != nil {
				return err
			}
			if r.count() == workers*rounds/2 {
				e.half()
			}
			r.leave(l.who)
			for want := deep - 1; want >= 0; want-- {
				left, err := l.leave(ctx)
				if err != nil {
					return err
				}
				if left != want {
					return fmt.Errorf("remaining depth %d, want %d", left, want)
				}
			}
		}
		return nil
	})
}
