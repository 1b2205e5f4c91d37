package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// library is clients of go-redis with its defaults, which repeat commands on
// their own: what they were told must hold all the same. They add unique ids to
// sets, of which none that was acknowledged may be missing, and take locks, of
// which none may have two sure owners. How often a command ran is not asked: that
// a library repeats it is its own decision.
type library struct {
	begun  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup
	addrs  []string

	mu    sync.Mutex
	acked map[string][]string // by set
	holds []oracle.Hold
}

const libraryTTL = 400 * time.Millisecond

// quiet takes what go-redis prints about connections that are refused: that they
// are is the plan.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

// withLibrary starts the clients, one a node and one more.
func withLibrary(ctx context.Context, addrs []string, seed uint64) attack.Companion {
	redis.SetLogger(quiet{})
	l := &library{begun: time.Now(), addrs: addrs, acked: make(map[string][]string)}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range len(addrs) + 1 {
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			l.client(ctx, i, rand.New(rand.NewPCG(seed, uint64(1000+i))))
		}()
	}
	return l
}

func (l *library) client(ctx context.Context, id int, rng *rand.Rand) {
	c := redis.NewClient(&redis.Options{Addr: l.addrs[id%len(l.addrs)]})
	defer c.Close()
	set := fmt.Sprintf("library:set:%d", id)
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("%d.%d", id, n)
		if err := c.SAdd(ctx, set, value).Err(); err == nil {
			l.mu.Lock()
			l.acked[set] = append(l.acked[set], value)
			l.mu.Unlock()
		}
		l.lock(ctx, c, fmt.Sprintf("library:lock:%d", rng.IntN(2)), value, rng)
	}
}

// lock takes a lock if it is free, and gives it back after a while, or not.
func (l *library) lock(ctx context.Context, c *redis.Client, lock, token string, rng *rand.Rand) {
	h := oracle.Hold{Lock: lock, Token: token, TTL: libraryTTL, Call: time.Since(l.begun)}
	got, err := c.SetNX(ctx, lock, token, libraryTTL).Result()
	h.Granted = time.Since(l.begun)
	if err != nil || !got {
		return // false may be its own, of an attempt whose answer was lost: then it runs out
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rng.Int64N(int64(libraryTTL) / 2))):
	}
	if rng.IntN(4) > 0 && ctx.Err() == nil {
		r := &oracle.Step{Call: time.Since(l.begun), Outcome: oracle.Unknown}
		// Repeated after a lost answer it finds its own work done, so that its answer
		// says nothing about whose the lock was.
		_ = c.Do(ctx, "DELIFEQ", lock, token).Err()
		h.Release = r
	}
	l.mu.Lock()
	l.holds = append(l.holds, h)
	l.mu.Unlock()
}

// Stop implements attack.Companion.
func (l *library) Stop(ctx context.Context) (name string, checked int, bad []oracle.Violation) {
	l.cancel()
	l.wg.Wait()
	for set, acked := range l.acked {
		there, err := l.members(ctx, set)
		if err != nil {
			bad = append(bad, oracle.Violation{Check: "go-redis", Key: set, Text: "cannot be read in the end: " + err.Error()})
			continue
		}
		for _, id := range acked {
			checked++
			if !there[id] {
				bad = append(bad, oracle.Violation{Check: "go-redis", Key: set, Text: id + " was acknowledged and is missing"})
			}
		}
	}
	locks := oracle.Locks(l.holds, nil, nil)
	return "go-redis: acknowledged ids and locks", checked + locks.Grants, append(bad, locks.Violations...)
}

func (l *library) members(ctx context.Context, set string) (map[string]bool, error) {
	var last error
	for _, addr := range l.addrs {
		c := redis.NewClient(&redis.Options{Addr: addr})
		ids, err := c.SMembers(ctx, set).Result()
		if err = errors.Join(err, c.Close()); err != nil {
			last = err
			continue
		}
		there := make(map[string]bool)
		for _, id := range ids {
			there[id] = true
		}
		return there, nil
	}
	return nil, last
}
