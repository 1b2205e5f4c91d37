package matrix

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// replayEntries are the libraries that cannot be installed on the test machine.
var replayEntries = []entry{
	{lib: "Redisson", replay: "2026-08", mode: "single server, RLock",
		what: "lock, re-entry, watchdog, pub/sub wake-up, unlock with latch", run: redissonLock},
	{lib: "Redisson", replay: "2026-08", mode: "WAIT after every script",
		what: "connected_slaves and WAIT agree, even after the kill", run: redissonWait},
	{lib: "Redisson", replay: "2026-08", mode: "RReadWriteLock",
		what: "read locks with undeclared keys, renewal with a string loop bound", run: redissonReadLock},
	{lib: "Redisson", replay: "2026-08", mode: "RFairLock, RSemaphore, RRateLimiter",
		what: "queue, counter, struct.pack", run: redissonOthers},
	{lib: "node-redlock", replay: "4.2.0", mode: "over ioredis 6 (RESP3)",
		what: "multi-key lock, extend, unlock; EVALSHA, then EVAL", run: nodeRedlock},
	{lib: "node-redis", replay: "6.2.1", mode: "RESP3 handshake",
		what: "HELLO 3, SETINFO, MAINT_NOTIFICATIONS; SET NX; EVALSHA, then EVAL", run: nodeRedis6},
	{lib: "redis-py", replay: "8.0.0", mode: "RESP3 handshake",
		what: "HELLO 3 with proto 3; Lock; SCRIPT LOAD after NOSCRIPT", run: redisPy8},
	{lib: "Lettuce, Jedis", replay: "7.8, 8.0", mode: "RESP3 handshake", what: "HELLO fields, SETINFO, SET NX PX",
		run: lettuceJedis},
	{lib: "StackExchange.Redis", replay: "2.x, 3.1", mode: "standalone",
		what: "handshake with SENTINEL MASTERS; LockTake, LockExtend, LockRelease, LockQuery", run: stackExchange},
	{lib: "RedLock.net", replay: "2.3.2", mode: "standalone", what: "SCRIPT LOAD, acquire, extend, unlock",
		run: redLockNet},
	{lib: "DistributedLock (.NET)", replay: "2.8.1", mode: "semaphore, reader-writer",
		what: "TIME in a writing script, ZADD XX CH, sets", run: distributedLock},
	{lib: "Spring Integration RedisLockRegistry", replay: "7.2", mode: "CAS commands and scripts",
		what: "obtain, renew, SET IFEQ, DELEX IFEQ, unlock with PUBLISH to a pattern", run: springRegistry},
	{lib: "ShedLock", replay: "2026", mode: "standalone", what: "SET NX PX, SET XX PX, DEL", run: shedLock},
	{lib: "redlock-rb", replay: "2026", mode: "standalone (RESP3)",
		what: "three SCRIPT LOADs after NOSCRIPT, lock, extend, " +
			"a script whose reply is an array that begins with null", run: redlockRb},
	{lib: "sidekiq-unique-jobs", replay: "9.0.0.alpha1", mode: "standalone",
		what: "hash and sorted set lock, cjson, redis.log", run: sidekiqUnique},
	{lib: "redis-semaphore, redis-objects (Ruby)", replay: "2026", mode: "standalone",
		what: "GETSET lock, BLPOP tokens, SETNX", run: rubySemaphore},
	{lib: "python-redis-lock", replay: "4.0.1", mode: "standalone", what: "BLPOP woken by LPUSH inside a script",
		run: pythonRedisLock},
	{lib: "aioredlock, pottery, redlock-py", replay: "2022, 2026, 2016", mode: "standalone",
		what: "error_reply, EVAL each time, extension", run: pythonOthers},
	{lib: "celery-once, redbeat, django-redis", replay: "2026", mode: "standalone",
		what: "locks, MULTI over hashes and sorted sets, add", run: pythonSchedulers},
	{lib: "rslock", replay: "2026, redis-rs 1.6", mode: "standalone", what: "SET NX PX, SCRIPT LOAD, extend, unlock",
		run: rslock},
	{lib: "Hangfire.Redis, Sidekiq, asynq", replay: "2026", mode: "standalone",
		what: "fetch with a lock, lists, sorted sets, MULTI", run: jobQueues},
	{lib: "BullMQ", replay: "2026", mode: "standalone",
		what: "job lock in a script with cmsgpack and cjson, BZPOPMIN; events by XADD in scripts, XREAD BLOCK",
		run:  bullMQ},
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// replay runs f with one connection to a follower.
func replay(ctx context.Context, a *arena, f func(w *wire) error) error {
	w, err := dialWire(ctx, a.entry)
	if err != nil {
		return err
	}
	return errors.Join(f(w), w.close())
}

// call sends EVALSHA. At the first call of a script, it also replays how the
// library reacts to the error NOSCRIPT.
func (w *wire) call(load bool, pattern, script string, keys []string, args ...any) error {
	tail := []any{len(keys)}
	for _, k := range keys {
		tail = append(tail, k)
	}
	tail = append(tail, args...)
	got, err := w.ask(append([]any{"EVALSHA", sha(script)}, tail...)...)
	if err != nil {
		return err
	}
	if strings.HasPrefix(got, "-NOSCRIPT ") {
		if got != "-NOSCRIPT No matching script. Please use EVAL." {
			return fmt.Errorf("text of NOSCRIPT is %q", got)
		}
		if load {
			if err := w.want("$"+sha(script), "SCRIPT", "LOAD", script); err != nil {
				return err
			}
			got, err = w.ask(append([]any{"EVALSHA", sha(script)}, tail...)...)
		} else {
			got, err = w.ask(append([]any{"EVAL", script}, tail...)...)
		}
		if err != nil {
			return err
		}
	}
	return w.like(pattern, got, append([]any{"script on", keys}, args...))
}

const (
	unlockScript = `if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('del', KEYS[1])
end
return 0`
	extendScript = `if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
end
return 0`
)

func nodeRedlock(ctx context.Context, a *arena) error {
	const lock = `
for _, key in ipairs(KEYS) do
  if redis.call("exists", key) == 1 then return 0 end
end
for _, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
return #KEYS`
	const unlock = `
local n = 0
for _, key in ipairs(KEYS) do
  if redis.call("get", key) == ARGV[1] then
    redis.pcall("del", key)
    n = n + 1
  end
end
return n`
	const extend = `
for _, key in ipairs(KEYS) do
  if redis.call("get", key) ~= ARGV[1] then return 0 end
end
for _, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
return #KEYS`
	keys := []string{"resource:a", "resource:b"}
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("hello 3", "%[*"), command("client SETINFO LIB-VER 6.0.0", "*"),
			command("client SETINFO LIB-NAME ioredis", "*"), command("INFO", "$*loading:0*")); err != nil {
			return err
		}
		if err := w.call(false, ":2", lock, keys, "t1", 60000); err != nil {
			return err
		}
		if err := w.call(false, ":0", lock, keys[:1], "t2", 60000); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(false, ":0", lock, keys[1:], "t2", 60000),
			w.call(false, ":2", extend, keys, "t1", 90000), w.call(false, ":2", unlock, keys, "t1"),
			w.call(false, ":0", unlock, keys, "t1"))
	})
}

