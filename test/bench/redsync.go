package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
)

// The lock benchmark measures redsync over redigo. The row "lock cycle c50"
// uses redsync only to load a script. Nothing else in test/bench uses redigo.

// redsyncPool returns connections for mutexes of redsync.
func redsyncPool(addr string) *redis.Pool {
	dial := func() (redis.Conn, error) { return redis.Dial("tcp", addr) }
	return &redis.Pool{MaxIdle: lockClients, Dial: dial}
}

// redsyncMutex returns a mutex of redsync.
func redsyncMutex(pool *redis.Pool, key string, options ...redsync.Option) *redsync.Mutex {
	return redsync.New(redigo.NewPool(pool)).NewMutex(key, append(options, redsync.WithExpiry(30*time.Second))...)
}

// redsyncRelease is the script with which redsync releases a lock. The library
// loads the script itself when it releases a lock. Holdfast recognizes the
// script by its SHA1.
var redsyncRelease = &cycle{sha: "e950836ed1e694540c503ef9972b8de518044d3b", load: func(addr string) error {
	pool := redsyncPool(addr)
	defer pool.Close()
	m := redsyncMutex(pool, "lock:of-redsync")
	if err := m.Lock(); err != nil {
		return fmt.Errorf("lock by redsync: %w", err)
	}
	if ok, err := m.Unlock(); !ok || err != nil {
		return fmt.Errorf("unlock by redsync: released %v, error %v", ok, err)
	}
	return nil
}}

// poll lets clients of redsync compete for one lock of the redis-server.
func (l *lockBench) poll(ctx context.Context) (*span, error) {
	pool := redsyncPool(l.redis.addr)
	defer pool.Close()
	s := &span{counts: make([]int, lockClients)}
	var grants atomic.Int64
	errs := make([]error, lockClients)
	begun := time.Now()
	end := begun.Add(time.Duration(l.o.seconds * float64(time.Second)))
	var clients sync.WaitGroup
	for i := range lockClients {
		clients.Go(func() {
			for time.Now().Before(end) && errs[i] == nil {
				m := redsyncMutex(pool, "locks:one", redsync.WithTries(1<<20),
					redsync.WithRetryDelay(time.Millisecond))
				trying, stop := context.WithDeadline(ctx, end)
				err := m.LockContext(trying)
				stop()
				if err != nil {
					if trying.Err() == nil {
						errs[i] = err
					}
					return
				}
				if ok, err := m.UnlockContext(ctx); err != nil || !ok {
					errs[i] = fmt.Errorf("unlock: %v, error %v", ok, err)
				}
				s.counts[i]++
				grants.Add(1)
			}
		})
	}
	clients.Wait()
	s.took = time.Since(begun)
	s.times = make([]time.Duration, 2*grants.Load())
	return s, errors.Join(errs...)
}

// passOverRedis does the same as passOver with redsync, whose clients poll. The
// owner keeps the lock for a time that differs from exchange to exchange, so
// that the release is not in step with the polls.
func (l *lockBench) passOverRedis(ctx context.Context, exchanges int) (*span, error) {
	pool := redsyncPool(l.redis.addr)
	defer pool.Close()
	s := &span{}
	for i := range exchanges {
		m := redsyncMutex(pool, "locks:next")
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		got := make(chan time.Time)
		var err error
		next := redsyncMutex(pool, "locks:next")
		go func() {
			err = next.LockContext(ctx)
			got <- time.Now()
		}()
		hold := time.NewTimer(time.Duration(100+7*i) * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-hold.C:
		}
		begun := time.Now()
		_, freed := m.UnlockContext(ctx)
		s.times = append(s.times, (<-got).Sub(begun))
		if err := errors.Join(err, freed); err != nil {
			return nil, err
		}
		if _, err := next.UnlockContext(ctx); err != nil {
			return nil, err
		}
	}
	slices.Sort(s.times)
	return s, nil
}
