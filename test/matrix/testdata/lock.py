"""redis-py's Lock among four threads."""
import sys
import threading

import redis

host, port = sys.argv[1], int(sys.argv[2])
client = redis.Redis(host=host, port=port)
inside, turns, problems = threading.Lock(), [], []
WORKERS, ROUNDS = 4, 8


def half():
    print("half", flush=True)
    sys.stdin.readline()


def worker(n):
    try:
        for _ in range(ROUNDS):
            lock = client.lock("lock", timeout=30, sleep=0.005)
            assert lock.acquire()
            assert inside.acquire(blocking=False), "two owners"
            assert lock.owned() and lock.locked()
            assert lock.extend(5) and lock.reacquire()
            turns.append(n)
            if len(turns) == WORKERS * ROUNDS // 2:
                half()
            inside.release()
            lock.release()
    except Exception as e:
        problems.append(repr(e))


threads = [threading.Thread(target=worker, args=(n,)) for n in range(WORKERS)]
for t in threads:
    t.start()
for t in threads:
    t.join()
assert not problems, problems
assert len(turns) == WORKERS * ROUNDS
lock = client.lock("lock", timeout=30)
assert lock.acquire(blocking=False)
other = client.lock("lock", timeout=30)
assert not other.acquire(blocking=False)
client.set("lock", "stolen")
try:
    lock.release()
    raise SystemExit("released the lock of another owner")
except redis.exceptions.LockNotOwnedError:
    pass
print("ok")
