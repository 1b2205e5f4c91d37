package matrix

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Redisson keeps a lock in a hash. The field names the holder, and its value
// counts how often the holder has entered the lock. A lock script returns nil
// if the lock is granted, and otherwise the time to wait.
const (
	redissonTake = `
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`
	redissonRenew = `
local renewed = {}
for i = 1, #KEYS do
  if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then
    redis.call('pexpire', KEYS[i], ARGV[1])
    table.insert(renewed, 1)
  else
    table.insert(renewed, 0)
  end
end
return renewed`
	// The key KEYS[3] stores the reply to an unlock. If the unlock is repeated,
	// the script returns this reply. ARGV[4] is the command that publishes the
	// unlock message.
	redissonFree = `
local before = redis.call('get', KEYS[3])
if before ~= false then return tonumber(before) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1`
)

func redissonLock(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		waiter, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer waiter.close()
		lock, channel := []string{"lock"}, "redisson_lock__channel:{lock}"
		free := func(n int, pattern, who string) error {
			return w.call(true, pattern, redissonFree,
				[]string{"lock", channel, "redisson_unlock_latch:{lock}:" + strconv.Itoa(n)}, 0, 30000, who, "publish",
				13500)
		}
		err = errors.Join(w.call(true, "nil", redissonTake, lock, 30000, "u:1"),
			w.call(true, ":*", redissonTake, lock, 30000, "u:2"), w.call(true, "nil", redissonTake, lock, 30000, "u:1"),
			waiter.want("[$subscribe $"+channel+" :1]", "SUBSCRIBE", channel))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(
			w.call(true, "[:1 :0]", redissonRenew, []string{"lock", "gone"}, 30000, "u:1", "u:1"),
			w.call(true, ":*", redissonTake, lock, 30000, "u:2"), w.want(":1", "HEXISTS", "lock", "u:1"),
			w.want("$2", "HGET", "lock", "u:1"),
			free(1, "nil", "u:2"), free(2, ":0", "u:1"), free(2, ":0", "u:1"), free(3, ":1", "u:1"),
			free(3, ":1", "u:1"),
			w.want(":1", "DEL", "redisson_unlock_latch:{lock}:3"), waiter.expect("[$message $"+channel+" $0]"),
			w.call(true, "nil", redissonTake, lock, 30000, "u:2"), redissonFenced(w))
	})
}

// redissonFenced replays RFencedLock: the grant includes a number that grows.
func redissonFenced(w *wire) error {
	const take = `
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return {-1, redis.call('incr', KEYS[2])}
end
return {redis.call('pttl', KEYS[1]), -1}`
	keys := []string{"fenced", "redisson_lock_token:{fenced}"}
	return errors.Join(w.call(true, "[:-1 :1]", take, keys, 30000, "u:1"),
		w.call(true, "[:* :-1]", take, keys, 30000, "u:2"), w.want(":1", "DEL", "fenced"),
		w.call(true, "[:-1 :2]", take, keys, 30000, "u:2"))
}

// redissonWait replays a Redisson client that sends WAIT after every script,
// for as many replicas as INFO reports. Redisson gives up the lock if fewer
// replicas acknowledge.
func redissonWait(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		check := func(key string) error {
			info, err := w.ask("INFO", "REPLICATION")
			if err != nil {
				return err
			}
			_, rest, ok := strings.Cut(info, "connected_slaves:")
			if !ok {
				return fmt.Errorf("INFO replication has no connected_slaves: %q", info)
			}
			n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\r\n", 2)[0]))
			if err != nil {
				return err
			}
			if err := w.call(true, "nil", redissonTake, []string{key}, 30000, "u:1"); err != nil {
				return err
			}
			return w.want(":"+strconv.Itoa(n), "WAIT", n, 1000)
		}
		if err := check("one"); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(check("two"), w.want("$*role:master*", "INFO", "ALL"))
	})
}

