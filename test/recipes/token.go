package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// lease is a lock that expires by itself. The token identifies its owner. fence is
// the fencing token of the grant: send it with each write to what the lock protects.
type lease struct {
	c     *redis.Client
	key   string
	token string
	fence int64
	sent  time.Time // when the client sent the command; the lease ends at sent+ttl or later
}

// acquire tries to take the lock for ttl. A random token identifies the owner.
// If another client has the lock, acquire returns nil without an error. The
// transaction makes sure that the fencing token is that of this grant.
func acquire(ctx context.Context, c *redis.Client, key string, ttl time.Duration) (*lease, error) {
	l := &lease{c: c, key: key, token: token(), sent: time.Now()}
	var set *redis.BoolCmd
	var fence *redis.Cmd
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		set = p.SetNX(ctx, key, l.token, ttl)
		fence = p.Do(ctx, "LOCK", "TOKEN", key)
		return nil
	})
	taken := set.Val()
	if err != nil { // the connection broke: the client may have the lock
		err = persist(ctx, func() error {
			var owner *redis.StringCmd
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
				owner = p.Get(ctx, key)
				fence = p.Do(ctx, "LOCK", "TOKEN", key)
				return nil
			})
			taken = owner.Val() == l.token
			return ignoreNil(err)
		})
	}
	if err != nil || !taken {
		return nil, err
	}
	l.fence, err = fence.Int64()
	return l, err
}

// compareAndDelete is the script from the documentation of Redis.
var compareAndDelete = redis.NewScript(`
if redis.call("get", KEYS[1]) == ARGV[1] then
	return redis.call("del", KEYS[1])
end
return 0`)

// release releases the lock if it still belongs to this client. It may be
// repeated: after a release, the script finds another token, or no key.
func (l *lease) release(ctx context.Context) error {
	return persist(ctx, func() error {
		return compareAndDelete.Run(ctx, l.c, []string{l.key}, l.token).Err()
	})
}

// releaseDelex does the same as release, with one command instead of a script.
func (l *lease) releaseDelex(ctx context.Context) error {
	return persist(ctx, func() error {
		return l.c.Do(ctx, "DELEX", l.key, "IFEQ", l.token).Err()
	})
}

// page: end

// take waits until it gets the lock.
func take(ctx context.Context, c *redis.Client, key string, ttl time.Duration) (*lease, error) {
	for {
		l, err := acquire(ctx, c, key, ttl)
		if err != nil || l != nil {
			return l, err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func tokenDemo(ctx context.Context, e *Env) error {
	const workers, rounds = 4, 12
	var r region
	var s store
	err := each(ctx, workers, func(ctx context.Context, i int) error {
		c, who := e.Client(i), fmt.Sprint("worker-", i)
		for n := range rounds {
			l, err := take(ctx, c, "recipe:token", time.Minute)
			if err != nil {
				return err
			}
			if err := r.enter(who, false); err != nil {
				return err
			}
			if err := s.write(l.fence, who); err != nil {
				return err
			}
			if r.count() == workers*rounds/2 {
				e.half()
			}
			r.leave(who)
			release := l.release
			if n%2 == 1 {
				release = l.releaseDelex
			}
			if err := release(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && r.count() != workers*rounds {
		err = fmt.Errorf("%d grants, want %d", r.count(), workers*rounds)
	}
	return err
}
