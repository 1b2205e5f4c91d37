"""Locks for programs with threads."""

import socket
import threading

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ._errors import LostError, NoLockCommandError, TakenError, UnprovedError, transient, unknown_command
from ._lease import (
    LONGEST_WAIT, PROBE_EVERY, PROBE_LIMIT, REPLY_MARGIN, RETRY_MAX, RETRY_MIN, Lease, Pause, Request, monotonic,
    split,
)


class Nodes:
    """Several nodes of one cluster.

    Nodes sends a command to the node that answered last. After a temporary error,
    such as a lost connection, Nodes tries the others, because every node serves
    every command. The cluster may then execute the command twice. This is harmless
    for LOCK commands, but not for all commands.
    """

    def __init__(self, clients):
        self._clients = list(clients)
        if not self._clients:
            raise ValueError("no node")
        self._current = 0

    @classmethod
    def from_addresses(cls, addresses, **options):
        """Return the nodes at addresses of the form host:port.

        The options are those of redis.Redis. By default, the client of a node does
        not repeat a failed command, because Nodes asks the next node instead.
        """
        clients = []
        for address in addresses:
            host, port = split(address)
            clients.append(redis.Redis(host=host, port=port, **{
                "socket_timeout": 15, "socket_connect_timeout": 3, "retry": Retry(NoBackoff(), 0), **options}))
        return cls(clients)

    def execute_command(self, *args):
        for _ in self._clients[1:]:
            try:
                return self.execute_once(*args)
            except Exception as err:
                if not transient(err):
                    raise
        return self.execute_once(*args)

    def execute_once(self, *args):
        """Send a command to one node. After a temporary error, the next command goes to
        another node."""
        at = self._current
        try:
            return _once(self._clients[at], args)
        except Exception as err:
            if transient(err) and self._current == at:
                self._current = (at + 1) % len(self._clients)
            raise

    def limited(self, seconds):
        """Return a copy that waits for each node for at most this many seconds before it
        asks the next one."""
        return Nodes(_limited(c, seconds) for c in self._clients)

    def current(self):
        """Return the client of the node that gets the next command."""
        return self._clients[self._current]

    def close(self):
        for c in self._clients:
            c.close()


class Lock:
    """A lock that a with statement holds.

    client is a redis.Redis or a Nodes. ttl is the length of the lease in seconds. A
    crashed owner keeps other clients waiting for up to this time. wait limits the wait for
    a lock that is taken, in seconds: 0 means no wait, None means no limit. owner is
    a unique text, by default a random one. meta is a text that LOCK INFO shows.

    With shared=True, other owners with shared=True may hold the lock at the same
    time. An owner without shared waits until all of them have released the lock.
    With limit=n, up to n owners may hold the lock at the same time.
    """

    def __init__(self, client, key, ttl=30, wait=None, owner=None, meta="", shared=False, limit=None):
        self._client, self._request = client, Request(key, ttl, wait, owner, meta, shared, limit)
        self._held = None

    def __enter__(self):
        if self._held is not None:
            raise RuntimeError("this Lock is held already: make a Lock for each thread")
        self._held = self.acquire()
        return self._held

    def __exit__(self, kind, err, trace):
        held, self._held = self._held, None
        try:
            held.release()
        except Exception:
            if kind is None:
                raise  # otherwise, keep the exception of the block, which is more important

    def acquire(self):
        """Take the lock and return a Held, which the caller must release.

        It raises TakenError if the lock is still taken at the end of the wait,
        NoLockCommandError if the server is not Holdfast, or an error of redis-py.
        While the cluster cannot be reached, acquire tries again until the wait is
        over.
        """
        q = self._request
        end = None if q.wait is None else monotonic() + q.wait
        pause = Pause()
        while True:
            try:
                return self._try(end)
            except TakenError:
                if end is not None and monotonic() >= end:
                    raise
                continue  # a wait ended early, for example because its node stopped
            except LostError:
                continue  # the grant ended before _try could renew the lease
            except redis.RedisError as err:
                if unknown_command(err):
                    raise NoLockCommandError(f"the server has no LOCK command: {err}") from err
                if not transient(err):
                    raise
                if end is not None and monotonic() >= end:
                    self._abandon()  # the outcome of the last try is not known
                    raise
            except BaseException:  # KeyboardInterrupt: the last try may have acquired the lock
                self._abandon()
                raise
            threading.Event().wait(pause.next())

    def _try(self, end):
        q, sent = self._request, monotonic()
        token = self._client.execute_command(*q.acquire(0))
        if token is not None:
            return Held(self._client, q, int(token), q.until(sent))
        left = LONGEST_WAIT if end is None else end - monotonic()
        if left <= 0:
            raise TakenError(f"lock {q.key!r} is taken")
        token = self._queue(left)
        if token is None:
            raise TakenError(f"lock {q.key!r} is taken")
        # The lease began at an unknown time during the wait. Only a renewal shows how
        # long it lasts.
        sent = monotonic()
        q.renewed(self._client.execute_command(*q.renew()), int(token))
        return Held(self._client, q, int(token), q.until(sent))

    def _queue(self, wait):
        """Wait in the queue of the lock, on a separate connection. Closing that
        connection ends the wait, because the waiter then leaves the queue."""
        node = self._client.current() if isinstance(self._client, Nodes) else self._client
        conn = _connection(node.connection_pool, wait + REPLY_MARGIN)
        done = threading.Event()
        prober = threading.Thread(target=_probe, args=(node, conn, done), daemon=True)
        try:
            conn.connect()
            prober.start()
            conn.send_command(*self._request.acquire(wait))
            return conn.read_response()
        except OSError as err:  # for example, _probe has shut down the connection
            raise redis.ConnectionError(str(err)) from err
        finally:
            done.set()
            conn.disconnect()

    def _abandon(self):
        """Release a lock that a try with an unknown outcome may have acquired. If the release
        fails, the lease ends on its own."""
        def release():
            try:
                self._client.execute_command(*self._request.release())
            except redis.RedisError:
                pass  # the lease ends on its own
        threading.Thread(target=release, daemon=True).start()


