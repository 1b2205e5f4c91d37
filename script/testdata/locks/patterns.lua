-- release the lock if the caller owns it
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])
----
-- release the lock; return -1 if it has expired
local holder = redis.call('GET', KEYS[1])
if not holder then
  return -1
end
if holder ~= ARGV[1] then
  return 0
end
return redis.call('DEL', KEYS[1])
----
-- renew the lock if the caller owns it
if ARGV[1] == redis.call('GET', KEYS[1]) then
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return 0
----
-- renew the lock, or acquire it again if it is free
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if holder == false and redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 end
return -1
----
-- acquire the lock and return its owner
redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', tonumber(ARGV[2]))
return redis.call('get', KEYS[1])
----
-- acquire several locks at once, or none of them
for i, key in ipairs(KEYS) do
  if redis.call('exists', key) == 1 then
    return redis.error_reply('TAKEN ' .. i)
  end
end
for _, key in ipairs(KEYS) do
  redis.call('set', key, ARGV[1], 'PX', ARGV[2])
end
return #KEYS
----
-- acquire several locks; release them again if one is taken
local taken = {}
for _, key in ipairs(KEYS) do
  if redis.call('SETNX', key, ARGV[1]) == 1 then
    table.insert(taken, key)
  else
    if #taken > 0 then redis.call('DEL', unpack(taken)) end
    return {0, key}
  end
end
for _, key in ipairs(taken) do redis.call('PEXPIRE', key, ARGV[2]) end
return {#taken, unpack(taken)}
----
-- release the locks that the caller owns, and count them
local n = 0
for i = 1, #KEYS do
  local ok, holder = pcall(redis.call, 'get', KEYS[i])
  if ok and holder == ARGV[1] then n = n + redis.call('del', KEYS[i]) end
end
return n
----
-- acquire a reentrant lock: a hash counts how often its owner has acquired it
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[1], 1)
  redis.call('pexpire', KEYS[1], ARGV[2])
  return nil
end
return redis.call('pttl', KEYS[1])
----
-- release a reentrant lock once; wake the waiters when the count is 0
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], 'free')
return 1
----
-- renew a read lock: the loop counts down from a number that is stored as text
local count = redis.call('hget', KEYS[1], ARGV[1])
if count == false then return 0 end
local most = -3
for i = count, 1, -1 do
  most = math.max(most, redis.call('pttl', KEYS[1]) > 0 and i or 0)
end
redis.call('pexpire', KEYS[1], ARGV[2])
return most
----
-- a read-write lock: readers share it, a writer excludes all others
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], '1')
  redis.call('pexpire', KEYS[1], ARGV[2])
  return nil
elseif mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 1) then
  return {mode, redis.call('hincrby', KEYS[1], ARGV[1], 1)}
end
return redis.call('pttl', KEYS[1])
----
-- a fair lock: a queue of waiters, first come, first served
local first = redis.call('lindex', KEYS[2], 0)
if first == false then
  redis.call('rpush', KEYS[2], ARGV[1])
  first = ARGV[1]
end
if first == ARGV[1] and redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  redis.call('lpop', KEYS[2])
  return redis.status_reply('LOCKED')
end
return {first, redis.call('llen', KEYS[2])}
----
-- a semaphore: remove members that are too old, then add one if there is room
local now = 1700000000000
redis.call('zremrangebyscore', KEYS[3], '-inf', now - tonumber(ARGV[2]))
if redis.call('zcard', KEYS[3]) < 2 then
  redis.call('zadd', KEYS[3], now, ARGV[1])
  return redis.call('zrange', KEYS[3], 0, -1, 'WITHSCORES')
end
return false
----
-- a lock with a fencing token in another key
if redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
  return {redis.call('incr', KEYS[3] .. ':token'), redis.call('pttl', KEYS[1]) > 0}
end
return nil
----
-- a token bucket for a rate limit, stored as JSON
local bucket = redis.call('get', KEYS[3])
local state = bucket and cjson.decode(bucket) or {tokens = 5, at = 100}
if type(state) ~= 'table' then state = {tokens = 5, at = 100} end
state.tokens = math.min(5, state.tokens + (101 - state.at) * 0.5)
state.at = 101
local allowed = state.tokens >= 1
if allowed then state.tokens = state.tokens - 1 end
redis.call('set', KEYS[3], cjson.encode({tokens = state.tokens}))
return {allowed and 1 or 0, tostring(state.tokens)}
----
-- a job in a queue, encoded with cmsgpack
local job = cmsgpack.pack({ARGV[1], tonumber(ARGV[2]), true})
redis.call('rpush', 'lock-signal:a', job)
local name, delay = unpack(cmsgpack.unpack(redis.call('rpop', 'lock-signal:a')))
return {name, delay, #job}
----
-- a value in several forms: its text, its length and its beginning
local val = redis.call('get', KEYS[1])
if val == nil then return 'nil' elseif not val then return 'false' end
return string.format('%s/%d/%s', val, #val, string.sub(val, 1, 3))
