package clients

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-kv/holdfast/verify/respwire"
)

// replyLimit is how long a node may take for a reply.
const replyLimit = 30 * time.Second

func TestGoRedis(t *testing.T) {
	for name, protocol := range map[string]int{"default": 0, "RESP2": 2} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			c := goredis.NewClient(&goredis.Options{Addr: start(t), Protocol: protocol, ClientName: "lock-holder"})
			t.Cleanup(func() { _ = c.Close() })
			if err := c.Ping(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			for i, want := range []bool{true, false} {
				if got, err := c.SetNX(ctx, "lock", "token", time.Minute).Result(); err != nil || got != want {
					t.Errorf("SetNX %d: %v, %v, want %v", i, got, err, want)
				}
			}
			if got, err := c.Get(ctx, "lock").Result(); err != nil || got != "token" {
				t.Errorf("Get: %q, %v", got, err)
			}
			if d, err := c.PTTL(ctx, "lock").Result(); err != nil || d <= 0 || d > time.Minute {
				t.Errorf("PTTL: %v, %v", d, err)
			}
			if err := c.Get(ctx, "absent").Err(); !errors.Is(err, goredis.Nil) {
				t.Errorf("Get of an absent key: %v, want Nil", err)
			}
			replies, err := c.TxPipelined(ctx, func(p goredis.Pipeliner) error {
				p.Set(ctx, "n", 1, 0)
				p.Incr(ctx, "n")
				p.Get(ctx, "n")
				return nil
			})
			if err != nil || replies[2].(*goredis.StringCmd).Val() != "2" {
				t.Errorf("MULTI: %v, %v", replies, err)
			}
			replies, err = c.Pipelined(ctx, func(p goredis.Pipeliner) error {
				for i := range 500 {
					p.Set(ctx, fmt.Sprint("k", i), i, 0)
					p.Get(ctx, fmt.Sprint("k", i))
				}
				return nil
			})
			if err != nil || len(replies) != 1000 || replies[999].(*goredis.StringCmd).Val() != "499" {
				t.Errorf("pipeline: %d replies, %v", len(replies), err)
			}
			popWaiting(ctx, t, c)
			watchAndLose(ctx, t, c)
			info, err := c.ClientInfo(ctx).Result()
			if err != nil || info.Name != "lock-holder" || !strings.HasPrefix(info.LibName, "go-redis") {
				t.Errorf("ClientInfo: %+v, %v", info, err)
			}
			if cmds, err := c.Command(ctx).Result(); err != nil || cmds["set"] == nil || cmds["set"].FirstKeyPos != 1 ||
				!cmds["get"].ReadOnly {
				t.Errorf("Command: %d commands, %v", len(cmds), err)
			}
			if conf, err := c.ConfigGet(ctx, "maxmemory-policy").Result(); err != nil ||
				conf["maxmemory-policy"] != "noeviction" {
				t.Errorf("ConfigGet: %v, %v", conf, err)
			}
			// The library replaces a connection that was cut, without an error.
			id := fmt.Sprint(c.ClientID(ctx).Val())
			if err := c.ClientKillByFilter(ctx, "ID", id, "SKIPME", "no").Err(); err != nil {
				t.Errorf("ClientKillByFilter: %v", err)
			}
			if got, err := c.Get(ctx, "lock").Result(); err != nil || got != "token" {
				t.Errorf("Get after the connection was cut: %q, %v", got, err)
			}
		})
	}
}

// popWaiting calls BLPOP for an element that another connection pushes later,
// BLMOVE for an element that exists, and BZPOPMIN for a key that stays empty.
func popWaiting(ctx context.Context, t *testing.T, c *goredis.Client) {
	t.Helper()
	id := c.Conn()
	defer id.Close()
	number, err := id.ClientID(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := id.BLPop(ctx, 20*time.Second, "none", "queue").Result(); err != nil || len(got) != 2 ||
			got[1] != "one" {
			t.Errorf("BLPop: %q, %v", got, err)
		}
	})
	for flags := fmt.Sprintf("id=%d ", number); ; {
		list, err := c.ClientList(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		_, line, _ := strings.Cut(list, flags)
		line, _, _ = strings.Cut(line, "\n")
		if strings.Contains(line, " flags=b ") {
			break
		}
	}
	if err := c.RPush(ctx, "queue", "one", "two").Err(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if got, err := c.BLMove(ctx, "queue", "done", "LEFT", "RIGHT", time.Second).Result(); err != nil || got != "two" {
		t.Errorf("BLMove: %q, %v", got, err)
	}
	if err := c.BZPopMin(ctx, 100*time.Millisecond, "none").Err(); !errors.Is(err, goredis.Nil) {
		t.Errorf("BZPopMin of nothing: %v, want Nil", err)
	}
}

func watchAndLose(ctx context.Context, t *testing.T, c *goredis.Client) {
	t.Helper()
	err := c.Watch(ctx, func(tx *goredis.Tx) error {
		if err := c.Set(ctx, "watched", "other", 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p goredis.Pipeliner) error {
			p.Set(ctx, "watched", "mine", 0)
			return nil
		})
		return err
	}, "watched")
	if !errors.Is(err, goredis.TxFailedErr) {
		t.Errorf("Watch: %v, want TxFailedErr", err)
	}
}

