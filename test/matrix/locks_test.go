package matrix

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"

	"github.com/holdfast-kv/holdfast/resp/guard"
	"github.com/holdfast-kv/holdfast/test/harness"
	"github.com/holdfast-kv/holdfast/test/testutil"
)

// owner contains the functions with which a library takes, renews and releases
// a lock for one owner. Each function reports whether it succeeded, and does
// not wait for the lock.
type owner struct {
	take, renew, free func() (bool, error)
	// intrude tries to release the lock as another owner that uses the same
	// library.
	intrude func() (bool, error)
}

// TestLocks_OfLibraries takes the same lock alternately with LOCK and with a
// library. Each must respect the lock of the other and release only its own.
// LOCK TOKEN must return the token of both locks.
func TestLocks_OfLibraries(t *testing.T) {
	addr := harness.Single(t, guard.DefaultLimits()).Addr()
	c := goredis9.NewClient(&goredis9.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	for _, lib := range []struct {
		name string
		open func(ctx context.Context, t *testing.T, c *goredis9.Client, key string) owner
		// hash says that the library stores its lock in a hash and not in a
		// string. LOCK ACQUIRE refuses such a key with an error.
		hash bool
	}{
		{name: "redsync", open: redsyncOwner}, {name: "bsm-redislock", open: redislockOwner},
		{name: "redis-py", open: redisPyOwner}, {name: "redisson", open: redissonOwner, hash: true},
	} {
		t.Run(lib.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			key := "lock:" + lib.name
			s := &sharing{t: t, ctx: ctx, c: c, key: key, hash: lib.hash, owner: lib.open(ctx, t, c, key)}
			s.libraryFirst()
			s.lockFirst()
			s.waits()
		})
	}
}

// sharing is a test in which LOCK and a library take the same lock alternately.
type sharing struct {
	t    *testing.T
	ctx  context.Context
	c    *goredis9.Client
	key  string
	hash bool
	owner
}

func (s *sharing) must(what string, f func() (bool, error), want bool) {
	s.t.Helper()
	if got, err := f(); err != nil || got != want {
		s.t.Fatalf("%s: %v, %v, want %v", what, got, err, want)
	}
}

// lock runs a LOCK command and returns the integer of its reply. It returns 0
// for null, and for the error WRONGTYPE if the library stores locks in hashes.
func (s *sharing) lock(args ...any) int64 {
	s.t.Helper()
	n, err := s.c.Do(s.ctx, append([]any{"LOCK"}, args...)...).Int64()
	if s.hash && err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE") {
		err = goredis9.Nil
	}
	if err != nil && !errors.Is(err, goredis9.Nil) {
		s.t.Fatalf("LOCK %v: %v", args, err)
	}
	return n
}

func (s *sharing) want(got, want int64, what string) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s: %d, want %d", what, got, want)
	}
}

// libraryFirst takes the lock with the library. Then it tries to take, renew
// and release the lock with LOCK.
func (s *sharing) libraryFirst() {
	s.t.Helper()
	s.want(s.lock("TOKEN", s.key), 0, "the token of a free lock")
	s.must("take a free lock", s.take, true)
	token := s.lock("TOKEN", s.key)
	if token == 0 {
		s.t.Fatal("the lock of the library has no token")
	}
	s.want(s.lock("CHECK", s.key, token), 1, "check")
	s.want(s.lock("ACQUIRE", s.key, "me", "PX", 30000), 0, "acquire the lock of the library")
	s.want(s.lock("RENEW", s.key, "me", "PX", 30000), 0, "renew the lock of the library")
	s.want(s.lock("RELEASE", s.key, "me"), 0, "release the lock of the library")
	s.must("release it as another owner of the library", s.intrude, false)
	s.must("renew", s.renew, true)
	s.want(s.lock("TOKEN", s.key), token, "the token after a renewal")
	s.must("release", s.free, true)
	s.want(s.lock("CHECK", s.key, token), 0, "check after the release")
}

// lockFirst takes the lock with LOCK, after the library has released it. Then
// it tries to take and to release the lock with the library.
func (s *sharing) lockFirst() {
	s.t.Helper()
	s.must("take a free lock", s.take, true)
	before := s.lock("TOKEN", s.key)
	s.must("release", s.free, true)
	token := s.lock("ACQUIRE", s.key, "me", "PX", 30000)
	if token <= before {
		s.t.Fatalf("token %d, after the library had %d", token, before)
	}
	s.must("take the lock of LOCK", s.take, false)
	s.must("release the lock of LOCK", s.intrude, false)
	s.want(s.lock("RENEW", s.key, "me", "PX", 30000), token, "renew")
	s.want(s.lock("CHECK", s.key, token), 1, "check")
	s.want(s.lock("RELEASE", s.key, "me", token), 1, "release")
	s.must("take the released lock", s.take, true)
	if after := s.lock("TOKEN", s.key); after <= token {
		s.t.Fatalf("token %d of the library, after LOCK had %d", after, token)
	}
	s.must("release", s.free, true)
}

