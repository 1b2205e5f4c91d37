package recipes

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// fenced takes the lock and draws a number in one step. The number is higher
// than that of every earlier grant. The result is 0 if the lock is taken.
var fenced = redis.NewScript(`
if redis.call("set", KEYS[1], ARGV[1], "NX", "PX", ARGV[2]) then
	return redis.call("incr", KEYS[2])
end
return 0`)

// store is what the lock protects. It accepts a write only with a number that
// is at least as high as the highest that it has seen. The store must check
// this, because only the store can know that a writer comes too late.
type store struct {
	mu      sync.Mutex
	highest int64
	refused int
	history []string
}

func (s *store) write(number int64, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number < s.highest {
		s.refused++
		return fmt.Errorf("number %d after %d: %w", number, s.highest, errLost)
	}
	s.highest = number
	s.history = append(s.history, fmt.Sprint(number, " ", text))
	return nil
}

// page: end

// fencingDemo lets an owner sleep until its lock has expired, as a long pause
// of its process would. The store must refuse the late write of this owner.
func fencingDemo(ctx context.Context, e *Env) error {
	const key, ttl = "recipe:fencing", 300 * time.Millisecond
	var s store
	draw := func(c *redis.Client) (number int64, err error) {
		for number == 0 {
			err := persist(ctx, func() error {
				number, err = fenced.Run(ctx, c, []string{key, key + ":numbers"}, token(), ttl.Milliseconds()).Int64()
				return err
			})
			if err != nil {
				return 0, err
			}
			if number == 0 {
				if err := wait(ctx, 10*time.Millisecond); err != nil {
					return 0, err
				}
			}
		}
		return number, nil
	}
	for round := range 4 {
		slow, err := draw(e.Client(round))
		if err != nil {
			return err
		}
		if round == 2 {
			e.half()
		}
		quick, err := draw(e.Client(round + 1)) // once the lock of the first owner has expired
		if err != nil {
			return err
		}
		if quick <= slow {
			return fmt.Errorf("grant %d after %d", quick, slow)
		}
		if err := s.write(quick, "in time"); err != nil {
			return err
		}
		if err := s.write(slow, "too late"); err == nil {
			return fmt.Errorf("the store accepted a write of grant %d after one of %d", slow, quick)
		}
	}
	return nil
}
