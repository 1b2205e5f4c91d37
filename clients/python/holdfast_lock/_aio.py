"""Locks for programs with asyncio."""

import asyncio

import redis.asyncio
from redis import exceptions as redis_errors
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ._errors import LostError, NoLockCommandError, TakenError, UnprovedError, transient, unknown_command
from ._lease import (
    LONGEST_WAIT, PROBE_EVERY, PROBE_LIMIT, REPLY_MARGIN, RETRY_MAX, RETRY_MIN, Lease, Pause, Request, monotonic,
    split,
)


class AsyncNodes:
    """Several nodes of one cluster: see Nodes."""

    def __init__(self, clients):
        self._clients = list(clients)
        if not self._clients:
            raise ValueError("no node")
        self._current = 0
        self._limit = None  # time limit of a command in seconds; None if only the limits of the clients apply

    @classmethod
    def from_addresses(cls, addresses, **options):
        """Return the nodes at addresses of the form host:port.

        The options are those of redis.asyncio.Redis: see Nodes.from_addresses.
        """
        clients = []
        for address in addresses:
            host, port = split(address)
            clients.append(redis.asyncio.Redis(host=host, port=port, **{
                "socket_timeout": 15, "socket_connect_timeout": 3, "retry": Retry(NoBackoff(), 0), **options}))
        return cls(clients)

    async def execute_command(self, *args):
        for _ in self._clients[1:]:
            try:
                return await self.execute_once(*args)
            except Exception as err:
                if not transient(err):
                    raise
        return await self.execute_once(*args)

    async def execute_once(self, *args):
        """Send a command to one node: see Nodes.execute_once."""
        at = self._current
        try:
            return await asyncio.wait_for(_once(self._clients[at], args), self._limit)
        except Exception as err:
            if isinstance(err, asyncio.TimeoutError):
                err = redis_errors.TimeoutError("the node does not answer")
            if transient(err) and self._current == at:
                self._current = (at + 1) % len(self._clients)
            raise err

    def limited(self, seconds):
        """Return an AsyncNodes with the same clients, which waits for each node for at
        most this many seconds before it asks the next one."""
        nodes = AsyncNodes(self._clients)
        nodes._limit = seconds
        return nodes

    def current(self):
        """Return the client of the node that gets the next command."""
        return self._clients[self._current]

    async def close(self):
        for c in self._clients:
            await c.close()


