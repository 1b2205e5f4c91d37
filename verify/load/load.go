package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/checker"
	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// Config describes the load to run.
type Config struct {
	Addrs  []string // client addresses of the nodes
	Login  Login
	Prefix string // prefix of all keys, such as "verify:1234:"
	Seed   uint64 // seed of the clients' choices
	// Keys, Lockers, Lists and Counters are the numbers of clients of each
	// kind.
	Keys, Lockers, Lists, Counters int
	// Producers push elements to queues, and Consumers take them with commands
	// that block. As many producers again push elements slowly to other queues,
	// and eight times as many consumers wait for those. Publishers and
	// Subscribers use channels. All four are for Holdfast only, because a Redis
	// with replicas does not keep the guarantees of queues and channels that the
	// checkers check.
	Producers, Consumers, Publishers, Subscribers int
	// Waiters wait for locks with LOCK ACQUIRE, and half as many other clients
	// take the same locks with SET NX. Breakers take locks away from their owners.
	// If the cluster does not know LOCK, or the user of the load may not run
	// it, Start starts none of these clients.
	Waiters, Breakers int
	LockTTL           time.Duration
	ReplyTimeout      time.Duration // how long a client waits for a reply
	// Pause is the longest pause of a client between two commands.
	Pause time.Duration
	// First is the first command on every connection of a client, after the
	// login; empty for none. If it is READONLY, reads may be stale, and a checker
	// must find that.
	First []string
}

// DefaultConfig returns the Config of a load that a small machine can sustain.
func DefaultConfig() Config {
	return Config{Keys: 6, Lockers: 8, Lists: 3, Counters: 2, Waiters: 8, LockTTL: 300 * time.Millisecond,
		ReplyTimeout: 4 * time.Second, Pause: 6 * time.Millisecond, Prefix: "verify:"}
}

// WithQueues returns c with clients of queues and channels, and with a client
// that breaks locks.
func (c Config) WithQueues() Config {
	c.Producers, c.Consumers, c.Publishers, c.Subscribers = 1, 3, 1, 3
	c.Breakers = 1
	return c
}

// Simple returns c without the clients whose guarantees an older build may
// break.
func (c Config) Simple() Config {
	c.Producers, c.Consumers, c.Publishers, c.Subscribers, c.Waiters, c.Breakers = 0, 0, 0, 0, 0, 0
	return c
}

// Load is a set of running clients. Stop ends its goroutines.
type Load struct {
	cfg    Config
	rec    *recorder
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	script bool // the cluster does not know DELIFEQ and SET IFEQ, so scripts replace them
	fair   bool // the cluster knows LOCK, and the user of the load may run it

	keys   *rotation
	locks  *rotation
	lists  *rotation
	queues *rotation

	// A client holds the read lock of pause while a command is in flight. It
	// releases the lock before it sends a command that waits for an element:
	// see Pause.
	pause sync.RWMutex

	mu      sync.Mutex
	made    map[string]bool // keys that may have been written
	waiting map[string]int  // blocking commands in flight, by queue
}

// Start finds out from a node whether the cluster knows DELIFEQ and LOCK, and
// then starts the clients. It fails if no node answers.
func Start(ctx context.Context, cfg Config) (*Load, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("no address to connect to")
	}
	l := &Load{cfg: cfg, rec: newRecorder(), made: make(map[string]bool), waiting: make(map[string]int)}
	l.keys = &rotation{name: cfg.Prefix + "key", width: 4, limit: 4 * 150, doubt: 8}
	l.locks = &rotation{name: cfg.Prefix + "lock", width: 10, limit: 10 * 250, doubt: 12}
	l.lists = &rotation{name: cfg.Prefix + "list", width: 2, limit: 2 * 300, doubt: 1 << 30}
	l.queues = &rotation{name: cfg.Prefix + "queue", width: 2, limit: 2 * 300, doubt: 1 << 30}
	if err := l.probe(ctx); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	viewers := 0
	if !l.fair {
		l.cfg.Waiters, l.cfg.Breakers = 0, 0
	}
	if l.cfg.Waiters > 0 {
		viewers = 1
	}
	id := 0
	for _, kind := range []struct {
		n   int
		run func(*client)
	}{{cfg.Keys, (*client).useKeys}, {cfg.Lockers, (*client).useLocks}, {cfg.Lists, (*client).useLists},
		{cfg.Counters, (*client).useCounters},
		{cfg.Producers, (*client).produce}, {cfg.Producers, (*client).produceSlowly},
		{cfg.Consumers, (*client).consume}, {8 * cfg.Consumers, (*client).consumeSlowly},
		{cfg.Publishers, (*client).publish}, {cfg.Subscribers, (*client).subscribe},
		{l.cfg.Waiters, (*client).waitForLocks}, {l.cfg.Waiters / 2, (*client).takeFairLocks},
		{l.cfg.Breakers, (*client).breakLocks}, {viewers, (*client).viewLocks}} {
		for range kind.n {
			c := &client{load: l, id: id, at: id, rng: rand.New(rand.NewPCG(cfg.Seed, uint64(id)))}
			id++
			l.wg.Add(1)
			go func() {
				defer l.wg.Done()
				kind.run(c)
				c.hangUp()
			}()
		}
	}
	return l, nil
}

