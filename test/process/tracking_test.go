package process_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// rueidisAt returns the options with which a client of rueidis connects to one
// node. Everything else has its default.
func rueidisAt(n *process.Node) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{n.Clients}, ForceSingleClient: true}
}

// TestTracking_RueidisCache reads through a follower with a client that caches.
// The client soon sees each new value, whichever node executes the write, even
// after the leader was killed. It also sees that the key has expired.
func TestTracking_RueidisCache(t *testing.T) {
	c := startCluster(t)
	dead := c.leader()
	rest := c.others(dead)
	client, err := rueidis.NewClient(rueidisAt(rest[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx := testutil.Within(t, time.Minute)
	cached := func() (string, bool) {
		t.Helper()
		r := client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Hour)
		s, err := r.ToString()
		if err != nil {
			t.Fatal(err)
		}
		return s, r.IsCacheHit()
	}
	until := func(value string) {
		t.Helper()
		if err := process.Poll(ctx, "the cache to hold "+value,
			func() bool { got, hit := cached(); return got == value && hit }); err != nil {
			t.Fatal(err)
		}
	}
	want(t, rest[1], "OK", "SET", "k", "1")
	until("1")
	want(t, dead, "OK", "SET", "k", "2")
	until("2")
	kill(t, dead)
	want(t, rest[1], "OK", "SET", "k", "3")
	until("3")
	want(t, rest[1], "OK", "SET", "k", "4", "PX", "2000")
	until("4")
	if err := process.Poll(ctx, "the key to be gone from the cache", func() bool {
		return rueidis.IsRedisNil(client.DoCache(ctx, client.B().Get().Key("k").Cache(), time.Hour).Error())
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTracking_RueidisFields caches the fields of a hash one by one. After the
// client has cached the first field, a write changes both fields. The client
// then reads the second field, perhaps before its node has executed the write.
// The node must nevertheless invalidate every old value later.
func TestTracking_RueidisFields(t *testing.T) {
	c := startCluster(t)
	leader := c.leader()
	client, err := rueidis.NewClient(rueidisAt(c.others(leader)[0]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx := testutil.Within(t, time.Minute)
	cached := func(field string) string {
		t.Helper()
		s, err := client.DoCache(ctx, client.B().Hget().Key("h").Field(field).Cache(), time.Hour).ToString()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	w := dial(t, leader)
	set := func(value int) {
		t.Helper()
		text := fmt.Sprint(value)
		if got := show(w, "HSET", "h", "a", text, "b", text); !strings.HasPrefix(got, "(integer) ") {
			t.Fatal(got)
		}
	}
	for i := range 20 {
		set(2 * i)
		cached("a")
		set(2*i + 1)
		cached("b")
		for _, field := range []string{"a", "b"} {
			if err := process.Poll(ctx, "the cache to hold the new field "+field,
				func() bool { return cached(field) == fmt.Sprint(2*i+1) }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTracking_RueidisLock uses rueidislock. A lock keeps its owner while the
// leader is killed. When the lock is lost, the library reports this to the
// owner, and a waiting client gets the lock.
func TestTracking_RueidisLock(t *testing.T) {
	for _, noloop := range []bool{true, false} {
		name := "loop"
		if noloop {
			name = "noloop"
		}
		t.Run(name, func(t *testing.T) {
			c := startCluster(t)
			dead := c.leader()
			rest := c.others(dead)
			locker := func(n *process.Node) rueidislock.Locker {
				l, err := rueidislock.NewLocker(rueidislock.LockerOption{
					ClientOption: rueidisAt(n), KeyMajority: 1, NoLoopTracking: noloop,
					// These times are long, so that only an
					// invalidation can be fast.
					KeyValidity: 2 * time.Minute, ExtendInterval: time.Minute, TryNextAfter: 30 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(l.Close)
				return l
			}
			holder, waiter := locker(rest[0]), locker(rest[1])
			ctx := testutil.Within(t, 2*time.Minute)
			held, release, err := holder.WithContext(ctx, "job")
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if _, _, err := waiter.TryWithContext(ctx, "job"); err == nil {
				t.Fatal("two clients have the lock")
			}
			type taken struct {
				ctx     context.Context
				release context.CancelFunc
				err     error
			}
			got := make(chan taken, 1)
			go func() {
				lock, release, err := awaitLock(ctx, waiter, "job")
				got <- taken{lock, release, err}
			}()
			kill(t, dead)
			// Wait until a new leader executes a command. Without a leader, no
			// client could get the lock, so the checks below would prove
			// nothing.
			want(t, rest[1], "OK", "SET", "other", "x")
			select {
			case <-held.Done():
				t.Fatal("the lock was lost with the leader")
			case r := <-got:
				t.Fatalf("the waiting client got a lock that has an owner (%v)", r.err)
			default:
			}
			begun := time.Now()
			want(t, rest[1], "(integer) 1", "DEL", "rueidislock:0:job")
			select {
			case <-held.Done():
				t.Logf("the library reported the loss after %v", time.Since(begun))
			case <-ctx.Done():
				t.Fatal("the library does not report that the lock is lost")
			}
			var second taken
			select {
			case second = <-got:
				if second.err != nil {
					t.Fatal(second.err)
				}
				t.Logf("the waiting client got the lock after %v", time.Since(begun))
			case <-ctx.Done():
				t.Fatal("the waiting client did not get the lock")
			}
			// After a release by the second client, the first client gets the
			// lock.
			go func() {
				lock, release, err := awaitLock(ctx, holder, "job")
				got <- taken{lock, release, err}
			}()
			begun = time.Now()
			second.release()
			select {
			case r := <-got:
				if r.err != nil {
					t.Fatal(r.err)
				}
				t.Logf("the next client got the lock %v after the release began", time.Since(begun))
				r.release()
			case <-ctx.Done():
				t.Fatal("no client got the lock after the release")
			}
		})
	}
}

// awaitLock waits for a lock with rueidislock. It asks again after 20 seconds,
// because rueidislock 1.0.79 can forget a waiting client: the goroutine
// "monitoring" of locker.try may read the counter "failures" before try has
// counted the failed attempt. The goroutine then deletes the client's gate, and
// an invalidation no longer wakes the client. TestTracking_RueidisCache checks
// the invalidations themselves.
func awaitLock(ctx context.Context, l rueidislock.Locker, name string) (context.Context, context.CancelFunc, error) {
	for {
		attempt, cancel := context.WithCancel(ctx)
		forgotten := time.AfterFunc(20*time.Second, cancel)
		lock, release, err := l.WithContext(attempt, name)
		switch inTime := forgotten.Stop(); {
		case err == nil && inTime:
			return lock, release, nil
		case err == nil:
			release()
		case ctx.Err() != nil || attempt.Err() == nil:
			cancel()
			return nil, nil, err
		}
		cancel()
	}
}