func nodeRedis6(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("HELLO 3", "%[$server $redis $version * $proto :3 *"),
			command("CLIENT SETINFO LIB-VER 6.3.1", "*"), command("CLIENT SETINFO LIB-NAME node-redis", "*"),
			command("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type external-ip", "-ERR *"),
			command("SET lock t1 NX PX 60000", "+OK"), command("SET lock t2 NX PX 60000", "nil")); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.want("nil", "SET", "lock", "t2", "NX", "PX", 60000),
			w.call(false, ":0", unlockScript, []string{"lock"}, "t2"),
			w.call(false, ":1", unlockScript, []string{"lock"}, "t1"))
	})
}

func redisPy8(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("HELLO 3", "%[*$proto :3*"),
			command("CLIENT MAINT_NOTIFICATIONS ON moving-endpoint-type internal-ip", "-*"),
			command("CLIENT SETINFO LIB-NAME redis-py", "*"), command("CLIENT SETINFO LIB-VER 8.0.0", "*"),
			command("SET lock t1 NX PX 30000", "+OK"), command("GET lock", "$t1")); err != nil {
			return err
		}
		a.killLeader()
		const extend = `
local token = redis.call('get', KEYS[1])
if not token or token ~= ARGV[1] then return 0 end
local left = redis.call('pttl', KEYS[1])
if not left then left = 0 end
local more = ARGV[2]
if ARGV[3] == "0" then more = ARGV[2] + left end
redis.call('pexpire', KEYS[1], more)
return 1`
		if err := w.call(true, ":1", extend, []string{"lock"}, "t1", 10000, "0"); err != nil {
			return err
		}
		return errors.Join(w.call(true, ":0", extend, []string{"lock"}, "t2", 10000, "0"),
			w.call(true, ":1", unlockScript, []string{"lock"}, "t1"),
			w.want("[:0 :1]", "SCRIPT", "EXISTS", sha("never seen"), sha(unlockScript)))
	})
}

