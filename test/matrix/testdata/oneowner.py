"""redis-py's Lock, one step for each line of the input: take, renew, free or free by another."""
import sys

import redis
from redis.exceptions import LockError

client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]))
lock = client.lock(sys.argv[3], timeout=30, thread_local=False)
other = client.lock(sys.argv[3], timeout=30, thread_local=False)
other.local.token = b"not the owner"
for line in sys.stdin:
    try:
        match line.strip():
            case "take":
                done = lock.acquire(blocking=False)
            case "renew":
                done = lock.reacquire()
            case "free":
                lock.release()
                done = True
            case "free by another":
                other.local.token = b"not the owner"
                other.release()
                done = True
    except LockError:
        done = False
    print("yes" if done else "no", flush=True)
