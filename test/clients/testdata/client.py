"""redis-py with its defaults: a lock, MULTI, WATCH, a pipeline, blocking pops, a cut connection."""
import sys
import threading
import time

import redis

host, port = sys.argv[1], int(sys.argv[2])
r = redis.Redis(host=host, port=port)
assert r.ping() is True
assert r.set("lock", "token", nx=True, ex=60) is True
assert r.set("lock", "token", nx=True, ex=60) is None
assert r.get("lock") == b"token"
assert 0 < r.ttl("lock") <= 60
assert r.get("absent") is None

with r.pipeline(transaction=True) as p:
    assert p.set("n", 1).incr("n").get("n").execute() == [True, 2, b"2"]
with r.pipeline(transaction=False) as p:
    for i in range(500):
        p.set(f"k{i}", i).get(f"k{i}")
    assert p.execute()[-1] == b"499"
with r.pipeline() as p:
    p.watch("n")
    r.set("n", 5)
    p.multi()
    p.incr("n")
    try:
        p.execute()
        raise AssertionError("EXEC did not notice the change of a watched key")
    except redis.WatchError:
        pass

got = []
t = threading.Thread(target=lambda: got.append(redis.Redis(host=host, port=port).blpop(["none", "queue"], timeout=20)))
t.start()
while r.info("clients")["blocked_clients"] != 1:
    pass
assert r.rpush("queue", "a", "b") == 2
t.join()
assert got == [(b"queue", b"a")], got
assert r.brpoplpush("queue", "other", timeout=1) == b"b"
begun = time.monotonic()
assert r.blpop("queue", timeout=1) is None
assert time.monotonic() - begun >= 1
assert r.zadd("z", {"m": 1.5}) == 1
assert r.bzpopmin("z", timeout=1) == (b"z", b"m", 1.5)

info = r.info()
assert info["role"] == "master" and info["redis_version"] == "7.0.15" and info["loading"] == 0, info
assert info["db0"]["keys"] > 500, info
r.client_setname("py")
assert r.client_getname() == "py" or r.client_getname() == b"py"
assert any(c["name"] == "py" for c in r.client_list())
assert r.config_get("databases") == {"databases": "16"}
assert r.command()["set"]["arity"] == -3
assert r.command_getkeys("SET", "a", "b") in ([b"a"], ["a"])
assert r.role() if hasattr(r, "role") else True
assert r.wait(0, 100) == 0

other = redis.Redis(host=host, port=port, db=0)
assert other.client_kill_filter(_id=r.client_id()) == 1
assert r.get("lock") == b"token"  # on a new connection
print("ok")
