"""A lock with redis-py, renewed while the work lasts: python3 lock.py [host:port]

The program prints "half" when it has taken the lock, before the work. To see that the lock is kept, kill a node at
that moment, but not the node at host:port.
"""
import sys
import time

import redis

host, port = (sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:6379").split(":")
# The socket timeout is longer than a failover. redis-py 4 repeats no command by itself; later versions may.
client = redis.Redis(host=host, port=int(port), socket_timeout=30)

TTL = 5
lock = client.lock("recipe:py-lock", timeout=TTL, blocking_timeout=20)
if not lock.acquire():
    sys.exit("the lock is taken")
try:
    # The fencing token of the lock: send it with each write to what the lock protects.
    token = client.execute_command("LOCK", "TOKEN", "recipe:py-lock")
    print("half", flush=True)
    for _ in range(4):
        time.sleep(TTL / 4)          # the work
        lock.extend(TTL, replace_ttl=True)  # raises LockNotOwnedError if the lock was lost
        other = client.set("recipe:py-lock", "somebody else", nx=True, ex=TTL)
        assert other is None, "a second owner"
        assert lock.owned()
        assert client.execute_command("LOCK", "CHECK", "recipe:py-lock", token) == 1
finally:
    lock.release()  # compare-and-delete: deletes the lock only if this client still owns it
assert client.get("recipe:py-lock") is None
print("kept through it all")
