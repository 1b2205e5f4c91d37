package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// The lock is a hash with a field for each owner. The value of a field is "r"
// or "w". There is one writer, or any number of readers. Each new owner sets
// the time to live of the whole hash.
var (
	readScript = redis.NewScript(`
for _, mode in ipairs(redis.call("hvals", KEYS[1])) do
	if mode == "w" then
		return redis.call("hget", KEYS[1], ARGV[1]) == "w" and 1 or 0
	end
end
redis.call("hset", KEYS[1], ARGV[1], "r")
redis.call("pexpire", KEYS[1], ARGV[2])
return 1`)

	// writeScript also upgrades: a reader that is the only owner becomes the
	// writer, and no other client gets the lock in between.
	writeScript = redis.NewScript(`
local holders = redis.call("hkeys", KEYS[1])
if #holders > 1 or #holders == 1 and holders[1] ~= ARGV[1] then
	return 0
end
redis.call("hset", KEYS[1], ARGV[1], "w")
redis.call("pexpire", KEYS[1], ARGV[2])
return 1`)
)

type rwlock struct {
	c        *redis.Client
	key, who string
	ttl      time.Duration
}

// try runs one of the two scripts. Both may be repeated.
func (l *rwlock) try(ctx context.Context, s *redis.Script) (ok bool, err error) {
	err = persist(ctx, func() error {
		n, err := s.Run(ctx, l.c, []string{l.key}, l.who, l.ttl.Milliseconds()).Int()
		ok = n == 1
		return err
	})
	return ok, err
}

func (l *rwlock) wait(ctx context.Context, s *redis.Script) error {
	for {
		if ok, err := l.try(ctx, s); ok || err != nil {
			return err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func (l *rwlock) unlock(ctx context.Context) error {
	return persist(ctx, func() error { return l.c.HDel(ctx, l.key, l.who).Err() })
}

// page: end

// readwriteDemo runs readers, writers, and readers that try to become writers.
// Two readers that waited for an upgrade would wait for each other forever. So
// a reader that is not upgraded at once releases its lock.
func readwriteDemo(ctx context.Context, e *Env) error {
	const workers, rounds = 5, 8
	var r region
	return each(ctx, workers, func(ctx context.Context, i int) error {
		l := &rwlock{c: e.Client(i), key: "recipe:readwrite", who: fmt.Sprint("worker-", i), ttl: time.Minute}
		for n := range rounds {
			reader := (i+n)%3 != 0
			script := writeScript
			if reader {
				script = readScript
			}
			if err := l.wait(ctx, script); err != nil {
				return err
			}
			if err := r.enter(l.who, reader); err != nil {
				return err
			}
			if i == 0 && n == rounds/2 {
				e.half()
			}
			r.leave(l.who)
			if reader && n%2 == 0 {
				upgraded, err := l.try(ctx, writeScript)
				if err != nil {
					return err
				}
				if upgraded {
					if err := r.enter(l.who, false); err != nil {
						return fmt.Errorf("after an upgrade: %w", err)
					}
					r.leave(l.who)
				}
			}
			if err := l.unlock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
