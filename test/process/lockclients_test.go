package process_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-kv/holdfast/lock"
	"github.com/holdfast-kv/holdfast/lock/rueidisclient"
	"github.com/holdfast-kv/holdfast/test/testutil"
	"github.com/holdfast-kv/holdfast/verify/process"
)

// TestLockPackage_LeaderKilled kills the leader, to which the clients are
// connected, while one of them holds a lock and another one waits for it. The
// owner must keep the lock, and the waiter must get it afterward.
func TestLockPackage_LeaderKilled(t *testing.T) {
	for _, lib := range []struct {
		name string
		open func(t *testing.T, nodes []*process.Node) lock.Client
	}{{"go-redis", overGoRedis}, {"rueidis", overRueidis}} {
		t.Run(lib.name, func(t *testing.T) {
			c := startCluster(t)
			leader := c.leader()
			nodes := append([]*process.Node{leader}, c.others(leader)...)
			first, second := lib.open(t, nodes), lib.open(t, nodes)
			ctx := testutil.Within(t, time.Minute)
			const ttl = 3 * time.Second
			held, err := lock.Acquire(ctx, first, "job", lock.WithTTL(ttl), lock.WithMeta("first"))
			if err != nil {
				t.Fatal(err)
			}
			type result struct {
				held *lock.Held
				err  error
			}
			got := make(chan result, 1)
			go func() {
				h, err := lock.Acquire(ctx, second, "job", lock.WithTTL(ttl))
				got <- result{h, err}
			}()
			c.awaitWaiters("job", 1)
			if _, err := lock.Acquire(ctx, second, "job", lock.WithWait(0)); err == nil {
				t.Error("another owner got the lock while it was held")
			}
			begun := held.Until()
			if err := leader.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := process.Poll(ctx, "renewals after the leader was killed", func() bool {
				return held.Until().After(begun.Add(ttl)) || held.Context().Err() != nil
			}); err != nil {
				t.Fatal(err)
			}
			if held.Context().Err() != nil {
				t.Fatalf("the owner lost the lock: %v", context.Cause(held.Context()))
			}
			c.awaitWaiters("job", 1)
			if err := held.Release(ctx); err != nil {
				t.Fatal(err)
			}
			next := <-got
			if next.err != nil {
				t.Fatal(next.err)
			}
			if next.held.Token() <= held.Token() {
				t.Errorf("token %d, after %d", next.held.Token(), held.Token())
			}
			if err := next.held.Release(ctx); err != nil {
				t.Error(err)
			}
			shared(ctx, t, first, second)
		})
	}
}

// shared checks that two clients can hold a shared lock together.
func shared(ctx context.Context, t *testing.T, first, second lock.Client) {
	t.Helper()
	for _, client := range []lock.Client{first, second} {
		h, err := lock.Acquire(ctx, client, "readers", lock.WithShared(), lock.WithWait(0))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := h.Release(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
}

func overGoRedis(t *testing.T, nodes []*process.Node) lock.Client {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Clients)
	}
	c, err := lock.NewNodes(addrs, goredis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func overRueidis(t *testing.T, nodes []*process.Node) lock.Client {
	t.Helper()
	var all []rueidis.Client
	for _, n := range nodes {
		c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{n.Clients}, ForceSingleClient: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		all = append(all, c)
	}
	return rueidisclient.New(all[0], all[1:]...)
}