func lettuceJedis(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("HELLO 3",
			"%[$server $redis $version $* $proto :3 $id :* $mode $standalone $role $master $modules []]"),
			command("CLIENT SETINFO lib-name Lettuce", "*"), command("CLIENT SETINFO lib-ver 7.8.0", "*"),
			command("HELLO 4", "-NOPROTO unsupported protocol version"), command("PING", "+PONG"),
			command("SET lock t1 NX PX 30000", "+OK")); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.want("nil", "SET", "lock", "t2", "NX", "PX", 30000),
			w.call(false, ":1", unlockScript, []string{"lock"}, "t1"))
	})
}

func stackExchange(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		err := w.all(
			command("CLIENT SETNAME host", "+OK"), command("CLIENT SETINFO lib-name SE.Redis", "*"),
			command("CLIENT SETINFO lib-ver 2.8.0", "*"), command("CLIENT ID", ":*"),
			command("CONFIG GET timeout", "[$timeout $*]"), command("CONFIG GET replica-read-only", "[*]"),
			command("CONFIG GET databases", "[$databases $16]"),
			command("SENTINEL MASTERS", "-ERR unknown command 'SENTINEL', with args beginning with: 'MASTERS' "),
			command("INFO replication", "$*role:master*"), command("INFO server", "$*redis_mode:standalone*"),
			command("CLUSTER NODES", "-ERR This instance has cluster support disabled"),
			command("GET __Booksleeve_TieBreak", "nil"), command("ECHO abc", "$abc"),
			// LockTake
			command("SET lock t1 EX 60 NX", "+OK"), command("SET lock t2 EX 60 NX", "nil"), command("GET lock", "$t1"),
		)
		if err != nil {
			return err
		}
		a.killLeader()
		return w.all(
			// LockExtend by the owner, and then by another client: a
			// WATCH, a comparison and a transaction
			command("WATCH lock", "+OK"), command("GET lock", "$t1"), command("MULTI", "+OK"),
			command("EXPIRE lock 90", "+QUEUED"), command("EXEC", "[:1]"),
			command("WATCH lock", "+OK"), command("GET lock", "$t1"), command("UNWATCH", "+OK"),
			// LockExtend, and LockRelease by another client, with the
			// conditional commands of newer versions of Redis
			command("SET lock t1 EX 60 IFEQ t1", "+OK"), command("SET lock t2 EX 60 IFEQ t2", "nil"),
			command("DELEX lock IFEQ t2", ":0"),
			// LockRelease
			command("WATCH lock", "+OK"), command("GET lock", "$t1"), command("MULTI", "+OK"),
			command("DEL lock", "+QUEUED"),
			command("EXEC", "[:1]"), command("EXISTS lock", ":0"),
		)
	})
}