class AsyncLock:
    """A lock that an async with statement holds. The parameters are those of Lock."""

    def __init__(self, client, key, ttl=30, wait=None, owner=None, meta="", shared=False, limit=None):
        self._client, self._request = client, Request(key, ttl, wait, owner, meta, shared, limit)
        self._held = None

    async def __aenter__(self):
        if self._held is not None:
            raise RuntimeError("this AsyncLock is held already: make an AsyncLock for each task")
        self._held = await self.acquire()
        return self._held

    async def __aexit__(self, kind, err, trace):
        held, self._held = self._held, None
        try:
            await held.release()
        except Exception:
            if kind is None:
                raise  # otherwise, keep the exception of the block, which is more important

    async def acquire(self):
        """Take the lock and return an AsyncHeld: see Lock.acquire. Canceling the task
        ends the wait."""
        q = self._request
        end = None if q.wait is None else monotonic() + q.wait
        pause = Pause()
        try:
            while True:
                try:
                    return await self._try(end)
                except TakenError:
                    if end is not None and monotonic() >= end:
                        raise
                    continue
                except LostError:
                    continue  # the grant ended before _try could renew its lease
                except (redis_errors.RedisError, OSError) as err:
                    if unknown_command(err):
                        raise NoLockCommandError(f"the server has no LOCK command: {err}") from err
                    if not transient(err):
                        raise
                    if end is not None and monotonic() >= end:
                        self._abandon()
                        raise
                await asyncio.sleep(pause.next())
        except asyncio.CancelledError:
            self._abandon()
            raise

    async def _try(self, end):
        q, sent = self._request, monotonic()
        token = await self._client.execute_command(*q.acquire(0))
        if token is not None:
            return AsyncHeld(self._client, q, int(token), q.until(sent))
        left = LONGEST_WAIT if end is None else end - monotonic()
        if left <= 0:
            raise TakenError(f"lock {q.key!r} is taken")
        token = await self._queue(left)
        if token is None:
            raise TakenError(f"lock {q.key!r} is taken")
        sent = monotonic()
        q.renewed(await self._client.execute_command(*q.renew()), int(token))
        return AsyncHeld(self._client, q, int(token), q.until(sent))

    async def _queue(self, wait):
        node = self._client.current() if isinstance(self._client, AsyncNodes) else self._client
        conn = _connection(node.connection_pool, wait + REPLY_MARGIN)

        async def ask():
            await conn.connect()
            await conn.send_command(*self._request.acquire(wait))
            return await conn.read_response()

        asking, probing = asyncio.ensure_future(ask()), asyncio.ensure_future(_probe(node))
        try:
            await asyncio.wait({asking, probing}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise redis_errors.ConnectionError("the node does not answer")
            return asking.result()
        finally:
            for task in (asking, probing):
                task.cancel()
            await asyncio.gather(asking, probing, return_exceptions=True)
            await conn.disconnect()

    def _abandon(self):
        async def release():
            try:
                await self._client.execute_command(*self._request.release())
            except (redis_errors.RedisError, OSError):
                pass  # the lease ends on its own
        task = asyncio.ensure_future(release())
        _background.add(task)
        task.add_done_callback(_background.discard)


_background = set()  # keeps references to running tasks, because asyncio keeps only weak references


async def _once(client, args):
    """Send a command once: see _once in _sync.py."""
    pool = client.connection_pool
    conn = await _pooled(pool)
    try:
        await conn.send_command(*args)
        return await client.parse_response(conn, args[0])
    except BaseException:
        await conn.disconnect()
        raise
    finally:
        await pool.release(conn)


async def _pooled(pool):
    try:
        return await pool.get_connection()
    except TypeError:  # before redis-py 5.3, get_connection needs the name of the command
        return await pool.get_connection("LOCK")


def _connection(pool, timeout):
    """Return a connection with the parameters of a pool but with another time limit."""
    return pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": timeout})


async def _probe(node):
    """Send PING to the node at intervals, and return as soon as it does not answer."""
    pings = _connection(node.connection_pool, PROBE_LIMIT)
    try:
        while True:
            await asyncio.sleep(PROBE_EVERY)
            try:
                await pings.connect()
                await pings.send_command("PING")
                await asyncio.wait_for(pings.read_response(), PROBE_LIMIT)
            except (redis_errors.RedisError, OSError, asyncio.TimeoutError):
                return
    finally:
        await pings.disconnect()


class AsyncHeld(Lease):
    """A lock that was acquired. Its lease is renewed until release."""

    def __init__(self, client, request, token, until):
        super().__init__(client, request, token, until)
        self.lost = asyncio.Event()
        """Set when the lock is lost, or when the lease may have ended."""
        self._keeper = asyncio.ensure_future(self._keep())
        self._watch = asyncio.ensure_future(self._expire())

    async def release(self):
        """Release the lock: see Held.release."""
        for task in (self._keeper, self._watch):
            task.cancel()
        await asyncio.gather(self._keeper, self._watch, return_exceptions=True)
        if isinstance(self._cause, LostError):
            raise self._cause
        pause, unsure = Pause(), False
        while True:
            try:
                n = await self._release_once()
            except (redis_errors.RedisError, OSError) as err:
                if not transient(err) or self.left() == 0:
                    raise
                unsure = True
                await asyncio.sleep(min(pause.next(), self.left()))
                continue
            if n == 1 or unsure:
                return
            raise LostError(f"lock {self.key!r}: the owner does not hold it")

    async def _release_once(self):
        args = self._request.release(self.token)
        if isinstance(self._client, AsyncNodes):
            return await self._client.execute_once(*args)
        return await _once(self._client, args)

    def _lose(self, cause):
        if self._cause is None:
            self._cause = cause
        self.lost.set()

    async def _keep(self):
        ttl, client = self._request.ttl, self._client
        if isinstance(client, AsyncNodes):
            # Limit the wait for a node that hangs, so that there is time to ask the
            # other nodes before the lease ends.
            client = client.limited(self._request.node_limit())
        wait = ttl / 3
        while self._cause is None:
            await asyncio.sleep(wait)
            sent, wait = monotonic(), ttl / 3
            try:
                reply = await client.execute_command(*self._request.renew())
                self._request.renewed(reply, self.token)
            except LostError as err:
                self._lose(err)
                return
            except (redis_errors.RedisError, OSError):
                wait = min(max(ttl / 30, RETRY_MIN), RETRY_MAX)
                continue
            self._until = self._request.until(sent)

    async def _expire(self):
        while self._cause is None:
            await asyncio.sleep(self.left())
            if self.left() == 0:
                self._lose(UnprovedError(f"lock {self.key!r}: the cluster has not confirmed a renewal in time"))