def _once(client, args):
    """Send a command once. The method execute_command of redis-py may send a command
    again if the reply is lost."""
    pool = client.connection_pool
    conn = _pooled(pool)
    try:
        conn.send_command(*args)
        return client.parse_response(conn, args[0])
    except BaseException:
        conn.disconnect()
        raise
    finally:
        pool.release(conn)


def _pooled(pool):
    try:
        return pool.get_connection()
    except TypeError:  # before redis-py 5.3, get_connection needs the name of the command
        return pool.get_connection("LOCK")


def _limited(client, seconds):
    """Return a copy of a client whose time limits are at most this many seconds."""
    pool = client.connection_pool
    kwargs = pool.connection_kwargs
    for name in ("socket_timeout", "socket_connect_timeout"):
        kwargs = {**kwargs, name: min(kwargs.get(name) or seconds, seconds)}
    return redis.Redis(connection_pool=redis.ConnectionPool(connection_class=pool.connection_class, **kwargs))


def _connection(pool, timeout):
    """Return a connection with the parameters of a pool but with another time limit."""
    return pool.connection_class(**{**pool.connection_kwargs, "socket_timeout": timeout})


def _probe(node, conn, done):
    """End a wait when its node no longer answers. Without _probe, the client would not
    notice before the end of the wait that the node's host has failed."""
    pings = _connection(node.connection_pool, PROBE_LIMIT)
    try:
        while not done.wait(PROBE_EVERY):
            try:
                pings.send_command("PING")
                pings.read_response()
            except (redis.RedisError, OSError):
                _shut(conn)
                return
    finally:
        pings.disconnect()


def _shut(conn):
    """End a read that another thread has started on a connection."""
    sock = getattr(conn, "_sock", None)
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the socket has been closed already


class Held(Lease):
    """A lock that was acquired. Its lease is renewed until release."""

    def __init__(self, client, request, token, until):
        super().__init__(client, request, token, until)
        self.lost = threading.Event()
        """Set when the lock is lost, or when the lease may have ended."""
        self._stop = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True, name=f"renew lock {request.key}")
        self._keeper.start()
        self._watch = threading.Thread(target=self._expire, daemon=True, name=f"watch lock {request.key}")
        self._watch.start()

    def release(self):
        """Release the lock, so that the next client can get it at once.

        It raises LostError if the lock was lost before. If the cluster does not
        answer before the lease ends, release raises the error of redis-py.
        """
        self._stop.set()
        if threading.current_thread() is not self._keeper:
            self._keeper.join()
        if isinstance(self._cause, LostError):
            raise self._cause
        pause, unsure = Pause(), False
        while True:
            try:
                n = self._release_once()
            except redis.RedisError as err:
                if not transient(err) or self.left() == 0:
                    raise
                unsure = True
                threading.Event().wait(min(pause.next(), self.left()))
                continue
            if n == 1 or unsure:
                return
            raise LostError(f"lock {self.key!r}: the owner does not hold it")

    def _release_once(self):
        args = self._request.release(self.token)
        if isinstance(self._client, Nodes):
            return self._client.execute_once(*args)
        return _once(self._client, args)

    def _lose(self, cause):
        if self._cause is None:
            self._cause = cause
        self._stop.set()
        self.lost.set()

    def _keep(self):
        """Renew the lease after each third of the ttl."""
        if not isinstance(self._client, Nodes):
            self._renew_with(self._client)
            return
        # Limit the wait for a node that hangs, so that there is time to ask the other
        # nodes before the lease ends.
        nodes = self._client.limited(self._request.node_limit())
        try:
            self._renew_with(nodes)
        finally:
            nodes.close()

    def _renew_with(self, client):
        ttl = self._request.ttl
        wait = ttl / 3
        while not self._stop.wait(wait):
            sent, wait = monotonic(), ttl / 3
            try:
                self._request.renewed(client.execute_command(*self._request.renew()), self.token)
            except LostError as err:
                self._lose(err)
                return
            except redis.RedisError:
                wait = min(max(ttl / 30, RETRY_MIN), RETRY_MAX)  # _expire sets lost at the end of the lease
                continue
            self._until = self._request.until(sent)

    def _expire(self):
        """Set the event lost at the end of the lease, even while a renewal waits for a reply."""
        while not self._stop.wait(self.left()):
            if self.left() == 0:
                self._lose(UnprovedError(f"lock {self.key!r}: the cluster has not confirmed a renewal in time"))
                return
