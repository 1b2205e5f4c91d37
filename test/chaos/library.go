package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-kv/holdfast/verify/attack"
	"github.com/holdfast-kv/holdfast/verify/checker"
)

// library runs clients of go-redis with its default options. Such a client
// repeats commands after errors. The results that it returns must be correct
// nevertheless. The clients add unique ids to sets; no acknowledged id may be
// missing. They also take locks; two clients must never both be certain that
// they own the same lock. library does not check how often a command was
// executed, because go-redis itself decides to repeat it.
type library struct {
	begun  time.Time
	cancel context.CancelFunc
	wg     sync.WaitGroup
	addrs  []string
	pause  sync.RWMutex // held for reading while a command is in flight

	mu    sync.Mutex
	acked map[string][]string // acknowledged ids by set
	holds []checker.Hold
}

const libraryTTL = 400 * time.Millisecond

// withLibrary starts the clients: one for each node, and one more.
func withLibrary(ctx context.Context, addrs []string, seed uint64) attack.Companion {
	logging.Disable() // go-redis would print each connection that a node refuses during the attack
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
	c := redis.NewClient(&redis.Options{Addr: l.addrs[id%len(l.addrs)], Password: attack.Login.Password})
	defer c.Close()
	set := fmt.Sprintf("library:set:%d", id)
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprintf("%d.%d", id, n)
		l.pause.RLock()
		err := c.SAdd(ctx, set, value).Err()
		l.pause.RUnlock()
		if err == nil {
			l.mu.Lock()
			l.acked[set] = append(l.acked[set], value)
			l.mu.Unlock()
		}
		l.lock(ctx, c, fmt.Sprintf("library:lock:%d", rng.IntN(2)), value, rng)
	}
}

// lock takes a lock if it is free. After a random time it releases the lock, or
// leaves it to expire.
func (l *library) lock(ctx context.Context, c *redis.Client, lock, token string, rng *rand.Rand) {
	l.pause.RLock()
	h := checker.Hold{Lock: lock, Token: token, TTL: libraryTTL, Call: time.Since(l.begun)}
	got, err := c.SetNX(ctx, lock, token, libraryTTL).Result()
	h.Granted = time.Since(l.begun)
	l.pause.RUnlock()
	if err != nil || !got {
		return // if an earlier attempt took the lock and its reply was lost, the lock expires
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(rng.Int64N(int64(libraryTTL) / 2))):
	}
	if rng.IntN(4) > 0 && ctx.Err() == nil {
		l.pause.RLock()
		r := &checker.Step{Call: time.Since(l.begun), Outcome: checker.Unknown}
		// After a lost reply go-redis repeats the command, and the repeated
		// command finds the lock already deleted. So the reply does not show
		// which client owned the lock.
		_ = c.Do(ctx, "DELIFEQ", lock, token).Err()
		l.pause.RUnlock()
		h.Release = r
	}
	l.mu.Lock()
	l.holds = append(l.holds, h)
	l.mu.Unlock()
}

// Pause implements attack.Companion.
func (l *library) Pause() (resume func()) {
	l.pause.Lock()
	return l.pause.Unlock
}

// Stop implements attack.Companion.
func (l *library) Stop(ctx context.Context) (name string, checked int, bad []checker.Violation) {
	l.cancel()
	l.wg.Wait()
	for set, acked := range l.acked {
		there, err := l.members(ctx, set)
		if err != nil {
			bad = append(bad, checker.Violation{Check: "go-redis", Key: set,
				Text: "cannot be read at the end: " + err.Error()})
			continue
		}
		for _, id := range acked {
			checked++
			if !there[id] {
				bad = append(bad, checker.Violation{Check: "go-redis", Key: set,
					Text: id + " was acknowledged and is missing"})
			}
		}
	}
	locks := checker.Locks(l.holds, nil, nil)
	return "go-redis: acknowledged ids and locks", checked + locks.Grants, append(bad, locks.Violations...)
}

func (l *library) members(ctx context.Context, set string) (map[string]bool, error) {
	var last error
	for _, addr := range l.addrs {
		c := redis.NewClient(&redis.Options{Addr: addr, Password: attack.Login.Password})
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