// probe finds out whether the cluster can compare and delete without a script,
// and whether it has locks with a queue of waiters.
func (l *Load) probe(ctx context.Context) error {
	var last error
	for _, addr := range l.cfg.Addrs {
		c, err := Dial(ctx, addr, l.cfg.Login, l.cfg.ReplyTimeout, l.cfg.First...)
		if err != nil {
			last = fmt.Errorf("%s: %w", addr, err)
			continue
		}
		v, err := c.Do("DELIFEQ", l.cfg.Prefix+"probe", "x")
		if err == nil {
			err = l.probeLocks(c)
		}
		if err = errors.Join(err, c.Close()); err != nil {
			last = fmt.Errorf("%s: %w", addr, err)
			continue
		}
		l.script = v.Err != "" && outcomeOf(v) == checker.Done
		return nil
	}
	return fmt.Errorf("no node answers: %w", last)
}

// Foreign reports whether the cluster does not know DELIFEQ, and so is not
// Holdfast.
func (l *Load) Foreign() bool { return l.script }

// Now returns the time since the start of the history.
func (l *Load) Now() time.Duration { return l.rec.now() }

// Count returns the number of commands sent so far.
func (l *Load) Count() int {
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	return l.rec.h.Commands
}

// Stop stops the clients and waits until they have ended, which takes at most
// Config.ReplyTimeout. Clients that wait for an element, a lock or a message
// close their connections.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}

// History returns the recorded history. Call it after Stop and Collect.
func (l *Load) History() *History { return &l.rec.h }

// Recover writes through each node until the node acknowledges a write, and
// returns the time of that acknowledgement. healed is when the last fault
// ended. Recover gives up when ctx is done.
func (l *Load) Recover(ctx context.Context, healed time.Duration) []checker.Recovery {
	all := make([]checker.Recovery, len(l.cfg.Addrs))
	var wg sync.WaitGroup
	for i, addr := range l.cfg.Addrs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			all[i] = checker.Recovery{Node: addr, Healed: healed, Served: checker.Forever}
			key := l.mark(fmt.Sprintf("%srecover:%d", l.cfg.Prefix, i))
			for ctx.Err() == nil {
				v, err := l.once(ctx, addr, time.Second, "SET", key, "x")
				if err == nil && v.Text == "OK" {
					all[i].Served = l.Now()
					return
				}
				Sleep(ctx, 20*time.Millisecond)
			}
		}()
	}
	wg.Wait()
	return all
}

// once runs one command on a new connection.
func (l *Load) once(ctx context.Context, addr string, timeout time.Duration, args ...string) (respwire.Value, error) {
	c, err := Dial(ctx, addr, l.cfg.Login, timeout)
	if err != nil {
		return respwire.Value{}, err
	}
	v, err := c.Do(args...)
	return v, errors.Join(err, c.Close())
}