func redissonReadLock(ctx context.Context, a *arena) error {
	// The script computes the names of the holders' timeout keys, so KEYS does
	// not contain them. The renewal has a loop that counts down from the result
	// of hget, which is a string.
	const take = `
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
  local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  local key = KEYS[2] .. ':' .. n
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  local left = redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], math.max(left, ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])`
	const renew = `
local counter = redis.call('hget', KEYS[1], ARGV[2])
if counter == false then return 0 end
redis.call('pexpire', KEYS[1], ARGV[1])
if redis.call('hlen', KEYS[1]) > 1 then
  for _, key in ipairs(redis.call('hkeys', KEYS[1])) do
    counter = tonumber(redis.call('hget', KEYS[1], key))
    if type(counter) == 'number' then
      for i = redis.call('hget', KEYS[1], key), 1, -1 do
        redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1])
      end
    end
  end
end
return 1`
	const write = `
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`
	return replay(ctx, a, func(w *wire) error {
		keys := func(who string) []string { return []string{"rw", "{rw}:" + who + ":rwlock_timeout"} }
		err := errors.Join(w.call(true, "nil", take, keys("u1"), 30000, "u1", "u1:write"),
			w.call(true, "nil", take, keys("u1"), 30000, "u1", "u1:write"),
			w.call(true, "nil", take, keys("u2"), 30000, "u2", "u2:write"),
			w.call(true, ":*", write, keys("u3")[:1], 30000, "u3"))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, ":*", write, keys("u3")[:1], 30000, "u3"),
			w.call(true, ":1", renew, keys("u1"), 600000, "u1"), w.want("$2", "HGET", "rw", "u1"),
			w.all(command("PTTL {rw}:u1:rwlock_timeout:2", ":??????"), command("PTTL rw", ":??????"),
				command("DEL rw {rw}:u1:rwlock_timeout:1", ":2")),
			w.call(true, "nil", write, keys("u3")[:1], 30000, "u3"))
	})
}

func redissonOthers(ctx context.Context, a *arena) error {
	const fair = `
while true do
  local first = redis.call('lindex', KEYS[2], 0)
  if first == false then break end
  if tonumber(redis.call('zscore', KEYS[3], first)) > tonumber(ARGV[3]) then break end
  redis.call('zrem', KEYS[3], first)
  redis.call('lpop', KEYS[2])
end
if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, key in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do redis.call('zincrby', KEYS[3], -tonumber(ARGV[4]), key) end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('zadd', KEYS[3], tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then redis.call('rpush', KEYS[2], ARGV[2]) end
return redis.call('pttl', KEYS[1])`
	const acquire = `
local n = redis.call('get', KEYS[1])
if n ~= false and tonumber(n) >= tonumber(ARGV[1]) then
  redis.call('decrby', KEYS[1], ARGV[1])
  return 1
end
return 0`
	const rate = `
redis.call('zadd', KEYS[1], ARGV[1], struct.pack('Bc0I', string.len(ARGV[2]), ARGV[2], 1))
local random, permits = struct.unpack('Bc0I', redis.call('zrange', KEYS[1], 0, 0)[1])
return {random, permits}`
	return replay(ctx, a, func(w *wire) error {
		keys := []string{"fair", "redisson_lock_queue:{fair}", "redisson_lock_timeout:{fair}"}
		err := errors.Join(w.call(true, "nil", fair, keys, 60000, "u1", 1000, 5000),
			w.call(true, ":*", fair, keys, 60000, "u2", 1000, 5000),
			w.call(true, ":*", fair, keys, 60000, "u3", 1001, 5000), w.want("+OK", "SET", "sem", 1),
			w.call(true, ":1", acquire, []string{"sem"}, 1))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.want(":1", "DEL", "fair"), w.call(true, ":*", fair, keys, 60000, "u3", 1002, 5000),
			w.call(true, "nil", fair, keys, 60000, "u2", 1002, 5000), w.want("[$u3]", "LRANGE", keys[1], 0, -1),
			w.call(true, ":0", acquire, []string{"sem"}, 1), w.want(":1", "INCRBY", "sem", 1),
			w.call(true, ":1", acquire, []string{"sem"}, 1),
			w.call(true, "[$abcdefgh :1]", rate, []string{"rate"}, 1, "abcdefgh"))
	})
}
