package lock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// must acquires the lock k and fails the test on an error.
func must(t *testing.T, f *fake, opts ...Option) *Held {
	t.Helper()
	h, err := Acquire(t.Context(), f, "k", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// release releases a lock that is still held. It checks that the context of the
// lock is then canceled.
func release(t *testing.T, h *Held) {
	t.Helper()
	if err := h.Release(context.Background()); err != nil {
		t.Error(err)
	}
	if h.Context().Err() == nil {
		t.Error("the context is not canceled after Release")
	}
}

func TestAcquire_Free(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		first := must(t, f, WithOwner("a"))
		if first.Token() != 1 || first.Owner() != "a" || first.Key() != "k" {
			t.Errorf("token %d, owner %q, key %q, want 1, \"a\" and \"k\"", first.Token(), first.Owner(), first.Key())
		}
		if _, err := Acquire(t.Context(), f, "k", WithWait(0)); !errors.Is(err, ErrTaken) {
			t.Errorf("second owner: %v, want ErrTaken", err)
		}
		release(t, first)
		second := must(t, f)
		if second.Token() != 2 {
			t.Errorf("token %d, want 2", second.Token())
		}
		release(t, second)
	})
}

func TestAcquire_Options(t *testing.T) {
	for name, opts := range map[string][]Option{
		"short TTL":           {WithTTL(time.Millisecond)},
		"no owner":            {WithOwner("")},
		"no permit":           {WithLimit(0)},
		"too many permits":    {WithLimit(MaxLimit + 1)},
		"shared with a limit": {WithShared(), WithLimit(2)},
		"shared in Redis":     {WithShared(), WithPlainRedis()},
		"limit in Redis":      {WithLimit(2), WithPlainRedis()},
	} {
		if _, err := Acquire(t.Context(), newFake(), "k", opts...); err == nil {
			t.Errorf("%s: Acquire returned no error, want one", name)
		}
	}
	if _, err := Acquire(t.Context(), newFake(), ""); err == nil {
		t.Error("empty key: Acquire returned no error, want one")
	}
}

// TestAcquire_Waits checks that a waiter gets the lock when the owner releases it,
// and that the waiter then knows how long its lease lasts.
func TestAcquire_Waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		first := must(t, f)
		go func() {
			time.Sleep(time.Minute)
			release(t, first)
		}()
		begun := time.Now()
		second := must(t, f, WithTTL(9*time.Second))
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("waited %v, want 1m", waited)
		}
		if left := time.Until(second.Until()); left < 8*time.Second || left > 9*time.Second {
			t.Errorf("the lease lasts for %v, want almost 9s", left)
		}
		release(t, second)
		if f.closed != 1 {
			t.Errorf("%d connections for waits were closed, want 1", f.closed)
		}
	})
}

func TestAcquire_WaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		first := must(t, f)
		begun := time.Now()
		if _, err := Acquire(t.Context(), f, "k", WithWait(5*time.Second)); !errors.Is(err, ErrTaken) {
			t.Errorf("Acquire after the end of the wait: %v, want ErrTaken", err)
		}
		if waited := time.Since(begun); waited != 5*time.Second {
			t.Errorf("waited %v, want 5s", waited)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := Acquire(ctx, f, "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire after the end of the context: %v, want DeadlineExceeded", err)
		}
		synctest.Wait()
		f.set(func() {
			if n := len(f.lock("k").waiters); n != 0 || f.closed != 2 {
				t.Errorf("%d waiters are left and %d connections were closed, want no waiter and 2 connections", n, f.closed)
			}
		})
		release(t, first)
	})
}

// TestAcquire_LostReply checks that a client gets the grant of its first
// command even if the replies to its first two commands are lost, and that
// Release succeeds if the reply to its first command is lost.
func TestAcquire_LostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.lose = 2
		h := must(t, f)
		if h.Token() != 1 {
			t.Errorf("token %d, want 1", h.Token())
		}
		f.set(func() { f.lose = 1 })
		release(t, h)
	})
}

// TestAcquire_DeadNode checks that Acquire ends a wait when its node has
// stopped answering, and waits on a new connection when the node is back.
func TestAcquire_DeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		first := must(t, f, WithTTL(time.Minute))
		first.stop() // the owner no longer renews; the lease ends after a minute
		go func() {
			time.Sleep(10 * time.Second)
			f.set(func() { f.down = true })
			time.Sleep(10 * time.Second)
			f.set(func() { f.down = false })
		}()
		h := must(t, f)
		f.set(func() {
			if f.closed < 2 {
				t.Errorf("the wait used %d connections, want a new one after the node failed", f.closed)
			}
		})
		release(t, h)
	})
}