// Collect reads the final content of the lists and queues, and the nodes'
// histories of locks. It gives up when ctx is done.
func (l *Load) Collect(ctx context.Context) error {
	into := make(map[string]map[string][]string)
	for _, a := range l.rec.h.Appends {
		into[a.List] = l.rec.h.Lists
	}
	for _, p := range l.rec.h.Pushes {
		into[p.Queue] = l.rec.h.Queues
	}
	for _, k := range l.rec.h.Takes {
		into[k.Queue] = l.rec.h.Queues
		if k.To != "" {
			into[k.To] = l.rec.h.Queues
		}
	}
	for list, all := range into {
		for i := 0; ; i++ {
			v, err := l.once(ctx, l.cfg.Addrs[i%len(l.cfg.Addrs)], 5*time.Second, "LRANGE", list, "0", "-1")
			if err == nil && v.Err == "" {
				ids := []string{}
				for _, e := range v.Elems {
					ids = append(ids, e.Text)
				}
				all[list] = ids
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("read %s: %w", list, errors.Join(err, context.Cause(ctx)))
			}
			Sleep(ctx, 50*time.Millisecond)
		}
	}
	return l.collectLocks(ctx)
}

// Cleanup deletes every key that the load has written. It gives up when ctx is
// done.
func (l *Load) Cleanup(ctx context.Context) error {
	l.mu.Lock()
	var keys []string
	for key := range l.made {
		keys = append(keys, key)
	}
	l.mu.Unlock()
	for i := 0; len(keys) > 0; i++ {
		n := min(len(keys), 200)
		v, err := l.once(ctx, l.cfg.Addrs[i%len(l.cfg.Addrs)], 5*time.Second, append([]string{"DEL"}, keys[:n]...)...)
		switch {
		case err == nil && v.Err == "":
			keys = keys[n:]
		case ctx.Err() != nil:
			return fmt.Errorf("%d keys with the prefix %s were not deleted: %w", len(keys), l.cfg.Prefix,
				errors.Join(err, context.Cause(ctx)))
		default:
			Sleep(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

// mark records a key for Cleanup.
func (l *Load) mark(key string) string {
	l.mu.Lock()
	l.made[key] = true
	l.mu.Unlock()
	return key
}

// Sleep waits for d and returns true. If ctx is done first, Sleep returns false
// at once.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// rotation provides the keys of one kind. It provides a few keys at a time, and
// changes to new keys when the old ones have too many commands or too many
// unknown outcomes.
type rotation struct {
	name  string
	width int // number of keys at a time
	limit int // largest number of commands on all current keys
	doubt int // number of unknown outcomes on all current keys; if it is exceeded, the keys change

	mu            sync.Mutex
	generation    int
	used, unknown int
}

// take returns one of the current keys for n commands.
func (r *rotation) take(rng *rand.Rand, n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n > r.limit || r.unknown > r.doubt {
		r.generation++
		r.used, r.unknown = 0, 0
	}
	r.used += n
	return fmt.Sprintf("%s:%d:%d", r.name, r.generation, rng.IntN(r.width))
}

// doubtful counts a command of unknown outcome.
func (r *rotation) doubtful() {
	r.mu.Lock()
	r.unknown++
	r.mu.Unlock()
}

// Sabotage deletes locks that clients of the load own, for the duration d. A
// cluster must never lose a lock, so the checkers must find this.
func (l *Load) Sabotage(ctx context.Context, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	rng := rand.New(rand.NewPCG(l.cfg.Seed, 1<<32))
	c, err := Dial(ctx, l.cfg.Addrs[0], l.cfg.Login, l.cfg.ReplyTimeout)
	if err != nil {
		return err
	}
	for Sleep(ctx, 5*time.Millisecond) {
		if _, err := c.Do("DEL", l.locks.take(rng, 0)); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}

// Overwrite repeatedly gives a lock that has waiters to an owner that did not
// wait, for the duration d. That owner gets the lock before the waiters do, so
// the checkers must find this.
func (l *Load) Overwrite(ctx context.Context, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	c, err := Dial(ctx, l.cfg.Addrs[0], l.cfg.Login, l.cfg.ReplyTimeout)
	if err != nil {
		return err
	}
	for Sleep(ctx, 200*time.Millisecond) {
		if _, err := c.Do("SET", l.cfg.Prefix+fairLocks[0], "intruder", "PX", "100"); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}
