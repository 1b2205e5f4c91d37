package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-kv/holdfast/verify/oracle"
)

// Config says what load to run.
type Config struct {
	Addrs  []string // client addresses of the nodes
	Login  Login
	Prefix string // of all keys, such as "verify:1234:"
	Seed   uint64 // of the clients' choices
	// Keys, Lockers, Lists and Counters are the numbers of clients of each kind.
	Keys, Lockers, Lists, Counters int
	LockTTL                        time.Duration
	Patience                       time.Duration // how long a client waits for a reply
	// Pause is the longest pause of a client between two commands.
	Pause time.Duration
	// First is sent on every connection before anything else; READONLY makes
	// reads stale, which has to be found.
	First []string
}

// DefaultConfig returns a load that a small machine stands.
func DefaultConfig() Config {
	return Config{Keys: 6, Lockers: 8, Lists: 3, Counters: 2, LockTTL: 300 * time.Millisecond, Patience: 4 * time.Second, Pause: 6 * time.Millisecond, Prefix: "verify:"}
}

// Load is a set of clients at work. Its goroutines end with Stop.
type Load struct {
	cfg    Config
	rec    *recorder
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	script bool // the cluster has no DELIFEQ and SET IFEQ

	keys  *rotation
	locks *rotation
	lists *rotation

	mu   sync.Mutex
	made map[string]bool // keys that were written
}

// Start starts the clients once one node has answered.
func Start(ctx context.Context, cfg Config) (*Load, error) {
	if len(cfg.Addrs) == 0 {
		return nil, errors.New("no address to connect to")
	}
	l := &Load{cfg: cfg, rec: newRecorder(), made: make(map[string]bool)}
	l.keys = &rotation{name: cfg.Prefix + "key", width: 4, limit: 4 * 150, doubt: 8}
	l.locks = &rotation{name: cfg.Prefix + "lock", width: 10, limit: 10 * 250, doubt: 12}
	l.lists = &rotation{name: cfg.Prefix + "list", width: 2, limit: 2 * 300, doubt: 1 << 30}
	if err := l.probe(ctx); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	id := 0
	for _, kind := range []struct {
		n   int
		run func(*client)
	}{{cfg.Keys, (*client).useKeys}, {cfg.Lockers, (*client).useLocks}, {cfg.Lists, (*client).useLists}, {cfg.Counters, (*client).useCounters}} {
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

// probe finds out whether the cluster compares and deletes without a script.
func (l *Load) probe(ctx context.Context) error {
	var last error
	for _, addr := range l.cfg.Addrs {
		c, err := Dial(ctx, addr, l.cfg.Login, l.cfg.Patience, l.cfg.First...)
		if err != nil {
			last = fmt.Errorf("%s: %w", addr, err)
			continue
		}
		v, err := c.Do("DELIFEQ", l.cfg.Prefix+"probe", "x")
		if err = errors.Join(err, c.Close()); err != nil {
			last = fmt.Errorf("%s: %w", addr, err)
			continue
		}
		l.script = v.Err != "" && outcomeOf(v) == oracle.Done
		return nil
	}
	return fmt.Errorf("no node answers: %w", last)
}

// Foreign reports whether the cluster is no Holdfast: it has no DELIFEQ.
func (l *Load) Foreign() bool { return l.script }

// Now is the time of the history.
func (l *Load) Now() time.Duration { return l.rec.now() }

// Count returns how many commands were sent so far.
func (l *Load) Count() int {
	l.rec.mu.Lock()
	defer l.rec.mu.Unlock()
	return l.rec.h.Commands
}

// Stop stops the clients and waits for them: no longer than Config.Patience.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}

// History returns what was recorded; call it after Stop and Collect.
func (l *Load) History() *History { return &l.rec.h }

// Recover writes through each node until that is acknowledged, and returns when
// it was; healed is when the last fault had ended. ctx ends the trying.
func (l *Load) Recover(ctx context.Context, healed time.Duration) []oracle.Recovery {
	all := make([]oracle.Recovery, len(l.cfg.Addrs))
	var wg sync.WaitGroup
	for i, addr := range l.cfg.Addrs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			all[i] = oracle.Recovery{Node: addr, Healed: healed, Served: oracle.Forever}
			key := l.mark(fmt.Sprintf("%srecover:%d", l.cfg.Prefix, i))
			for ctx.Err() == nil {
				v, err := l.once(ctx, addr, time.Second, "SET", key, "x")
				if err == nil && v.Text == "OK" {
					all[i].Served = l.Now()
					return
				}
				pause(ctx, 20*time.Millisecond)
			}
		}()
	}
	wg.Wait()
	return all
}

// once runs one command on a connection of its own.
func (l *Load) once(ctx context.Context, addr string, patience time.Duration, args ...string) (Value, error) {
	c, err := Dial(ctx, addr, l.cfg.Login, patience)
	if err != nil {
		return Value{}, err
	}
	v, err := c.Do(args...)
	return v, errors.Join(err, c.Close())
}

// Collect reads the lists as they are at the end. ctx ends the trying.
func (l *Load) Collect(ctx context.Context) error {
	lists := make(map[string]bool)
	for _, a := range l.rec.h.Appends {
		lists[a.List] = true
	}
	for list := range lists {
		for i := 0; ; i++ {
			v, err := l.once(ctx, l.cfg.Addrs[i%len(l.cfg.Addrs)], 5*time.Second, "LRANGE", list, "0", "-1")
			if err == nil && v.Err == "" {
				ids := []string{}
				for _, e := range v.Elems {
					ids = append(ids, e.Text)
				}
				l.rec.h.Lists[list] = ids
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("read %s: %w", list, errors.Join(err, context.Cause(ctx)))
			}
			pause(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

// Cleanup deletes every key that the load has written. ctx ends the trying.
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
			return fmt.Errorf("%d keys under %s are left: %w", len(keys), l.cfg.Prefix, errors.Join(err, context.Cause(ctx)))
		default:
			pause(ctx, 50*time.Millisecond)
		}
	}
	return nil
}

// mark remembers a key for Cleanup.
func (l *Load) mark(key string) string {
	l.mu.Lock()
	l.made[key] = true
	l.mu.Unlock()
	return key
}

// pause waits for d and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// rotation gives out the keys of a kind: a few at a time, and new ones when the
// old have seen enough commands, or too many of unknown outcome.
type rotation struct {
	name  string
	width int // keys at a time
	limit int // commands on them all
	doubt int // unknown outcomes on them all

	mu            sync.Mutex
	generation    int
	used, unknown int
}

// take returns one of the present keys for n commands.
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

// doubtful notes a command of unknown outcome.
func (r *rotation) doubtful() {
	r.mu.Lock()
	r.unknown++
	r.mu.Unlock()
}

// Sabotage deletes the locks of the load behind its back, for a while: what a
// cluster must never do. The oracles have to notice.
func (l *Load) Sabotage(ctx context.Context, d time.Duration) error {
	ctx, stop := context.WithTimeout(ctx, d)
	defer stop()
	rng := rand.New(rand.NewPCG(l.cfg.Seed, 1<<32))
	c, err := Dial(ctx, l.cfg.Addrs[0], l.cfg.Login, l.cfg.Patience)
	if err != nil {
		return err
	}
	for pause(ctx, 5*time.Millisecond) {
		if _, err := c.Do("DEL", l.locks.take(rng, 0)); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	return c.Close()
}