func redLockNet(ctx context.Context, a *arena) error {
	const extend = `
local now = redis.call('get', KEYS[1])
if now == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2]) == 1 and 1 or 0
elseif now == false then
  redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return -1`
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(on("$"+sha(unlockScript), "SCRIPT", "LOAD", unlockScript),
			on("$"+sha(extend), "SCRIPT", "LOAD", extend), command("SET redlock:r t1 PX 30000 NX", "+OK")); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, ":1", extend, []string{"redlock:r"}, "t1", 30000),
			w.call(true, ":-1", extend, []string{"redlock:r"}, "t2", 30000),
			w.call(true, ":1", unlockScript, []string{"redlock:r"}, "t1"),
			w.call(true, ":1", extend, []string{"redlock:r"}, "t3", 30000))
	})
}

func distributedLock(ctx context.Context, a *arena) error {
	const enter = `
redis.replicate_commands()
local t = redis.call('time')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('zremrangebyscore', KEYS[1], '-inf', now)
if redis.call('zcard', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('zadd', KEYS[1], now + tonumber(ARGV[2]), ARGV[3])
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[1], ARGV[2]) end
  return 1
end
return 0`
	const extend = `
local t = redis.call('time')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
return redis.call('zadd', KEYS[1], 'XX', 'CH', now + tonumber(ARGV[1]), ARGV[2])`
	const read = `
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('sadd', KEYS[2], ARGV[1])
if redis.call('pttl', KEYS[2]) < tonumber(ARGV[2]) then redis.call('pexpire', KEYS[2], ARGV[2]) end
return redis.call('sismember', KEYS[2], ARGV[1])`
	const write = `
if redis.call('scard', KEYS[2]) > 0 then return 0 end
return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0`
	return replay(ctx, a, func(w *wire) error {
		sem, rw := []string{"sem"}, []string{"rw:w", "rw:r"}
		err := errors.Join(w.call(true, ":1", enter, sem, 2, 60000, "a"), w.call(true, ":1", enter, sem, 2, 60000, "b"),
			w.call(true, ":0", enter, sem, 2, 60000, "c"), w.call(true, ":1", read, rw, "a", 60000))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, ":0", enter, sem, 2, 60000, "c"), w.call(true, ":1", extend, sem, 90000, "a"),
			w.call(true, ":0", extend, sem, 90000, "c"), w.want(":1", "ZREM", "sem", "a"),
			w.call(true, ":1", enter, sem, 2, 60000, "c"),
			w.call(true, ":0", write, rw, "b", 60000), w.want(":1", "SREM", "rw:r", "a"),
			w.call(true, ":1", write, rw, "b", 60000), w.call(true, ":0", read, rw, "a", 60000))
	})
}

func springRegistry(ctx context.Context, a *arena) error {
	const obtain = `
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return true
elseif not owner then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return true
end
return false`
	const unlock = `
if redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('UNLINK', KEYS[1]) == 1 then
  redis.call('PUBLISH', ARGV[2], KEYS[1])
  return true
end
return false`
	return replay(ctx, a, func(w *wire) error {
		sub, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer sub.close()
		key := []string{"registry:job"}
		err = errors.Join(sub.want("[$psubscribe $registry-channel:* :1]", "PSUBSCRIBE", "registry-channel:*"),
			w.call(false, ":1", obtain, key, "c1", 60000), w.call(false, "nil", obtain, key, "c2", 60000),
			w.call(false, ":1", obtain, key, "c1", 60000))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(
			w.call(false, "nil", obtain, key, "c2", 60000),
			w.want("+OK", "SET", "registry:job", "c1", "PX", 60000, "IFEQ", "c1"),
			w.want("nil", "SET", "registry:job", "c2", "PX", 60000, "IFEQ", "c2"),
			w.call(false, "nil", unlock, key, "c2", "registry-channel:job"),
			w.call(false, ":1", unlock, key, "c1", "registry-channel:job"),
			sub.expect("[$pmessage $registry-channel:* $registry-channel:job $registry:job]"),
			w.call(false, ":1", obtain, key, "c2", 60000), w.want(":0", "DELEX", "registry:job", "IFEQ", "c1"),
			w.want(":1", "DELEX", "registry:job", "IFEQ", "c2"))
	})
}

