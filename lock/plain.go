package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// The functions of this file acquire, renew and release a lock on a server without
// the LOCK command: see WithPlainRedis.

const (
	renewScript = `if redis.call("get",KEYS[1]) == ARGV[1] then
	return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end`
	// releaseScript is the script with which many lock libraries release a
	// lock. Holdfast executes it as one command, without an interpreter.
	releaseScript = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

	pollMin = 20 * time.Millisecond
	pollMax = 500 * time.Millisecond
)

// acquirePlain polls with SET NX until the lock is granted, the wait is over,
// ctx is done, or an error is permanent.
func (a *attempt) acquirePlain(ctx context.Context) (grant, error) {
	pause := pollMin
	unknown := false // whether an earlier try may have taken the lock
	for {
		g := grant{sent: time.Now(), plain: true}
		_, err := call(ctx, once{a.client}, "SET", a.key, a.owner, "NX", "PX", a.ttl.Milliseconds())
		if errors.Is(err, redis.Nil) {
			err = ErrTaken
			if unknown {
				if g, rerr := a.renewPlain(ctx, g); rerr == nil {
					return g, nil
				}
			}
		}
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil:
			a.abandon(true)
			return g, context.Cause(ctx)
		}
		permanent := !errors.Is(err, ErrTaken) && !transient(err)
		unknown = unknown || !errors.Is(err, ErrTaken) && !permanent
		if permanent || a.wait >= 0 && a.expired() {
			if unknown {
				a.abandon(true)
			}
			return g, err
		}
		sleep(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, pollMax)
	}
}

func (a *attempt) renewPlain(ctx context.Context, g grant) (grant, error) {
	g.sent = time.Now()
	n, err := do(ctx, a.client, "EVAL", renewScript, 1, a.key, a.owner, a.ttl.Milliseconds())
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: the owner does not hold it", ErrLost)
	}
	return g, err
}

func (a *attempt) releasePlain(ctx context.Context) (int64, error) {
	return do(ctx, once{a.client}, "EVAL", releaseScript, 1, a.key, a.owner)
}
