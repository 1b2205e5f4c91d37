package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Held is a lock that was acquired. Its methods are safe for concurrent use.
type Held struct {
	a     attempt
	token int64
	plain bool

	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   context.CancelFunc // ends the renewals
	done   chan struct{}      // closed when keep has returned

	mu    sync.Mutex
	until time.Time // the earliest time at which the lease can expire; guarded by mu
}

// driftPart is a divisor: Held does not rely on the last 1/driftPart of the TTL,
// because the clocks of the client and of the leader may run at different speeds.
const driftPart = 100

func newHeld(ctx context.Context, a attempt, g grant) *Held {
	h := &Held{a: a, token: g.token, plain: g.plain, done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.confirm(g)
	renewals, stop := context.WithCancel(h.ctx)
	h.stop = stop
	go h.keep(renewals)
	return h
}

// confirm records that a command has granted or renewed the lease. The command
// was sent at the time g.sent, so the lease began later and does not expire
// before g.sent plus the TTL.
func (h *Held) confirm(g grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = g.sent.Add(h.a.ttl - h.a.ttl/driftPart)
}

// Key returns the key of the lock.
func (h *Held) Key() string { return h.a.key }

// Owner returns the owner, which is the value of the lock.
func (h *Held) Owner() string { return h.a.owner }

// Token returns the fencing token. It is higher than the tokens of all earlier
// owners of all locks. It is 0 if the server has no LOCK command: see
// WithPlainRedis.
func (h *Held) Token() int64 { return h.token }

// Context returns a context with the values of Acquire's context. It is canceled
// when the lock is lost, when the lease may have ended because no renewal was
// confirmed in time, or after Release. context.Cause returns the reason: ErrLost,
// ErrUnproved or context.Canceled.
func (h *Held) Context() context.Context { return h.ctx }

// Until returns the earliest time at which the lease can expire.
func (h *Held) Until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// keep renews the lease after each third of the TTL. It cancels the context when
// the lease may have ended.
func (h *Held) keep(ctx context.Context) {
	defer close(h.done)
	every := h.a.ttl / 3
	wait := every
	for {
		next := time.NewTimer(wait)
		end := time.NewTimer(time.Until(h.Until()))
		select {
		case <-ctx.Done():
		case <-end.C:
			h.cancel(ErrUnproved)
		case <-next.C:
			wait = every
			if !h.renewOnce(ctx) {
				wait = min(max(every/10, retryMin), retryMax)
			}
		}
		next.Stop()
		end.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// renewOnce renews the lease. It returns false if the caller should try again soon.
func (h *Held) renewOnce(ctx context.Context) bool {
	limited, stop := context.WithDeadline(ctx, h.Until())
	defer stop()
	limited, stop2 := context.WithTimeout(limited, max(h.a.ttl/3, retryMin))
	defer stop2()
	g, err := h.a.renew(limited, grant{token: h.token, plain: h.plain})
	switch {
	case err == nil:
		h.confirm(g)
		return true
	case errors.Is(err, ErrLost):
		h.cancel(err)
		return true
	}
	return false // keep stops trying when the lease may have ended
}

// renew renews the lease of a grant.
func (a *attempt) renew(ctx context.Context, g grant) (grant, error) {
	if g.plain {
		return a.renewPlain(ctx, g)
	}
	g.sent = time.Now()
	token, err := do(ctx, a.client, "LOCK", "RENEW", a.key, a.owner, "PX", a.ttl.Milliseconds())
	switch {
	case errors.Is(err, redis.Nil):
		return g, fmt.Errorf("%w: the owner does not hold it", ErrLost)
	case err != nil:
		return g, err
	case token != g.token:
		return g, fmt.Errorf("%w: the grant has token %d, not %d", ErrLost, token, g.token)
	}
	return g, nil
}

// Release releases the lock, so that the next client can get it at once, and
// cancels the context. It returns ErrLost if the lock was lost before. If a
// command fails with an error that may be temporary, Release repeats the command
// until ctx is done or the lease may have ended. If Release fails, the lease ends
// on its own. After a successful Release, a further call usually returns ErrLost.
func (h *Held) Release(ctx context.Context) error {
	h.stop()
	<-h.done
	defer h.cancel(context.Canceled)
	if cause := context.Cause(h.ctx); errors.Is(cause, ErrLost) {
		return fmt.Errorf("release lock %q: %w", h.a.key, cause)
	}
	unknown := false // whether an earlier command may have released the lock
	pause := retryMin
	for {
		n, err := h.a.release(ctx, h)
		switch {
		case err == nil && (n == 1 || unknown):
			return nil
		case err == nil:
			return fmt.Errorf("release lock %q: %w: the owner does not hold it", h.a.key, ErrLost)
		case !transient(err) || ctx.Err() != nil || !time.Now().Before(h.Until()):
			return fmt.Errorf("release lock %q: %w", h.a.key, err)
		}
		unknown = unknown || mayHaveRun(err)
		sleep(ctx, min(pause, time.Until(h.Until())))
		pause = min(2*pause, retryMax)
	}
}

// release sends one command to release the lock. The client must not repeat the
// command: if the first reply is lost, the second reply says that the owner does
// not hold the lock.
func (a *attempt) release(ctx context.Context, h *Held) (int64, error) {
	if h.plain {
		return a.releasePlain(ctx)
	}
	return do(ctx, once{a.client}, "LOCK", "RELEASE", a.key, a.owner, h.token)
}