func shedLock(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("SET job-lock:default:report ADDED:now@host NX PX 60000", "+OK"),
			command("SET job-lock:default:report ADDED:now@other NX PX 60000", "nil")); err != nil {
			return err
		}
		a.killLeader()
		return w.all(command("SET job-lock:default:report ADDED:now@other NX PX 60000", "nil"),
			command("SET job-lock:default:report ADDED:now@host XX PX 90000", "+OK"),
			command("DEL job-lock:default:report", ":1"), command("SET job-lock:default:report x XX PX 10", "nil"))
	})
}

func redlockRb(ctx context.Context, a *arena) error {
	const lock = `
if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or redis.call("get", KEYS[1]) == ARGV[1] then
  return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
end`
	const ttl = `return { redis.call("get", KEYS[1]), redis.call("pttl", KEYS[1]) }`
	return replay(ctx, a, func(w *wire) error {
		key := []string{"resource"}
		err := errors.Join(w.want("%[*", "HELLO", "3"),
			w.want("-NOSCRIPT No matching script. Please use EVAL.", "EVALSHA", sha(lock), 1, "resource", "t1", 60000,
				"yes"),
			w.all(on("$"+sha(unlockScript), "SCRIPT", "LOAD", unlockScript), on("$"+sha(lock), "SCRIPT", "LOAD", lock),
				on("$"+sha(ttl), "SCRIPT", "LOAD", ttl)),
			w.call(true, "[nil :-2]", ttl, key), w.call(true, "+OK", lock, key, "t1", 60000, "yes"),
			w.call(true, "nil", lock, key, "t2", 60000, "yes"))
		if err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, "nil", lock, key, "t2", 60000, "yes"),
			w.call(true, "+OK", lock, key, "t1", 90000, "no"), w.call(true, "[$t1 :*]", ttl, key),
			w.call(true, ":1", unlockScript, key, "t1"), w.call(true, "nil", lock, key, "t1", 60000, "no"))
	})
}

func sidekiqUnique(ctx context.Context, a *arena) error {
	const lock = `
local digest, locked, queued = KEYS[1], KEYS[2], KEYS[3]
local id, ttl, limit, now = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
redis.log(redis.LOG_DEBUG, "lock " .. digest .. " " .. id)
if redis.call("HEXISTS", locked, id) == 1 then return id end
if redis.call("HLEN", locked) >= limit then return nil end
redis.call("HSET", locked, id, now)
redis.call("ZADD", queued, tonumber(now), digest)
redis.call("SET", digest, cjson.encode({ id = id, at = now, tags = { "a", "b" } }))
redis.call("PEXPIRE", locked, ttl)
return id`
	const info = `
local t = cjson.decode(redis.call("GET", KEYS[1]))
return { t.id, t.at, #t.tags, (string.gsub(KEYS[1], "uniq", "u")) }`
	const unlock = `
redis.call("HDEL", KEYS[2], ARGV[1])
if redis.call("HLEN", KEYS[2]) == 0 then
  redis.call("ZREM", KEYS[3], KEYS[1])
  redis.call("UNLINK", KEYS[2])
end
return ARGV[1]`
	return replay(ctx, a, func(w *wire) error {
		keys := []string{"uniq:1", "uniq:1:LOCKED", "uniq:digests"}
		if err := errors.Join(w.call(true, "$jid1", lock, keys, "jid1", 60000, 1, "1729760300.25"),
			w.call(true, "nil", lock, keys, "jid2", 60000, 1, "1729760301")); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, "$jid1", lock, keys, "jid1", 60000, 1, "1"),
			w.call(true, "nil", lock, keys, "jid2", 60000, 1, "1"),
			w.call(true, "[$jid1 $1729760300.25 :2 $u:1]", info, keys),
			w.want("$1729760300.25", "ZSCORE", "uniq:digests", "uniq:1"), w.call(true, "$jid1", unlock, keys, "jid1"),
			w.call(true, "$jid2", lock, keys, "jid2", 60000, 1, "2"), w.want("-NOTBUSY *", "SCRIPT", "KILL"))
	})
}

