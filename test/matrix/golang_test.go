package matrix

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis9 "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

var golangEntries = []entry{
	{lib: "go-redis", module: "github.com/redis/go-redis/v9", mode: "standalone",
		what: "pipelines, MULTI, WATCH, scripts, pub/sub", run: goRedis},
	{lib: "go-redis", module: "github.com/redis/go-redis/v9", mode: "Sentinel (FailoverClient)",
		what: "SET NX, compare-and-delete; follows the leader", run: goRedisFailover, nodes: sentinel},
	{lib: "go-redis", module: "github.com/redis/go-redis/v9", mode: "cluster (ClusterClient)",
		what: "SET NX, compare-and-delete; follows the leader", run: goRedisCluster, nodes: clusterMode},
	{lib: "redsync", module: "github.com/go-redsync/redsync/v4", mode: "standalone, over go-redis",
		what: "Lock, Extend, Valid, Unlock among four clients", run: redsyncGoRedis},
	{lib: "redsync", module: "github.com/go-redsync/redsync/v4", mode: "standalone, over redigo",
		what: "Lock, Extend, Unlock among four clients", run: redsyncRedigo},
	{lib: "bsm/redislock", module: "github.com/bsm/redislock", mode: "standalone",
		what: "Obtain, Refresh, TTL, Release among four clients", run: bsmRedislock},
	{lib: "redigo", module: "github.com/gomodule/redigo", mode: "standalone",
		what: "SET NX PX, script, SETNX and GETSET, WATCH", run: redigoLock},
	{lib: "rueidis", module: "github.com/redis/rueidis", mode: "standalone, defaults (RESP3, client-side caching)",
		what: "DoCache is invalidated, scripts, SET NX", run: rueidisDefaults},
	{lib: "rueidislock", module: "github.com/redis/rueidis", mode: "standalone, defaults",
		what: "WithContext with a deadline among three clients; a lost lock cancels its context", run: rueidisLock},
}

var cad = goredis9.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func goRedis(ctx context.Context, a *arena) error {
	c := goredis9.NewClient(&goredis9.Options{Addr: a.entry})
	defer c.Close()
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	for i := range 40 {
		if i == 20 {
			a.killLeader()
		}
		key := fmt.Sprint("k", i)
		cmds, err := c.TxPipelined(ctx, func(p goredis9.Pipeliner) error {
			p.Set(ctx, key, i, time.Minute)
			p.Incr(ctx, key)
			return nil
		})
		if err != nil || cmds[1].(*goredis9.IntCmd).Val() != int64(i+1) {
			return fmt.Errorf("MULTI %d: %v, error %v", i, cmds, err)
		}
		if n, err := cad.Run(ctx, c, []string{key}, i).Int(); err != nil || n != 0 {
			return fmt.Errorf("script with a wrong token: %d, error %v", n, err)
		}
		if n, err := cad.Run(ctx, c, []string{key}, i+1).Int(); err != nil || n != 1 {
			return fmt.Errorf("script: %d, error %v", n, err)
		}
		if err := c.Publish(ctx, "news", i).Err(); err != nil {
			return err
		}
		msg, err := sub.ReceiveMessage(ctx)
		if err != nil || msg.Payload != fmt.Sprint(i) {
			return fmt.Errorf("message %d: %v, error %v", i, msg, err)
		}
	}
	err := c.Watch(ctx, func(tx *goredis9.Tx) error {
		if err := c.Set(ctx, "watched", 1, 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p goredis9.Pipeliner) error { return p.Set(ctx, "watched", 2, 0).Err() })
		return err
	}, "watched")
	if !errors.Is(err, goredis9.TxFailedErr) {
		return fmt.Errorf("WATCH: %w", err)
	}
	return nil
}

