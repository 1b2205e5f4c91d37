package discovery

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/holdfast-kv/holdfast/test/testutil"
)

// goRedis is any kind of client of go-redis.
type goRedis struct {
	goredis.UniversalClient
	info func(ctx context.Context) (string, error)
}

func (g goRedis) set(ctx context.Context, key, value string) error {
	return g.Set(ctx, key, value, 0).Err()
}

func (g goRedis) port(ctx context.Context) (string, error) {
	info, err := g.info(ctx)
	if err != nil {
		return "", err
	}
	return tcpPort(info)
}

func TestSentinel_GoRedis(t *testing.T) {
	c := sentinels(t)
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "mymaster",
		SentinelAddrs: c.addrs(sentinelOf)})
	t.Cleanup(func() { _ = client.Close() })
	info := func(ctx context.Context) (string, error) { return client.Info(ctx, "server").Result() }
	follow(t, c, goRedis{client, info})
}

// TestSentinel_GoRedisCluster reads from any node and writes to the master. The
// client gets only the addresses of the followers' Sentinels. The reason is
// that go-redis 9.23 queries the master again when its Sentinel reports a
// change, and otherwise once a minute. So it would need up to a minute if its
// Sentinel died together with the master.
func TestSentinel_GoRedisCluster(t *testing.T) {
	c := sentinels(t)
	client := goredis.NewFailoverClusterClient(&goredis.FailoverOptions{MasterName: "mymaster",
		SentinelAddrs: c.addrs(sentinelOf)[:2], RouteRandomly: true})
	t.Cleanup(func() { _ = client.Close() })
	follow(t, c, goRedis{client, masterInfo(client)})
	if _, err := client.Get(testutil.Within(t, limit), "before0").Result(); err != nil {
		t.Errorf("read through any node: %v", err)
	}
}

// TestCluster_GoRedis sets the interval at which go-redis 9.23 queries the
// shards again if it gets no MOVED error. The default is a minute. A client
// that knows no other master would use a dead master for that long.
func TestCluster_GoRedis(t *testing.T) {
	c := shard(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.addrs(clientsOf),
		ClusterStateReloadInterval: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	follow(t, c, goRedis{client, masterInfo(client)})
	// A transaction has its keys in one slot, as Redis Cluster requires.
	_, err := client.TxPipelined(testutil.Within(t, limit), func(p goredis.Pipeliner) error {
		p.Set(t.Context(), "{a}1", 1, 0)
		p.Incr(t.Context(), "{a}1")
		return nil
	})
	if err != nil {
		t.Errorf("transaction: %v", err)
	}
}

// TestCluster_GoRedisReplicas reads from random nodes with READONLY.
func TestCluster_GoRedisReplicas(t *testing.T) {
	c := shard(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.addrs(clientsOf), ReadOnly: true,
		RouteRandomly: true, ClusterStateReloadInterval: time.Second})
	t.Cleanup(func() { _ = client.Close() })
	follow(t, c, goRedis{client, masterInfo(client)})
	for range 20 { // each read goes to a random node
		if got, err := client.Get(testutil.Within(t, limit), "before0").Result(); err != nil || got != "before0" {
			t.Errorf("read from any node: %q, %v", got, err)
		}
	}
}

// masterInfo returns a function that queries the node to which a cluster client
// writes.
func masterInfo(client *goredis.ClusterClient) func(ctx context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		node, err := client.MasterForKey(ctx, "any")
		if err != nil {
			return "", err
		}
		return node.Info(ctx, "server").Result()
	}
}

// rueidisClient is a client of rueidis, for Sentinel or for Redis Cluster.
// While there is no leader, the library retries after errors until ctx ends.
type rueidisClient struct{ rueidis.Client }

func (r rueidisClient) set(ctx context.Context, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return r.Do(ctx, r.B().Set().Key(key).Value(value).Build()).Error()
}

// port sends its query to the node that receives the writes, on a dedicated
// connection. The query has no key, so a cluster client would otherwise send it
// to any node.
func (r rueidisClient) port(ctx context.Context) (string, error) {
	var info string
	err := r.Dedicated(func(d rueidis.DedicatedClient) (err error) {
		if err = d.Do(ctx, d.B().Get().Key("any").Build()).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err // a dedicated client keeps using the node of its first key
		}
		info, err = d.Do(ctx, d.B().Info().Section("server").Build()).ToString()
		return err
	})
	if err != nil {
		return "", err
	}
	return tcpPort(info)
}