func TestRedigo(t *testing.T) {
	addr := start(t)
	pool := &redis.Pool{
		MaxIdle: 2,
		Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", addr, redis.DialDatabase(3), redis.DialClientName("redigo"))
		},
		TestOnBorrow: func(c redis.Conn, _ time.Time) error {
			_, err := c.Do("PING")
			return err
		},
	}
	t.Cleanup(func() { _ = pool.Close() })
	c := pool.Get()
	defer c.Close()
	if r, err := redis.String(c.Do("SET", "lock", "token", "NX", "EX", 60)); err != nil || r != "OK" {
		t.Errorf("SET NX EX: %q, %v", r, err)
	}
	if _, err := redis.String(c.Do("SET", "lock", "token", "NX", "EX", 60)); !errors.Is(err, redis.ErrNil) {
		t.Errorf("second SET NX EX: %v, want ErrNil", err)
	}
	for _, line := range [][]any{{"MULTI"}, {"SET", "n", 1}, {"INCR", "n"}} {
		if err := c.Send(line[0].(string), line[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := redis.Values(c.Do("EXEC")); err != nil || len(r) != 2 || r[1] != int64(2) {
		t.Errorf("EXEC: %v, %v", r, err)
	}
	for i := range 100 {
		if err := c.Send("ECHO", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if n, err := redis.Int(c.Receive()); err != nil || n != i {
			t.Fatalf("pipeline: reply %d is %d, %v", i, n, err)
		}
	}
	id, err := redis.Int64(c.Do("CLIENT", "ID"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil { // Close returns the connection to the pool
		t.Fatal(err)
	}
	killed, err := respwire.Do(addr, replyLimit, "CLIENT", "KILL", "ID", strconv.FormatInt(id, 10))
	if err != nil || killed.Int != 1 {
		t.Errorf("CLIENT KILL: %v, %v", killed, err)
	}
	again := pool.Get()
	defer again.Close()
	if r, err := redis.String(again.Do("GET", "lock")); err != nil || r != "token" {
		t.Errorf("GET after the connection was cut: %q, %v", r, err)
	}
}

func TestRueidis(t *testing.T) {
	addr := start(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	set := func() error {
		return c.Do(ctx, c.B().Set().Key("lock").Value("token").Nx().ExSeconds(60).Build()).Error()
	}
	if err := set(); err != nil {
		t.Errorf("SET NX EX: %v", err)
	}
	if err := set(); !rueidis.IsRedisNil(err) {
		t.Errorf("second SET NX EX: %v, want nil reply", err)
	}
	replies := c.DoMulti(ctx, c.B().Multi().Build(), c.B().Set().Key("n").Value("1").Build(),
		c.B().Incr().Key("n").Build(), c.B().Exec().Build())
	if exec, err := replies[3].ToArray(); err != nil || len(exec) != 2 {
		t.Errorf("MULTI: %v, %v", exec, err)
	} else if n, err := exec[1].AsInt64(); err != nil || n != 2 {
		t.Errorf("INCR in MULTI: %d, %v", n, err)
	}
	// rueidis sends concurrent commands as one pipeline on one connection.
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			key := fmt.Sprint("k", i)
			for _, r := range c.DoMulti(ctx, c.B().Set().Key(key).Value(key).Build(), c.B().Get().Key(key).Build()) {
				if s, err := r.ToString(); err != nil || s != key && s != "OK" {
					t.Errorf("%s: %q, %v", key, s, err)
				}
			}
		})
	}
	wg.Wait()
	if n, err := respwire.Do(addr, replyLimit, "CLIENT", "KILL", "TYPE", "normal"); err != nil || n.Int < 1 {
		t.Errorf("CLIENT KILL: %v, %v", n, err)
	}
	if got, err := c.Do(ctx, c.B().Get().Key("lock").Build()).ToString(); err != nil || got != "token" {
		t.Errorf("GET after the connection was cut: %q, %v", got, err)
	}
}

// TestRueidis_Tracking checks client-side caching, which rueidis uses by
// default.
func TestRueidis_Tracking(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cached := func() rueidis.RedisResult { return c.DoCache(ctx, c.B().Get().Key("lock").Cache(), time.Minute) }
	for _, owner := range []string{"one", "two"} {
		if err := c.Do(ctx, c.B().Set().Key("lock").Value(owner).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for got := ""; got != owner; { // repeat until the invalidation of the older value has arrived
			var err error
			if got, err = cached().ToString(); err != nil {
				t.Fatalf("DoCache, want %q: %v", owner, err)
			}
		}
		if !cached().IsCacheHit() {
			t.Errorf("%q does not come from the cache", owner)
		}
	}
}