// setnx is a handwritten lock that uses any go-redis client. The client repeats
// commands by itself. So if SET NX fails and the key has the worker's own
// token, an earlier attempt has taken the lock.
func setnx(c goredis9.UniversalClient, key string) func(ctx context.Context, worker int) (func() error, error) {
	return func(ctx context.Context, worker int) (func() error, error) {
		token := fmt.Sprint("worker-", worker)
		for {
			taken, err := c.SetNX(ctx, key, token, time.Minute).Result()
			if err == nil && !taken {
				var owner string
				owner, err = c.Get(ctx, key).Result()
				taken = owner == token
			}
			if taken {
				return func() error {
					for {
						err := cad.Run(ctx, c, []string{key}, token).Err()
						if err == nil || ctx.Err() != nil {
							return err
						}
					}
				}, nil
			}
			if ctx.Err() != nil {
				return nil, errors.Join(ctx.Err(), err)
			}
		}
	}
}

func goRedisFailover(ctx context.Context, a *arena) error {
	c := goredis9.NewFailoverClient(&goredis9.FailoverOptions{MasterName: "mymaster", SentinelAddrs: a.sentinels})
	defer c.Close()
	return contend(ctx, a, 3, 10, setnx(c, "lock"))
}

func goRedisCluster(ctx context.Context, a *arena) error {
	c := goredis9.NewClusterClient(&goredis9.ClusterOptions{Addrs: a.nodes})
	defer c.Close()
	return contend(ctx, a, 3, 10, setnx(c, "lock"))
}

// redsyncLock is the example from the documentation of redsync, and also
// extends the lock.
func redsyncLock(rs *redsync.Redsync) func(ctx context.Context, worker int) (func() error, error) {
	return func(ctx context.Context, worker int) (func() error, error) {
		m := rs.NewMutex("lock", redsync.WithExpiry(20*time.Second), redsync.WithTries(5000),
			redsync.WithRetryDelay(5*time.Millisecond))
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			if ok, err := m.ExtendContext(ctx); err != nil || !ok {
				return fmt.Errorf("extend: %v, error %v", ok, err)
			}
			if ok, err := m.UnlockContext(ctx); err != nil || !ok {
				return fmt.Errorf("unlock: %v, error %v", ok, err)
			}
			return nil
		}, nil
	}
}

func redsyncGoRedis(ctx context.Context, a *arena) error {
	c := goredis9.NewClient(&goredis9.Options{Addr: a.entry})
	defer c.Close()
	return contend(ctx, a, 4, 8, redsyncLock(redsync.New(goredis.NewPool(c))))
}

func redsyncRedigo(ctx context.Context, a *arena) error {
	dial := func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", a.entry) }
	pool := &redis.Pool{DialContext: dial}
	defer pool.Close()
	return contend(ctx, a, 4, 8, redsyncLock(redsync.New(redsyncredigo.NewPool(pool))))
}

func bsmRedislock(ctx context.Context, a *arena) error {
	c := goredis9.NewClient(&goredis9.Options{Addr: a.entry})
	defer c.Close()
	locker := redislock.New(c)
	return contend(ctx, a, 4, 8, func(ctx context.Context, worker int) (func() error, error) {
		l, err := locker.Obtain(ctx, "lock", 20*time.Second,
			&redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond), Metadata: "worker"})
		if err != nil {
			return nil, err
		}
		return func() error {
			if err := l.Refresh(ctx, 30*time.Second, nil); err != nil {
				return fmt.Errorf("refresh: %w", err)
			}
			if ttl, err := l.TTL(ctx); err != nil || ttl <= 20*time.Second {
				return fmt.Errorf("ttl after refresh: %v, error %v", ttl, err)
			}
			return l.Release(ctx)
		}, nil
	})
}

