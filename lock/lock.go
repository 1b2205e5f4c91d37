package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client sends commands to a cluster. Every redis.UniversalClient is a Client.
// Implementations must be safe for concurrent use.
type Client interface {
	// Do sends a command and returns its reply. An integer reply is an int64. A
	// null reply is the error redis.Nil.
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// These are the errors of Acquire and Held. Use errors.Is, because they are
// wrapped.
var (
	// ErrTaken means that another owner still holds the lock at the end of the wait.
	ErrTaken = errors.New("lock is taken")
	// ErrLost means that the cluster has ended the lease, for example because it
	// expired, or because the lock was broken or overwritten.
	ErrLost = errors.New("lock is lost")
	// ErrUnproved means that the lease may have ended, because the cluster did not
	// confirm a renewal in time.
	ErrUnproved = errors.New("lock cannot be proved to be held")
	// ErrNoLockCommand means that the server is not Holdfast: see WithPlainRedis.
	ErrNoLockCommand = errors.New("server does not have the LOCK command")
)

// MinTTL is the shortest TTL. A renewal takes a round trip and a commit of the
// cluster, so with a shorter TTL it could be confirmed too late.
const MinTTL = 100 * time.Millisecond

// longestWait is the longest wait that Acquire sends in one command. In
// milliseconds, it fits into 32 bits.
const longestWait = 24 * time.Hour

type options struct {
	ttl   time.Duration
	wait  time.Duration // -1 if only the context limits it
	owner string
	meta  string
	plain bool
	// WithShared sets shared. WithLimit sets limit and limited.
	shared, limited bool
	limit           int
}

// Option is an option of Acquire.
type Option func(*options)

// WithTTL sets the length of the lease, at least MinTTL. The default is 30 s.
// If an owner crashes, other clients wait for the lock for up to this time.
func WithTTL(ttl time.Duration) Option { return func(o *options) { o.ttl = ttl } }

// WithWait limits the time that Acquire waits for a lock that is taken. With 0,
// Acquire does not wait. By default, only the context limits the wait.
func WithWait(wait time.Duration) Option { return func(o *options) { o.wait = max(wait, 0) } }

// WithOwner sets the owner, which is the value of the lock. The default is a random
// text. The owner must be unique: two clients with the same owner can hold the same
// lock at the same time.
func WithOwner(owner string) Option { return func(o *options) { o.owner = owner } }

// WithMeta sets a text that LOCK INFO shows, for example the name of a job.
func WithMeta(text string) Option { return func(o *options) { o.meta = text } }

// WithShared lets other owners that use WithShared hold the lock at the same time.
// These owners are readers; an owner without WithShared is a writer. A writer waits
// until all readers have released the lock. Readers and writers wait in one queue.
// So readers that arrive while a writer waits get the lock after the writer.
func WithShared() Option { return func(o *options) { o.shared = true } }

// WithLimit lets up to n owners hold the lock at the same time, as a semaphore with
// n permits. All clients must use the same n: a client with a different n waits
// until no owner holds the lock. n is at least 1 and at most MaxLimit.
func WithLimit(n int) Option { return func(o *options) { o.limit, o.limited = n, true } }

// MaxLimit is the highest number for WithLimit.
const MaxLimit = 10_000

// WithPlainRedis permits a server without the LOCK command, such as Redis. Then
// the lock has no fencing token (Held.Token returns 0), and waiting clients poll
// and get the lock in no particular order. A failover of Redis can lose the lock.
func WithPlainRedis() Option { return func(o *options) { o.plain = true } }

func (o *options) check(key string) error {
	switch {
	case key == "":
		return errors.New("lock: the key is empty")
	case o.ttl < MinTTL:
		return fmt.Errorf("lock: the TTL is %v, want at least %v", o.ttl, MinTTL)
	case o.owner == "":
		return errors.New("lock: the owner is empty")
	case o.limited && (o.limit < 1 || o.limit > MaxLimit):
		return fmt.Errorf("lock: the limit is %d, want 1 to %d", o.limit, MaxLimit)
	case o.shared && o.limited:
		return errors.New("lock: WithShared and WithLimit exclude each other")
	case o.plain && (o.shared || o.limited):
		return errors.New("lock: a plain Redis has no shared locks and no locks with a limit")
	}
	return nil
}

// Acquire takes the lock of a key. While another owner holds the lock, Acquire
// waits in the queue of the lock, which the clients of all nodes share. If Acquire
// loses the connection, it sends the command again. That is safe, because the
// cluster recognizes the owner and does not grant the lock a second time.
//
// The caller must call Release when it no longer needs the lock. Canceling ctx ends
// the wait. Once Acquire has returned, ctx has no effect on the lock.
func Acquire(ctx context.Context, client Client, key string, opts ...Option) (*Held, error) {
	o := options{ttl: 30 * time.Second, wait: -1, owner: rand.Text()}
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(key); err != nil {
		return nil, err
	}
	a := attempt{client: client, key: key, options: o}
	if o.wait >= 0 {
		a.until = time.Now().Add(o.wait)
	}
	g, err := a.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire lock %q: %w", key, err)
	}
	return newHeld(ctx, a, g), nil
}