func TestSentinel_Rueidis(t *testing.T) {
	c := sentinels(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.addrs(sentinelOf),
		Sentinel: rueidis.SentinelOption{MasterSet: "mymaster"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	follow(t, c, rueidisClient{client})
}

func TestCluster_Rueidis(t *testing.T) {
	c := shard(t)
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.addrs(clientsOf)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	follow(t, c, rueidisClient{client})
}

// redigo is a simple cluster client. The library redigo, which it uses, has none. It
// follows MOVED, and tries another node after an error.
type redigo struct {
	addrs []string
	conn  redis.Conn
	t     *testing.T
}

func (r *redigo) do(cmd string, args ...any) (any, error) {
	if r.conn == nil {
		conn, err := redis.Dial("tcp", r.addrs[rand.IntN(len(r.addrs))], redis.DialConnectTimeout(time.Second),
			redis.DialReadTimeout(5*time.Second))
		if err != nil {
			return nil, err
		}
		r.conn = conn
	}
	reply, err := r.conn.Do(cmd, args...)
	if err == nil {
		return reply, nil
	}
	_ = r.conn.Close()
	r.conn = nil
	var refused redis.Error
	if errors.As(err, &refused) && strings.HasPrefix(string(refused), "MOVED ") {
		addr := string(refused)[strings.LastIndexByte(string(refused), ' ')+1:]
		if r.conn, err = redis.Dial("tcp", addr, redis.DialConnectTimeout(time.Second),
			redis.DialReadTimeout(5*time.Second)); err != nil {
			r.conn = nil
			return nil, err
		}
		return r.conn.Do(cmd, args...)
	}
	return nil, err
}

func (r *redigo) set(_ context.Context, key, value string) error {
	_, err := redis.String(r.do("SET", key, value))
	return err
}

func (r *redigo) port(context.Context) (string, error) {
	info, err := redis.String(r.do("INFO", "server"))
	if err != nil {
		return "", err
	}
	return tcpPort(info)
}

func TestCluster_Redigo(t *testing.T) {
	c := shard(t)
	r := &redigo{addrs: c.addrs(clientsOf), t: t}
	t.Cleanup(func() {
		if r.conn != nil {
			_ = r.conn.Close()
		}
	})
	follow(t, c, r)
}

// redigoSentinel uses redigo with Sentinel. It asks a Sentinel for the master,
// and checks with ROLE that this node is the master.
type redigoSentinel struct {
	*redigo
	sentinels []string
}

func (r redigoSentinel) find() error {
	if r.conn != nil {
		return nil
	}
	var errs []error
	for _, addr := range r.sentinels {
		s, err := redis.Dial("tcp", addr, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := redis.Strings(s.Do("SENTINEL", "get-master-addr-by-name", "mymaster"))
		_ = s.Close()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if r.conn, err = redis.Dial("tcp", found[0]+":"+found[1], redis.DialConnectTimeout(time.Second),
			redis.DialReadTimeout(5*time.Second)); err != nil {
			r.conn = nil
			errs = append(errs, err)
			continue
		}
		role, err := redis.Values(r.conn.Do("ROLE"))
		if err == nil && string(role[0].([]byte)) == "master" {
			return nil
		}
		errs = append(errs, fmt.Errorf("%v is not a master: %v, %v", found, role, err))
		_ = r.conn.Close()
		r.conn = nil
	}
	return errors.Join(errs...)
}

func (r redigoSentinel) set(ctx context.Context, key, value string) error {
	if err := r.find(); err != nil {
		return err
	}
	return r.redigo.set(ctx, key, value)
}

func (r redigoSentinel) port(ctx context.Context) (string, error) {
	if err := r.find(); err != nil {
		return "", err
	}
	return r.redigo.port(ctx)
}

func TestSentinel_Redigo(t *testing.T) {
	c := sentinels(t)
	r := redigoSentinel{&redigo{t: t}, c.addrs(sentinelOf)}
	t.Cleanup(func() {
		if r.conn != nil {
			_ = r.conn.Close()
		}
	})
	follow(t, c, r)
}