func redigoLock(ctx context.Context, a *arena) error {
	dial := func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", a.entry) }
	pool := &redis.Pool{DialContext: dial}
	defer pool.Close()
	unlock := redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)
	err := contend(ctx, a, 4, 8, func(ctx context.Context, worker int) (func() error, error) {
		for {
			c, err := pool.GetContext(ctx)
			if err != nil {
				return nil, err
			}
			got, err := redis.String(c.Do("SET", "lock", worker, "NX", "PX", 60000))
			if err == nil && got == "OK" {
				return func() error {
					defer c.Close()
					if n, err := redis.Int(unlock.DoContext(ctx, c, "lock", worker)); err != nil || n != 1 {
						return fmt.Errorf("%d, error %v", n, err)
					}
					return nil
				}, nil
			}
			if cerr := c.Close(); cerr != nil || err != redis.ErrNil || ctx.Err() != nil {
				return nil, errors.Join(err, cerr, ctx.Err())
			}
		}
	})
	if err != nil {
		return err
	}
	c, err := pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if n, err := redis.Int(c.Do("SETNX", "old", "100")); err != nil || n != 1 {
		return fmt.Errorf("SETNX: %d, error %v", n, err)
	}
	if s, err := redis.String(c.Do("GETSET", "old", "200")); err != nil || s != "100" {
		return fmt.Errorf("GETSET: %q, error %v", s, err)
	}
	return nil
}

func rueidisDefaults(ctx context.Context, a *arena) error {
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{a.entry}})
	if err != nil {
		return err
	}
	defer c.Close()
	other, err := redis.DialContext(ctx, "tcp", a.nodes[1])
	if err != nil {
		return err
	}
	defer other.Close()
	lua := rueidis.NewLuaScript(`return redis.call("incrby", KEYS[1], ARGV[1])`)
	cached := func() (string, error) {
		s, err := c.DoCache(ctx, c.B().Get().Key("cached").Cache(), time.Minute).ToString()
		if rueidis.IsRedisNil(err) {
			return "", nil
		}
		return s, err
	}
	for i := range 20 {
		if i == 10 {
			a.killLeader()
		}
		value := fmt.Sprint("v", i)
		if _, err := cached(); err != nil { // now the value is in the cache
			return err
		}
		if _, err := other.Do("SET", "cached", value); err != nil {
			return err
		}
		for got := ""; got != value; { // wait until the invalidation has arrived
			if got, err = cached(); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("cache still says %q, want %q", got, value)
			}
		}
		if n, err := lua.Exec(ctx, c, []string{"n"}, []string{"2"}).AsInt64(); err != nil || n != int64(2*i+2) {
			return fmt.Errorf("script: %d, error %v", n, err)
		}
	}
	return nil
}

// rueidisWait waits for the lock. Each attempt has a deadline, because
// rueidislock 1.0.79 may never wake a waiter. The cause is in the library: a
// goroutine that counts a failed attempt can run before the attempt is marked
// as failed, and then the waiter is no longer registered. Three workers that
// compete for a lock on a Redis 7.0.15 under load reproduce this bug. The
// deadline leaves enough time for a change of leader.
func rueidisWait(ctx context.Context, locker rueidislock.Locker) (held context.Context, release,
	cancel context.CancelFunc, err error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, 15*time.Second)
		held, release, err := locker.WithContext(attempt, "lock")
		if err == nil {
			return held, release, cancel, nil
		}
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, nil, err
		}
	}
}

func rueidisLock(ctx context.Context, a *arena) error {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{a.entry}}, KeyMajority: 1,
		KeyValidity: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	err = contend(ctx, a, 3, 6, func(ctx context.Context, worker int) (func() error, error) {
		held, release, cancel, err := rueidisWait(ctx, locker)
		if err != nil {
			return nil, err
		}
		return func() error {
			defer cancel()
			defer release()
			if held.Err() != nil {
				return fmt.Errorf("lock lost: %w", context.Cause(held))
			}
			return nil
		}, nil
	})
	if err != nil {
		return err
	}
	// The test deletes the lock from outside. The library must notify the owner.
	held, release, err := locker.WithContext(ctx, "stolen")
	if err != nil {
		return err
	}
	defer release()
	if err := do(a.nodes[1], "FLUSHALL"); err != nil {
		return err
	}
	select {
	case <-held.Done():
		return nil
	case <-ctx.Done():
		return errors.New("the library does not report that the lock is lost")
	}
}