// grant is the result of a command that acquired or renewed a lock.
type grant struct {
	token int64
	sent  time.Time // time just before the command was sent: the lease began later
	plain bool      // the server has no LOCK command
}

// attempt contains the parameters of one call of Acquire.
type attempt struct {
	options
	client Client
	key    string
	until  time.Time // end of the wait, or zero if there is no limit
}

// run repeats its attempt until the lock is granted, the wait is over, ctx is
// done, or an error is permanent.
func (a *attempt) run(ctx context.Context) (grant, error) {
	pause := retryMin
	for {
		g, err := a.ask(ctx)
		switch {
		case err == nil:
			return g, nil
		case ctx.Err() != nil:
			a.abandon(false)
			return grant{}, context.Cause(ctx)
		case errors.Is(err, ErrNoLockCommand) && a.plain:
			return a.acquirePlain(ctx)
		case errors.Is(err, ErrTaken) && !a.expired():
			continue // the node ended the wait early, for example because it stopped
		case errors.Is(err, ErrTaken) || !transient(err):
			return grant{}, err
		case a.expired():
			// The last try has an unknown outcome.
			a.abandon(false)
			return grant{}, err
		}
		sleep(ctx, pause)
		pause = min(2*pause, retryMax)
	}
}

func (a *attempt) expired() bool { return !a.until.IsZero() && !time.Now().Before(a.until) }

// ask first sends LOCK ACQUIRE without a wait, over the caller's client. If the
// lock is taken, ask waits on a separate connection, so that the wait does not
// block other commands.
func (a *attempt) ask(ctx context.Context) (grant, error) {
	g, err := a.send(ctx, a.client, 0)
	if !errors.Is(err, ErrTaken) || a.wait == 0 || a.expired() {
		return g, err
	}
	return a.queue(ctx)
}

// send sends one LOCK ACQUIRE.
func (a *attempt) send(ctx context.Context, client Client, wait time.Duration) (grant, error) {
	args := []any{"LOCK", "ACQUIRE", a.key, a.owner, "PX", a.ttl.Milliseconds()}
	if wait > 0 {
		args = append(args, "WAIT", max(wait.Milliseconds(), 1))
	}
	if a.meta != "" {
		args = append(args, "META", a.meta)
	}
	if a.shared {
		args = append(args, "SHARED")
	}
	if a.limited {
		args = append(args, "LIMIT", a.limit)
	}
	g := grant{sent: time.Now()}
	token, err := do(ctx, client, args...)
	if errors.Is(err, redis.Nil) {
		err = ErrTaken
	}
	g.token = token
	if wait > 0 {
		// The lease began with the grant, at an unknown time during the wait.
		// Only a renewal shows how long the lease lasts.
		g.sent = time.Time{}
	}
	return g, err
}

// abandon releases, in the background, a lock that an attempt with an unknown
// outcome may have acquired. If that fails, the lease ends on its own.
func (a *attempt) abandon(plain bool) {
	go func() {
		ctx, stop := context.WithTimeout(context.Background(), a.ttl)
		defer stop()
		if plain {
			_, _ = a.releasePlain(ctx)
			return
		}
		_, _ = do(ctx, a.client, "LOCK", "RELEASE", a.key, a.owner)
	}()
}

const (
	retryMin = 10 * time.Millisecond
	retryMax = time.Second
)

// call sends a command. It returns when ctx is done, even if the client does
// not.
func call(ctx context.Context, client Client, args ...any) (*redis.Cmd, error) {
	done := make(chan *redis.Cmd, 1)
	go func() { done <- client.Do(ctx, args...) }()
	select {
	case cmd := <-done:
		err := cmd.Err()
		if err != nil && isUnknownCommand(err) {
			err = fmt.Errorf("%w: %w", ErrNoLockCommand, err)
		}
		return cmd, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// do sends a command with an integer reply.
func do(ctx context.Context, client Client, args ...any) (int64, error) {
	cmd, err := call(ctx, client, args...)
	if err != nil {
		return 0, err
	}
	return cmd.Int64()
}

func isUnknownCommand(err error) bool {
	return strings.HasPrefix(strings.ToLower(err.Error()), "err unknown command")
}

// transient reports whether the same command may succeed later, for example after a
// lost connection or when the cluster has a leader again. Repeating a LOCK command
// is safe, because the cluster recognizes the owner.
func transient(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return !errors.Is(err, redis.ErrClosed)
	}
	code, _, _ := strings.Cut(reply.Error(), " ")
	return slices.Contains(transientCodes, code)
}

var transientCodes = []string{"UNKNOWN", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "READONLY", "MASTERDOWN", "BUSY",
	"MOVED", "ASK"}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
