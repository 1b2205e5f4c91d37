"""Checks holdfast_lock against a real cluster: check.py HOST:PORT…

The parent process kills the leader when this program prints "half".
"""

import asyncio
import os
import socket
import sys
import threading
import time

import redis
import redis.asyncio

from holdfast_lock import AsyncLock, AsyncNodes, Lock, LostError, Nodes, TakenError

addresses = sys.argv[1:]


def check(what, ok):
    if not ok:
        print("FAILED:", what, flush=True)
        os._exit(1)  # ends the process without waiting for its threads


def until(what, holds, limit=60):
    end = time.monotonic() + limit
    while not holds():
        check(what, time.monotonic() < end)
        time.sleep(0.01)


def raises(kind, f):
    try:
        f()
    except kind as err:
        return err
    check(f"{kind.__name__} is raised", False)


def waiting(nodes, key):
    info = nodes.execute_command("LOCK", "INFO", key)
    return 0 if info is None else len(info[info.index(b"waiters") + 1])


class Proxy:
    """A proxy in front of a node. It can hang, and it can lose the reply to a RELEASE."""

    def __init__(self, address):
        self.hangs, self.loses = False, False
        self._lost = set()  # the connections of clients whose next reply is lost
        host, port = address.rsplit(":", 1)
        self._node = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            node = socket.create_connection(self._node)
            for pair in ((client, node), (node, client)):
                threading.Thread(target=self._copy, args=(*pair, client), daemon=True).start()

    def _copy(self, source, target, client):
        try:
            self._pass_on(source, target, client)
        except OSError:
            pass  # the connection has ended

    def _pass_on(self, source, target, client):
        while data := source.recv(1 << 16):
            until("the proxy to continue", lambda: not self.hangs)
            if client in self._lost and source is not client:  # this is the reply: the node has executed RELEASE
                for s in (source, target):
                    s.shutdown(socket.SHUT_RDWR)
                return
            if self.loses and source is client and b"RELEASE" in data:
                self.loses = False
                self._lost.add(client)
            target.sendall(data)


def failing_node():
    """Check that the owner keeps its lock when its node hangs, and that release
    succeeds although the reply to RELEASE is lost."""
    proxy = Proxy(addresses[0])
    both = Nodes.from_addresses([proxy.address, addresses[1]])
    alone = redis.Redis(host="127.0.0.1", port=proxy.port)
    for client in both, alone:
        held = Lock(client, "reply").acquire()
        proxy.loses = True
        held.release()
        check("the reply was lost", not proxy.loses)
    held = Lock(Nodes.from_addresses([proxy.address, addresses[1]]), "hang", ttl=3).acquire()
    proxy.hangs = True
    end = time.monotonic() + 5  # longer than the ttl
    while time.monotonic() < end:
        check("the lock survives a node that hangs", not held.lost.is_set())
        time.sleep(0.01)
    proxy.hangs = False
    held.release()


async def failing_node_of_tasks():
    proxy = Proxy(addresses[0])
    both = AsyncNodes.from_addresses([proxy.address, addresses[1]])
    alone = redis.asyncio.Redis(host="127.0.0.1", port=proxy.port)
    for client in both, alone:
        held = await AsyncLock(client, "reply").acquire()
        proxy.loses = True
        await held.release()
        check("the reply was lost", not proxy.loses)
    await alone.aclose() if hasattr(alone, "aclose") else await alone.close()
    await both.close()
    nodes = AsyncNodes.from_addresses([proxy.address, addresses[1]])
    held = await AsyncLock(nodes, "hang", ttl=3).acquire()
    proxy.hangs = True
    await asyncio.sleep(5)  # longer than the ttl
    check("the lock survives a node that hangs", not held.lost.is_set())
    proxy.hangs = False
    await held.release()
    await nodes.close()


