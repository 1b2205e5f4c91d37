package replay

import (
	"strings"

	"github.com/holdfast-kv/holdfast/fsm"
)

// A lock that was taken with SHARED or LIMIT is a value of the type lock, which
// Redis does not have. While the state machine has such a lock, the redis-server
// has a sorted set under the same key. So the key exists on both servers, and
// commands on strings fail on both. The replay does not compare the owners and
// their tokens. An exclusive lock is a string on both servers.

// lockKind is the type of a shared or counted lock.
const lockKind = "lock"

const (
	// scriptTake takes the lock KEYS[1] for the owner ARGV[1].
	scriptTake = `local v = redis.call('GET', KEYS[1])
if v and v ~= ARGV[1] then return redis.error_reply('ERR the lock has the owner ' .. v) end
return redis.call('SET', KEYS[1], ARGV[1])`
	// scriptEnd deletes the lock KEYS[1]. ARGV[1], unless it is empty, must be the
	// owner.
	scriptEnd = `if ARGV[1] ~= '' and redis.call('TYPE', KEYS[1]).ok == 'string' and
  redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ERR another owner has the lock') end
return redis.call('DEL', KEYS[1])`
)

// lockPlaceholder returns the command that stores the sorted set in place of a
// shared or counted lock.
func lockPlaceholder(key string) []string { return []string{"ZADD", key, "0", lockKind} }

// lock translates a command on locks that was executed. LOCK ACQUIRE succeeds if
// the lock is free or the owner has it already, and LOCK RELEASE if the owner has
// it.
func (t *translator) lock(args []string, reply fsm.Reply) []redisCommand {
	if len(args) < 3 || reply.Kind() != fsm.KindInt {
		return nil
	}
	key := args[2]
	switch sub := strings.ToLower(args[1]); {
	case (sub == "acquire" || sub == "renew") && t.kind(t.db, key) == lockKind:
		return []redisCommand{{args: lockPlaceholder(key)}}
	case sub == "acquire" || sub == "renew":
		return []redisCommand{{args: []string{"EVAL", scriptTake, "1", key, args[3]}}}
	case (sub == "release" || sub == "break") && reply.Int64() == 1:
		if t.kind(t.db, key) == lockKind {
			return nil // the lock has other owners
		}
		owner := ""
		if sub == "release" {
			owner = args[3]
		}
		return []redisCommand{{args: []string{"EVAL", scriptEnd, "1", key, owner}, reply: []byte(":1\r\n")}}
	}
	return nil
}

// lockEnded translates the end of a grant that ended without a command, such as
// an expiry. Other owners may still hold the lock.
func (t *translator) lockEnded(db int, key string) []redisCommand {
	if t.kind(db, key) == lockKind {
		return nil
	}
	return []redisCommand{{args: []string{"DEL", key}, reply: []byte(":1\r\n")}}
}