func rubySemaphore(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		err := w.all(
			command("SETNX SEMAPHORE:s:LOCK 100", ":1"), command("SETNX SEMAPHORE:s:LOCK 100", ":0"),
			command("GET SEMAPHORE:s:LOCK", "$100"), command("GETSET SEMAPHORE:s:LOCK 200", "$100"),
			command("DEL SEMAPHORE:s:LOCK", ":1"),
			command("GETSET SEMAPHORE:s:EXISTS 1", "nil"), command("MULTI", "+OK"),
			command("RPUSH SEMAPHORE:s:AVAILABLE 0 1", "+QUEUED"), command("PERSIST SEMAPHORE:s:EXISTS", "+QUEUED"),
			command("EXEC", "[:2 :0]"),
			command("BLPOP SEMAPHORE:s:AVAILABLE 1", "[$SEMAPHORE:s:AVAILABLE $0]"),
			command("HSET SEMAPHORE:s:GRABBED 0 1729760300", ":1"), command("LPOP SEMAPHORE:s:AVAILABLE", "$1"),
			command("SET obj:lock 1729760300 PX 60000 NX", "+OK"),
		)
		if err != nil {
			return err
		}
		other, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer other.close()
		if err := w.send("BLPOP", "SEMAPHORE:s:AVAILABLE", "0"); err != nil { // waits while the leader is killed
			return err
		}
		a.killLeader()
		return errors.Join(
			other.all(command("MULTI", "+OK"), command("HDEL SEMAPHORE:s:GRABBED 0", "+QUEUED"),
				command("LPUSH SEMAPHORE:s:AVAILABLE 0", "+QUEUED"), command("EXEC", "[:1 :1]")),
			w.expect("[$SEMAPHORE:s:AVAILABLE $0]"),
			w.all(command("SET obj:lock 1 PX 60000 NX", "nil"), command("TIME", "[$* $*]"),
				command("HGETALL SEMAPHORE:s:GRABBED", "[]"), command("DEL obj:lock", ":1")))
	})
}

func pythonRedisLock(ctx context.Context, a *arena) error {
	const unlock = `
if redis.call("get", KEYS[1]) ~= ARGV[1] then return 1 end
redis.call("del", KEYS[2])
redis.call("lpush", KEYS[2], 1)
redis.call("pexpire", KEYS[2], ARGV[2])
redis.call("del", KEYS[1])
return 0`
	return replay(ctx, a, func(w *wire) error {
		waiter, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer waiter.close()
		keys := []string{"lock:job", "lock-signal:job"}
		if err := errors.Join(w.want("+OK", "SET", keys[0], "id1", "NX", "EX", 60),
			waiter.want("nil", "SET", keys[0], "id2", "NX", "EX", 60), waiter.send("BLPOP", keys[1], 60)); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, ":1", unlock, keys, "id2", 1000), w.call(true, ":0", unlock, keys, "id1", 1000),
			waiter.expect("[$lock-signal:job $1]"), waiter.want("+OK", "SET", keys[0], "id2", "NX", "EX", 60),
			waiter.call(true, ":0", unlock, keys, "id2", 1000))
	})
}