func TestHeld_Renews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := must(t, f, WithTTL(3*time.Second))
		begun := time.Now()
		time.Sleep(10*time.Second + time.Millisecond)
		f.set(func() {
			if len(f.renewed) != 10 || f.renewed[0].Sub(begun) != time.Second {
				t.Errorf("renewed %d times in 10 s, first after %v, want 10 times after 1s", len(f.renewed),
					f.renewed[0].Sub(begun))
			}
		})
		if h.Context().Err() != nil {
			t.Error(context.Cause(h.Context()))
		}
		release(t, h)
	})
}

func TestHeld_Lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := must(t, f, WithTTL(3*time.Second))
		f.overwrite("k", "other")
		time.Sleep(time.Second + time.Millisecond)
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		if err := h.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
	})
}

// TestHeld_Unproved checks the context of an owner that cannot renew its lease.
// The context is canceled before the lease ends, but a short failure does not
// cancel it.
func TestHeld_Unproved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := must(t, f, WithTTL(3*time.Second))
		f.set(func() { f.down = true })
		time.Sleep(2 * time.Second)
		f.set(func() { f.down = false })
		time.Sleep(10 * time.Second)
		if h.Context().Err() != nil {
			t.Fatalf("after a short failure, the context was canceled with %v, want it to stay", context.Cause(h.Context()))
		}
		f.set(func() { f.down = true })
		begun := time.Now()
		<-h.Context().Done()
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrUnproved) {
			t.Errorf("cause %v, want ErrUnproved", cause)
		}
		f.set(func() {
			end := f.lock("k").until
			if !time.Now().Before(end) || time.Since(begun) < time.Second {
				t.Errorf("the context ended %v before the end of the lease, want it to end shortly before", time.Until(end))
			}
		})
		f.set(func() { f.down = false })
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("Release of a lock that is still held returned %v, want nil", err)
		}
	})
}

// TestHeld_ReleaseRepeated checks that Release succeeds when the reply to its first
// command is lost. Release then sends a second command, which finds no lock, because
// the first command has released it.
func TestHeld_ReleaseRepeated(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, addr string) Client{
		"redis.Client": func(t *testing.T, addr string) Client {
			c := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
		"Nodes": func(t *testing.T, addr string) Client {
			c, err := NewNodes([]string{addr, addr}, redis.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
	} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain %t", name, plain), func(t *testing.T) {
				f := newFake()
				f.plain = plain
				client := open(t, f.listen(t))
				h, err := Acquire(t.Context(), client, "k", WithPlainRedis())
				if err != nil {
					t.Fatal(err)
				}
				f.set(func() { f.lose = 1 })
				if err := h.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
	}
}

// TestNodes_Hangs checks that a command to a node that hangs fails at its
// deadline, and that a later command goes to the other node before the read
// timeout of go-redis has passed.
func TestNodes_Hangs(t *testing.T) {
	nodes := oneHangs(t)
	limited, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := call(limited, nodes, "PING"); err == nil {
		t.Fatal("a command to a node that hangs got a reply, want an error")
	}
	next, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	begun := time.Now()
	// Nodes must use the other node before the read timeout of the go-redis
	// client passes.
	for {
		short, stop := context.WithTimeout(next, 500*time.Millisecond)
		_, err := call(short, nodes, "PING")
		stop()
		if err == nil {
			break
		}
		if next.Err() != nil {
			t.Fatal(err)
		}
	}
	if limit := nodes.clients[0].Options().ReadTimeout; time.Since(begun) >= limit {
		t.Errorf("the other node answered after %v, want less than %v", time.Since(begun), limit)
	}
}

// oneHangs returns a client of two nodes. The first node accepts connections but
// does not answer.
func oneHangs(t *testing.T) *Nodes {
	t.Helper()
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangs.Close() })
	nodes, err := NewNodes([]string{hangs.Addr().String(), newFake().listen(t)}, redis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nodes.Close() })
	return nodes
}

