package recipes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// fenced takes the lock and returns its fencing token in one step. The token is
// higher than that of every earlier grant. The result is 0 if another client
// has the lock.
var fenced = redis.NewScript(`
if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
	return redis.call("lock", "token", KEYS[1])
end
return 0`)

// store is the protected resource. It accepts a write only with a token that is
// at least as high as the highest that it has seen. The store must check this,
// because only the store can know that a writer comes too late.
type store struct {
	mu      sync.Mutex
	highest int64
	refused int
	history []string
}

func (s *store) write(token int64, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.highest {
		s.refused++
		return fmt.Errorf("write with token %d after token %d: %w", token, s.highest, errLost)
	}
	s.highest = token
	s.history = append(s.history, fmt.Sprint(token, " ", text))
	return nil
}

// page: end

// fencingDemo delays the write of an owner until its lock has expired and
// another client has taken it. A long pause of the owner's process would have
// the same effect. The store must refuse the late write.
func fencingDemo(ctx context.Context, e *Env) error {
	const key, ttl = "recipe:fencing", 300 * time.Millisecond
	var s store
	take := func(c *redis.Client) (fence int64, err error) {
		for fence == 0 {
			err := persist(ctx, func() error {
				fence, err = fenced.Run(ctx, c, []string{key}, token(), ttl.Milliseconds()).Int64()
				return err
			})
			if err != nil {
				return 0, err
			}
			if fence == 0 {
				if err := wait(ctx, 10*time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
		return fence, nil
	}
	for round := range 4 {
		slow, err := take(e.Client(round))
		if err != nil {
			return err
		}
		if round == 2 {
			e.half()
		}
		quick, err := take(e.Client(round + 1)) // waits until the lock of the first owner has expired
		if err != nil {
			return err
		}
		if quick <= slow {
			return fmt.Errorf("token %d after %d", quick, slow)
		}
		if err := s.write(quick, "in time"); err != nil {
			return err
		}
		if err := s.write(slow, "too late"); err == nil {
			return fmt.Errorf("the store accepted a write with token %d after one with %d", slow, quick)
		}
	}
	return nil
}