func pythonOthers(ctx context.Context, a *arena) error {
	const set = `
local owner = redis.call('get', KEYS[1])
if not owner or owner == ARGV[1] then
  return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return redis.error_reply('ERROR')`
	const unset = `
if redis.call('get', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ERROR') end
redis.call('del', KEYS[1])
return redis.status_reply('OK')`
	return replay(ctx, a, func(w *wire) error {
		if err := errors.Join(w.want("$"+sha(set), "SCRIPT", "LOAD", set),
			w.want("$"+sha(unset), "SCRIPT", "LOAD", unset), w.want("+OK", "EVALSHA", sha(set), 1, "aio", "t1", 60000),
			w.want("-ERR ERROR*", "EVALSHA", sha(set), 1, "aio", "t2", 60000),
			w.want("+OK", "SET", "pot", "t1", "NX", "PX", 60000),
			w.want("+OK", "SET", "rpy", "t1", "NX", "PX", 60000)); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.want("-ERR ERROR*", "EVALSHA", sha(set), 1, "aio", "t2", 60000),
			w.want("+OK", "EVALSHA", sha(set), 1, "aio", "t1", 60000),
			w.want("+OK", "EVALSHA", sha(unset), 1, "aio", "t1"),
			w.call(true, ":1", extendScript, []string{"pot"}, "t1", 60000),
			w.call(true, ":1", unlockScript, []string{"pot"}, "t1"),
			w.want(":0", "EVAL", unlockScript, 1, "rpy", "t2"), w.want(":1", "EVAL", unlockScript, 1, "rpy", "t1"))
	})
}

func pythonSchedulers(ctx context.Context, a *arena) error {
	return replay(ctx, a, func(w *wire) error {
		err := w.all(command("SET once:task t1 NX PX 60000", "+OK"), command("SET once:task t2 NX PX 60000", "nil"),
			command("PTTL once:task", ":*"), command("SET dj:key v NX PX 60000", "+OK"),
			command("SET dj:key w NX PX 60000", "nil"),
			command("MULTI", "+OK"), command("HSET redbeat:task definition d meta m", "+QUEUED"),
			command("ZADD redbeat::schedule 1729760300 redbeat:task", "+QUEUED"), command("EXEC", "[:2 :1]"))
		if err != nil {
			return err
		}
		a.killLeader()
		return w.all(command("SET once:task t2 NX PX 60000", "nil"), command("DEL once:task", ":1"),
			command("PERSIST dj:key", ":1"), command("TTL dj:key", ":-1"), command("HSETNX redbeat:task meta n", ":0"),
			command("HGET redbeat:task meta", "$m"),
			command("ZRANGEBYSCORE redbeat::schedule 0 1729760300 WITHSCORES", "[$redbeat:task $1729760300]"),
			command("ZREM redbeat::schedule redbeat:task", ":1"),
			command("SCAN 0 MATCH dj:* COUNT 1000", "[$0 [$dj:key]]"))
	})
}

func rslock(ctx context.Context, a *arena) error {
	const extend = `
if redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2]) ~= nil then return 1 end
return 0`
	return replay(ctx, a, func(w *wire) error {
		if err := w.all(command("CLIENT SETINFO LIB-NAME redis-rs", "*"), command("CLIENT SETINFO LIB-VER 1.6.0", "*"),
			command("SET lock v1 NX PX 60000", "+OK"), command("SET lock v2 NX PX 60000", "nil")); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, ":0", extend, []string{"lock"}, "v2", 60000),
			w.call(true, ":1", extend, []string{"lock"}, "v1", 60000),
			w.call(true, ":1", unlockScript, []string{"lock"}, "v1"))
	})
}

func jobQueues(ctx context.Context, a *arena) error {
	const due = `
local jobs = redis.call("zrange", KEYS[1], "-inf", ARGV[1], "byscore", "limit", 0, 1)
if jobs[1] then
  redis.call("zrem", KEYS[1], jobs[1])
  return jobs[1]
end`
	return replay(ctx, a, func(w *wire) error {
		worker, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer worker.close()
		if err := errors.Join(
			w.all(command("SET {hangfire}:lock t1 EX 60 NX", "+OK"), command("LPUSH {hangfire}:queue j1", ":1"),
				command("BRPOPLPUSH {hangfire}:queue {hangfire}:dequeued 1", "$j1"),
				command("HSET {hangfire}:job:j1 Fetched now", ":1"),
				command("SADD queues default", ":1"), command("ZADD schedule 10 j2", ":1"),
				command("SET asynq:unique:x id NX EX 60", "+OK")),
			worker.send("BRPOP", "queue:default", "queue:low", 0)); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.call(true, "$j2", due, []string{"schedule"}, 20),
			w.call(true, "nil", due, []string{"schedule"}, 20), w.want(":1", "LPUSH", "queue:default", "j2"),
			worker.expect("[$queue:default $j2]"),
			w.all(command("LREM {hangfire}:dequeued 1 j1", ":1"), command("SET {hangfire}:lock t2 EX 60 NX", "nil"),
				command("SET asynq:unique:x id NX EX 60", "nil"), command("ZCARD schedule", ":0"),
				command("SISMEMBER queues default", ":1")))
	})
}

