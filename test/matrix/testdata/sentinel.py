"""The Sentinel client of redis-py finds the leader, and the next leader after the kill."""
import sys
import time

import redis
from redis.sentinel import MasterNotFoundError, Sentinel

sentinels = [tuple(a.rsplit(":", 1)) for a in sys.argv[3].split(",")]
sentinel = Sentinel([(h, int(p)) for h, p in sentinels], socket_timeout=2)
client = sentinel.master_for("mymaster", socket_timeout=5)


def persist(f):
    for _ in range(2000):
        try:
            return f()
        except (redis.ConnectionError, redis.TimeoutError, MasterNotFoundError):
            time.sleep(0.02)
    raise SystemExit("no leader found")


before = sentinel.discover_master("mymaster")
lock = client.lock("lock", timeout=60)
assert lock.acquire()
token = client.get("lock")
print("half", flush=True)
sys.stdin.readline()
assert persist(lambda: client.get("lock")) == token, "the lock is gone"
assert persist(lambda: client.set("lock", "other", nx=True)) is None
after = persist(lambda: sentinel.discover_master("mymaster"))
assert after != before, "Sentinel still names the killed leader"
persist(lock.release)
assert persist(lambda: client.exists("lock")) == 0
slaves = persist(lambda: sentinel.discover_slaves("mymaster"))
assert slaves, "no replicas"
print("ok")
