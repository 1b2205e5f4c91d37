package recipes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// A list contains the tokens of the clients that want the lock. The client
// whose token is at the head has the lock. A client that leaves removes its
// token, and the next client is then at the head.

// queueUp adds a token to the end of the list unless the list contains it
// already, so the script may be repeated. It also sets a key with a TTL, the
// alive key of the token, which shows that the client is alive.
var queueUp = redis.NewScript(`
redis.call("set", KEYS[2] .. ARGV[1], 1, "PX", ARGV[2])
if not redis.call("lpos", KEYS[1], ARGV[1]) then
	redis.call("rpush", KEYS[1], ARGV[1])
end
return redis.call("lpos", KEYS[1], ARGV[1])`)

// myTurn returns the position of a token in the list, and renews the token's
// alive key. From the head of the list, it removes tokens whose alive keys have
// expired, so that dead clients do not delay others.
var myTurn = redis.NewScript(`
redis.call("set", KEYS[2] .. ARGV[1], 1, "PX", ARGV[2])
local head = redis.call("lindex", KEYS[1], 0)
while head and redis.call("exists", KEYS[2] .. head) == 0 do
	redis.call("lpop", KEYS[1])
	head = redis.call("lindex", KEYS[1], 0)
end
return redis.call("lpos", KEYS[1], ARGV[1])`)

func joinQueue(ctx context.Context, c *redis.Client, key, me string, alive time.Duration) (position int64, err error) {
	err = persist(ctx, func() error {
		position, err = queueUp.Run(ctx, c, []string{key, key + ":alive:"}, me, alive.Milliseconds()).Int64()
		return err
	})
	return position, err
}

// awaitTurn waits until the token me is at the head of the list. If the alive
// key of me expired and another client has therefore removed me from the list,
// awaitTurn returns redis.Nil.
func awaitTurn(ctx context.Context, c *redis.Client, key, me string, alive time.Duration) error {
	for {
		var position int64
		err := persist(ctx, func() (err error) {
			position, err = myTurn.Run(ctx, c, []string{key, key + ":alive:"}, me, alive.Milliseconds()).Int64()
			return err
		})
		if err != nil || position == 0 {
			return err
		}
		if err := wait(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

func leaveLine(ctx context.Context, c *redis.Client, key, me string) error {
	return persist(ctx, func() error { return c.LRem(ctx, key, 1, me).Err() })
}

// page: end

func nextDemo(ctx context.Context, e *Env) error {
	const key, workers, alive = "recipe:next", 6, 20 * time.Second
	var r region
	var mu sync.Mutex
	var served, want []string
	// The clients join one after another, through different nodes, and then
	// wait together.
	for i := range workers {
		me := fmt.Sprint("worker-", i)
		position, err := joinQueue(ctx, e.Client(i), key, me, alive)
		if err != nil {
			return err
		}
		if position != int64(i) {
			return fmt.Errorf("%s has position %d, want %d", me, position, i)
		}
		want = append(want, me)
	}
	// One client in the list is dead: its alive key expires after 1 ms.
	if _, err := joinQueue(ctx, e.Client(0), key, "dead", time.Millisecond); err != nil {
		return err
	}
	late := "worker-late"
	if _, err := joinQueue(ctx, e.Client(1), key, late, alive); err != nil {
		return err
	}
	want = append(want, late)
	err := each(ctx, len(want), func(ctx context.Context, i int) error {
		c, me := e.Client(i), want[i]
		if err := awaitTurn(ctx, c, key, me, alive); err != nil {
			return err
		}
		if err := r.enter(me, false); err != nil {
			return err
		}
		mu.Lock()
		served = append(served, me)
		mu.Unlock()
		if i == workers/2 {
			e.half()
		}
		r.leave(me)
		return leaveLine(ctx, c, key, me)
	})
	if err == nil && !slices.Equal(served, want) {
		err = fmt.Errorf("served %v, want %v", served, want)
	}
	return err
}
