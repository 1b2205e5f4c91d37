package recipes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// page: begin

// hierarchyScript locks a path. A lock of /a/b excludes locks of /a/b, of all
// its ancestors and of all its descendants. Every path has two keys: "lock"
// contains the owner's token, and "below" contains the locks of descendants,
// each as "token key". The script checks all of them in one step.
var hierarchyScript = redis.NewScript(`
local token, ttl = ARGV[1], tonumber(ARGV[2])
local leaf = #KEYS / 2
for i = 1, leaf do
	local owner = redis.call("get", KEYS[i])
	if owner and owner ~= token then
		return 0
	end
end
for _, other in ipairs(redis.call("zrange", KEYS[#KEYS], 0, -1)) do
	if other:sub(1, #token + 1) ~= token .. " " then
		return 0
	end
end
redis.call("set", KEYS[leaf], token, "PX", ttl)
for i = leaf + 1, #KEYS - 1 do
	redis.call("zadd", KEYS[i], 1, token .. " " .. KEYS[leaf])
	if redis.call("pttl", KEYS[i]) < ttl then -- keep a longer TTL, which another lock in the set needs
		redis.call("pexpire", KEYS[i], ttl)
	end
end
return 1`)

var hierarchyRelease = redis.NewScript(`
local leaf = #KEYS / 2
if redis.call("get", KEYS[leaf]) == ARGV[1] then
	redis.call("del", KEYS[leaf])
end
for i = leaf + 1, #KEYS - 1 do
	redis.call("zrem", KEYS[i], ARGV[1] .. " " .. KEYS[leaf])
end
return 1`)

// pathKeys returns the "lock" keys of a path and its ancestors, from the top,
// and then their "below" keys.
func pathKeys(prefix, path string) []string {
	var locks, below []string
	parts := strings.Split(path, "/")
	for i := range parts {
		p := strings.Join(parts[:i+1], "/")
		locks = append(locks, prefix+":lock:"+p)
		below = append(below, prefix+":below:"+p)
	}
	return append(locks, below...)
}

func lockPath(ctx context.Context, c *redis.Client, prefix, path, token string, ttl time.Duration) (ok bool, err error) {
	err = persist(ctx, func() error {
		n, err := hierarchyScript.Run(ctx, c, pathKeys(prefix, path), token, ttl.Milliseconds()).Int()
		ok = n == 1
		return err
	})
	return ok, err
}

func unlockPath(ctx context.Context, c *redis.Client, prefix, path, token string) error {
	return persist(ctx, func() error { return hierarchyRelease.Run(ctx, c, pathKeys(prefix, path), token).Err() })
}

// page: end

// hierarchyFamily checks that an owner of children excludes others from the
// parent until it has released all its locks. A lock that has expired still
// excludes them, because its entry in the set of the parent remains.
func hierarchyFamily(ctx context.Context, c *redis.Client, prefix string) error {
	for _, step := range []struct {
		path, token string
		ttl         time.Duration // 0 releases the lock
		want        bool
	}{
		{"p/q", "one", time.Minute, true},
		{"p/r", "one", time.Millisecond, true},
		{"p/s", "one", time.Minute, true},
		{"p", "two", time.Minute, false},
		{"p/q", "one", 0, false},
		{"p", "two", time.Minute, false}, // p/s is still locked
		{"p/t", "two", time.Minute, true},
		{"p", "one", time.Minute, false},
		{"p/s", "one", 0, false},
		{"p", "two", time.Minute, false}, // p/r has expired, but its entry in the set of p still exists
		{"p/r", "one", 0, false},
		{"p", "two", time.Minute, true},
		{"p/t", "one", time.Minute, false},
	} {
		if step.ttl == 0 {
			if err := unlockPath(ctx, c, prefix, step.path, step.token); err != nil {
				return err
			}
			continue
		}
		got, err := lockPath(ctx, c, prefix, step.path, step.token, step.ttl)
		if err != nil {
			return err
		}
		if got != step.want {
			return fmt.Errorf("owner %s locks %s: got %v, want %v", step.token, step.path, got, step.want)
		}
	}
	return nil
}

func hierarchyDemo(ctx context.Context, e *Env) error {
	const prefix, workers, rounds = "recipe:hierarchy", 4, 8
	if err := hierarchyFamily(ctx, e.Client(0), prefix+":family"); err != nil {
		return err
	}
	paths := []string{"a", "a/b", "a/b/c", "a/d", "e", "a/b/f"}
	regions := make(map[string]*region)
	for _, p := range paths {
		for _, q := range paths {
			if p <= q {
				regions[p+" "+q] = &region{}
			}
		}
	}
	related := func(p, q string) bool {
		return p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/")
	}
	return each(ctx, workers, func(ctx context.Context, i int) error {
		c, who := e.Client(i), fmt.Sprint("worker-", i)
		for n := range rounds {
			p := paths[(i*rounds+n*5)%len(paths)]
			mine := token()
			for {
				ok, err := lockPath(ctx, c, prefix, p, mine, time.Minute)
				if err != nil {
					return err
				}
				if ok {
					break
				}
				if err := wait(ctx, 5*time.Millisecond); err != nil {
					return err
				}
			}
			var inside []*region
			for _, q := range paths {
				if related(p, q) {
					r := regions[min(p, q)+" "+max(p, q)]
					if err := r.enter(who+" on "+p, false); err != nil {
						return err
					}
					inside = append(inside, r)
				}
			}
			if i == 0 && n == rounds/2 {
				e.half()
			}
			for _, r := range inside {
				r.leave(who + " on " + p)
			}
			if err := unlockPath(ctx, c, prefix, p, mine); err != nil {
				return err
			}
		}
		return nil
	})
}