// TestNodes_HangsUntilDeadline checks that Nodes always switches to the other node
// when a command to a node that hangs exceeds its deadline. A read may fail
// shortly before the context ends. Nodes must then not send the command to the
// other node too: the little time that is left would end before a reply, and Nodes
// would switch back.
func TestNodes_HangsUntilDeadline(t *testing.T) {
	nodes := oneHangs(t)
	for i := range 20 {
		nodes.current.Store(0)
		short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := nodes.Do(short, "PING").Err()
		stop()
		if at := nodes.current.Load(); at != 1 {
			t.Fatalf("command %d: %v; the next command goes to node %d, want 1", i, err, at)
		}
	}
	over, stop := context.WithTimeout(t.Context(), -time.Second)
	defer stop()
	if err := nodes.DoOnce(over, "PING").Err(); err == nil || nodes.current.Load() != 1 {
		t.Errorf("a command with a context that has ended: %v, the next goes to node %d, want an error and 1", err, nodes.current.Load())
	}
}

func TestHeld_ReleaseCannotReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		h := must(t, f, WithTTL(3*time.Second))
		f.set(func() { f.down = true })
		begun := time.Now()
		if err := h.Release(t.Context()); err == nil || time.Since(begun) > 3*time.Second {
			t.Errorf("Release: %v after %v, want an error when the lease has ended", err, time.Since(begun))
		}
	})
}

// TestPlain checks Acquire, renewals and Release on a server without the LOCK
// command.
func TestPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.plain = true
		if _, err := Acquire(t.Context(), f, "k"); !errors.Is(err, ErrNoLockCommand) {
			t.Errorf("without the option: %v, want ErrNoLockCommand", err)
		}
		h := must(t, f, WithPlainRedis(), WithTTL(3*time.Second))
		if h.Token() != 0 {
			t.Errorf("token %d, want 0", h.Token())
		}
		if _, err := Acquire(t.Context(), f, "k", WithPlainRedis(), WithWait(time.Second)); !errors.Is(err, ErrTaken) {
			t.Errorf("second owner: %v, want ErrTaken", err)
		}
		go func() {
			time.Sleep(10 * time.Second)
			release(t, h)
		}()
		second := must(t, f, WithPlainRedis())
		release(t, second)
		f.set(func() {
			if len(f.renewed) < 9 {
				t.Errorf("renewed %d times in 10 s, want at least 9", len(f.renewed))
			}
		})
	})
}

// loser is a client that loses the replies to a command after the server has
// executed the command.
type loser struct {
	*fake
	command string
}

func (l loser) Do(ctx context.Context, args ...any) *redis.Cmd {
	cmd := l.fake.Do(ctx, args...)
	if args[0] == l.command {
		cmd = redis.NewCmd(ctx, args...)
		cmd.SetErr(io.EOF)
	}
	return cmd
}

// TestPlain_Abandons checks that a failed Acquire releases the lock if its SET
// may have acquired the lock.
func TestPlain_Abandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.plain = true
		_, err := Acquire(t.Context(), loser{f, "SET"}, "k", WithPlainRedis(), WithWait(0), WithTTL(time.Minute))
		if !errors.Is(err, io.EOF) {
			t.Fatalf("got %v, want %v", err, io.EOF)
		}
		synctest.Wait()
		f.set(func() {
			if owner := f.lock("k").owner; owner != "" {
				t.Errorf("%q holds the lock after Acquire has returned an error, want the lock free", owner)
			}
		})
	})
}

// TestAcquire_Mode checks that Acquire sends the arguments of WithShared and
// WithLimit, both without a wait and in the queue.
func TestAcquire_Mode(t *testing.T) {
	for _, c := range []struct {
		opt  Option
		want []any
	}{
		{WithShared(), []any{"SHARED"}},
		{WithLimit(3), []any{"LIMIT", 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			sent := func(head ...any) {
				t.Helper()
				f.set(func() {
					if want := append(head, c.want...); !slices.Equal(f.acquired, want) {
						t.Errorf("sent %v, want %v", f.acquired, want)
					}
				})
			}
			first := must(t, f, WithOwner("a"), WithTTL(time.Minute))
			go func() {
				time.Sleep(time.Second)
				sent("LOCK", "ACQUIRE", "k", "b", "PX", int64(60000), "WAIT", int64(5000), "META", "m")
				release(t, first)
			}()
			second := must(t, f, WithOwner("b"), WithTTL(time.Minute), WithWait(5*time.Second), WithMeta("m"), c.opt)
			release(t, second)
			release(t, must(t, f, WithOwner("c"), WithTTL(time.Minute), c.opt))
			sent("LOCK", "ACQUIRE", "k", "c", "PX", int64(60000))
		})
	}
}