func bullMQ(ctx context.Context, a *arena) error {
	const move = `
local job = redis.call("ZPOPMIN", KEYS[1])[1]
if not job then return false end
local opts = cmsgpack.unpack(ARGV[1])
redis.call("SET", KEYS[2] .. job .. ":lock", opts.token, "PX", opts.lockDuration)
redis.call("LPUSH", KEYS[3], job)
redis.call("XADD", KEYS[4], "MAXLEN", "~", 10000, "*", "event", "active", "jobId", job)
return { job, cjson.encode({ name = opts.name, n = 1 }) }`
	const extend = `
if redis.call("GET", KEYS[1]) == ARGV[1] and redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2]) then
  redis.call("SREM", KEYS[2], ARGV[3])
  return 1
end
return 0`
	const complete = `
if redis.call("GET", KEYS[1]) ~= ARGV[1] then return -2 end
redis.call("DEL", KEYS[1])
if redis.call("LREM", KEYS[2], -1, ARGV[2]) < 1 then return -3 end
redis.call("ZADD", KEYS[3], 1729760300001, ARGV[2])
redis.call("XADD", KEYS[4], "*", "event", "completed", "jobId", ARGV[2], "returnvalue", cjson.encode({ ok = true }))
redis.call("XTRIM", KEYS[4], "MAXLEN", "~", 10000)
return 0`
	packed := "\x83\xa5token\xa2t1\xaclockDuration\xcd\x75\x30\xa4name\xa5queue"
	return replay(ctx, a, func(w *wire) error {
		worker, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer worker.close()
		events, err := dialWire(ctx, a.nodes[1])
		if err != nil {
			return err
		}
		defer events.close()
		keys := []string{"bull:q:prioritized", "bull:q:", "bull:q:active", "bull:q:events"}
		if err := errors.Join(w.want("$*redis_version:*", "INFO"), w.want(":1", "ZADD", keys[0], 5, "7"),
			events.send("XREAD", "BLOCK", 0, "STREAMS", keys[3], "0-0"),
			w.call(false, "[$7 $*queue*]", move, keys, packed),
			events.expect("[[$bull:q:events [[$* [$event $active $jobId $7]]]]]"),
			w.call(false, "nil", move, keys, packed),
			worker.send("BZPOPMIN", "bull:q:marker", 0)); err != nil {
			return err
		}
		last, err := events.ask("XREVRANGE", keys[3], "+", "-", "COUNT", 1)
		if err != nil {
			return err
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(last, "[[$"), " ")
		if err := events.send("XREAD", "BLOCK", 0, "STREAMS", keys[3], id); err != nil {
			return err
		}
		a.killLeader()
		return errors.Join(w.want("$t1", "GET", "bull:q:7:lock"),
			w.call(false, ":1", extend, []string{"bull:q:7:lock", "bull:q:stalled"}, "t1", 30000, "7"),
			w.want(":1", "ZADD", "bull:q:marker", 0, "0"), worker.expect("[$bull:q:marker $0 $0]"),
			w.call(false, ":-2", complete, []string{"bull:q:7:lock", keys[2], "bull:q:completed", keys[3]}, "t2", "7"),
			w.call(false, ":0", complete, []string{"bull:q:7:lock", keys[2], "bull:q:completed", keys[3]}, "t1", "7"),
			events.expect(`[[$bull:q:events [[$* [$event $completed $jobId $7 $returnvalue ${"ok":true}]]]]]`),
			w.want(":2", "XLEN", keys[3]), w.want("nil", "GET", "bull:q:7:lock"),
			w.want("$1729760300001", "ZSCORE", "bull:q:completed", "7"))
	})
}