def threads():
    nodes = Nodes.from_addresses(addresses)
    with Lock(nodes, "a", ttl=2, meta="a job") as first:
        check("the value is the owner", nodes.execute_command("GET", "a") == first.owner.encode())
        check("the token is that of the grant", nodes.execute_command("LOCK", "TOKEN", "a") == first.token)
        raises(TakenError, Lock(nodes, "a", wait=0).acquire)
        raises(TakenError, Lock(nodes, "a", wait=0.2).acquire)
        time.sleep(3)  # longer than the ttl: the lease is renewed
        first.check()
        check("the lease is renewed", first.left() > 0.5 and not first.lost.is_set())
    check("the lock is released", nodes.execute_command("EXISTS", "a") == 0)

    # Readers share a lock and exclude a writer. A lock with limit=2 has two owners at most.
    with Lock(nodes, "rw", shared=True, wait=0) as one, Lock(nodes, "rw", shared=True, wait=0) as two:
        check("each reader has a token", one.token < two.token)
        check("the value is a lock", nodes.execute_command("TYPE", "rw") == b"lock")
        raises(TakenError, Lock(nodes, "rw", wait=0).acquire)
    with Lock(nodes, "rw", wait=0):
        raises(TakenError, Lock(nodes, "rw", shared=True, wait=0).acquire)
    with Lock(nodes, "sem", limit=2, wait=0), Lock(nodes, "sem", limit=2, wait=0):
        raises(TakenError, Lock(nodes, "sem", limit=2, wait=0).acquire)
    raises(ValueError, lambda: Lock(nodes, "sem", limit=0))
    raises(ValueError, lambda: Lock(nodes, "sem", limit=1, shared=True))

    # The waiters get the lock in the order in which they began to wait.
    order, lock = [], Lock(nodes, "a", ttl=20).acquire()

    def waiter(i):
        with Lock(Nodes.from_addresses(addresses), "a", ttl=20) as held:
            order.append((i, held.token))

    all_waiters = []
    for i in range(3):
        t = threading.Thread(target=waiter, args=(i,))
        t.start()
        all_waiters.append(t)
        until("the waiter to wait", lambda: waiting(nodes, "a") == i + 1)
    lock.release()
    for t in all_waiters:
        t.join()
    check(f"first come, first served: {order}", [i for i, _ in order] == [0, 1, 2])
    check(f"tokens grow: {order}", lock.token < order[0][1] < order[1][1] < order[2][1])

    held = Lock(nodes, "b", ttl=6).acquire()
    other = threading.Thread(target=waiter_of, args=(order, "b"))
    other.start()
    until("the waiter to wait", lambda: waiting(nodes, "b") == 1)
    print("half", flush=True)  # the leader is killed now
    end = time.monotonic() + 7  # longer than the ttl
    while time.monotonic() < end:
        check("the lock survives the death of the leader", not held.lost.is_set())
        time.sleep(0.01)
    held.release()
    other.join()
    check("the waiter has the lock", order[-1][0] == "b" and order[-1][1] > held.token)

    broken = Lock(nodes, "c", ttl=1).acquire()
    nodes.execute_command("LOCK", "BREAK", "c")
    check("the loss is noticed", broken.lost.wait(10))
    raises(LostError, broken.check)
    raises(LostError, broken.release)
    raises(ValueError, lambda: Lock(nodes, ""))
    raises(ValueError, lambda: Lock(nodes, "k", ttl=0.01))
    raises(redis.ConnectionError, Lock(Nodes.from_addresses(["127.0.0.1:1"]), "k", wait=0.1).acquire)


def waiter_of(order, key):
    with Lock(Nodes.from_addresses(addresses), key, ttl=20) as held:
        order.append((key, held.token))


async def tasks():
    nodes = AsyncNodes.from_addresses(addresses)
    order = []

    async def waiter(i):
        async with AsyncLock(nodes, "x", ttl=20) as held:
            order.append((i, held.token))

    async def queued(n):
        end = time.monotonic() + 60
        while True:
            info = await nodes.execute_command("LOCK", "INFO", "x")
            if info is not None and len(info[info.index(b"waiters") + 1]) == n:
                return
            check(f"{n} clients to wait", time.monotonic() < end)
            await asyncio.sleep(0.01)

    async with AsyncLock(nodes, "r", shared=True) as one, AsyncLock(nodes, "r", shared=True) as two:
        check("each reader has a token", one.token < two.token)
    async with AsyncLock(nodes, "x", ttl=2) as first:
        all_waiters = []
        for i in range(3):
            all_waiters.append(asyncio.ensure_future(waiter(i)))
            await queued(i + 1)
        all_waiters[1].cancel()
        await queued(2)
        await asyncio.sleep(3)
        first.check()
        check("the lease is renewed", not first.lost.is_set())
    await asyncio.gather(*all_waiters, return_exceptions=True)
    check(f"the order of the tasks: {order}", [i for i, _ in order] == [0, 2])
    check("tokens grow", first.token < order[0][1] < order[1][1])

    broken = await AsyncLock(nodes, "y", ttl=1).acquire()
    await nodes.execute_command("LOCK", "BREAK", "y")
    await asyncio.wait_for(broken.lost.wait(), 10)
    try:
        await broken.release()
        check("a lost lock cannot be released", False)
    except LostError:
        pass
    await nodes.close()


failing_node()
asyncio.run(failing_node_of_tasks())
threads()
asyncio.run(tasks())
print("ok")