// waits lets LOCK wait for the lock of the library. It does nothing if the
// library's lock is a hash, because LOCK cannot wait for a hash.
func (s *sharing) waits() {
	s.t.Helper()
	if s.hash {
		return
	}
	s.must("take a free lock", s.take, true)
	before := s.lock("TOKEN", s.key)
	got := make(chan int64)
	go func() {
		n, err := s.c.Do(s.ctx, "LOCK", "ACQUIRE", s.key, "waiter", "PX", 30000, "WAIT", 30000).Int64()
		if err != nil {
			s.t.Errorf("wait: %v", err)
		}
		got <- n
	}()
	for {
		info, err := s.c.Do(s.ctx, "LOCK", "INFO", s.key).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(info), "owner:waiter") {
			break
		}
	}
	s.must("release", s.free, true)
	if token := <-got; token <= before {
		s.t.Errorf("the waiter got token %d, after the library had %d", token, before)
	}
	s.must("take the lock of the waiter", s.take, false)
	s.want(s.lock("RELEASE", s.key, "waiter"), 1, "release")
}

func redsyncOwner(ctx context.Context, _ *testing.T, c *goredis9.Client, key string) owner {
	rs := redsync.New(goredis.NewPool(c))
	m := rs.NewMutex(key, redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
	other := rs.NewMutex(key, redsync.WithValue("not the owner"))
	// redsync returns an error if the lock belongs to another owner.
	no := func(done bool, err error) (bool, error) {
		var taken *redsync.ErrTaken
		if errors.As(err, &taken) || errors.Is(err, redsync.ErrLockAlreadyExpired) ||
			errors.Is(err, redsync.ErrFailed) {
			return false, nil
		}
		return done, err
	}
	return owner{
		take:    func() (bool, error) { err := m.TryLockContext(ctx); return no(err == nil, err) },
		renew:   func() (bool, error) { return no(m.ExtendContext(ctx)) },
		free:    func() (bool, error) { return no(m.UnlockContext(ctx)) },
		intrude: func() (bool, error) { return no(other.UnlockContext(ctx)) },
	}
}

func redislockOwner(ctx context.Context, _ *testing.T, c *goredis9.Client, key string) owner {
	var held *redislock.Lock
	no := func(err error) (bool, error) {
		if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, redislock.ErrLockNotHeld) {
			return false, nil
		}
		return err == nil, err
	}
	return owner{
		take: func() (bool, error) {
			l, err := redislock.Obtain(ctx, c, key, 30*time.Second, nil)
			if err == nil {
				held = l
			}
			return no(err)
		},
		renew: func() (bool, error) { return no(held.Refresh(ctx, 30*time.Second, nil)) },
		free:  func() (bool, error) { return no(held.Release(ctx)) },
		intrude: func() (bool, error) {
			const other = "elsewhere"
			l, err := redislock.Obtain(ctx, c, other, 30*time.Second, nil)
			if err != nil {
				return false, err
			}
			n, err := redislockRelease.Run(ctx, c, []string{key}, l.Token()).Int()
			return n == 1, errors.Join(err, l.Release(ctx))
		},
	}
}

// redislockRelease is the release script of redislock. A redislock.Lock releases
// only a lock that it has obtained itself, so the test runs the script with the
// token of another owner.
var redislockRelease = goredis9.NewScript(
	`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func redisPyOwner(ctx context.Context, t *testing.T, c *goredis9.Client, key string) owner {
	const python = "/usr/bin/python3"
	testutil.Need(t, testutil.RequireClients, "python3-redis", exec.Command(python, "-c", "import redis").Run())
	host, port, err := net.SplitHostPort(c.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), python, "testdata/oneowner.py", host, port, key)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs := new(strings.Builder)
	cmd.Stderr = errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			t.Errorf("%v: %s", err, errs)
		}
	})
	lines := bufio.NewScanner(out)
	step := func(word string) func() (bool, error) {
		return func() (bool, error) {
			if _, err := fmt.Fprintln(in, word); err != nil {
				return false, err
			}
			if !lines.Scan() {
				return false, errors.Join(io.ErrUnexpectedEOF, lines.Err())
			}
			return lines.Text() == "yes", nil
		}
	}
	return owner{take: step("take"), renew: step("renew"), free: step("free"), intrude: step("free by another")}
}

// redissonOwner replays the scripts of Redisson.
func redissonOwner(ctx context.Context, _ *testing.T, c *goredis9.Client, key string) owner {
	const holder = "uuid:1"
	latch := 0
	// Redisson stores locks in hashes. If the key is a string, its scripts fail
	// with an error.
	no := func(done bool, err error) (bool, error) {
		if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
			return false, nil
		}
		return done, err
	}
	free := func(who string) (bool, error) {
		latch++
		n, err := c.Eval(ctx, redissonFree, []string{key, "redisson_lock__channel:{" + key + "}",
			fmt.Sprintf("redisson_unlock_latch:{%s}:%d", key, latch)}, 0, 30000, who, "publish", 13500).Int()
		if errors.Is(err, goredis9.Nil) { // not the holder
			return false, nil
		}
		return no(n == 1, err)
	}
	return owner{
		take: func() (bool, error) {
			err := c.Eval(ctx, redissonTake, []string{key}, 30000, holder).Err()
			if errors.Is(err, goredis9.Nil) {
				return true, nil
			}
			return no(false, err)
		},
		renew: func() (bool, error) {
			n, err := c.Eval(ctx, redissonRenew, []string{key}, 30000, holder).Int64Slice()
			return no(len(n) == 1 && n[0] == 1, err)
		},
		free:    func() (bool, error) { return free(holder) },
		intrude: func() (bool, error) { return free("uuid:2") },
	}
}
