"""The code that the locks for threads and for asyncio share. It performs no I/O."""

import secrets
import time

from ._errors import LostError

MIN_TTL = 0.1  # seconds; a renewal takes a round trip and a commit, so it could come too late for a shorter ttl
LONGEST_WAIT = 24 * 3600  # seconds; the value of WAIT in LOCK ACQUIRE if the wait has no limit
RETRY_MIN, RETRY_MAX = 0.01, 1.0  # seconds; bounds of the pause between two tries
PROBE_EVERY, PROBE_LIMIT = 2.0, 5.0  # seconds: the interval between two probes, and the time limit of a probe
MAX_LIMIT = 10_000  # maximum value of the parameter limit
REPLY_MARGIN = 5.0  # seconds after the end of a wait within which the reply may still arrive
# The fraction of the ttl that an owner does not rely on, because the clocks of the
# client and of the leader may run at different speeds.
DRIFT = 0.01


class Request:
    """The parameters of a lock."""

    def __init__(self, key, ttl, wait, owner, meta, shared, limit):
        if not key:
            raise ValueError("the key of the lock is empty")
        if ttl < MIN_TTL:
            raise ValueError(f"ttl is {ttl} s, must be at least {MIN_TTL} s")
        if wait is not None and wait < 0:
            raise ValueError(f"wait is {wait} s, must not be negative")
        if owner == "":
            raise ValueError("the owner is empty")
        if limit is not None and not 1 <= limit <= MAX_LIMIT:
            raise ValueError(f"limit is {limit}, must be from 1 to {MAX_LIMIT}")
        if shared and limit is not None:
            raise ValueError("shared and limit exclude each other")
        self.shared, self.limit = shared, limit
        self.key, self.ttl, self.wait, self.meta = key, ttl, wait, meta
        self.owner = owner if owner is not None else secrets.token_hex(16)

    def acquire(self, wait):
        """Return the command LOCK ACQUIRE. wait is in seconds; 0 means no wait."""
        args = ["LOCK", "ACQUIRE", self.key, self.owner, "PX", _ms(self.ttl)]
        if wait > 0:
            args += ["WAIT", max(_ms(wait), 1)]
        if self.meta:
            args += ["META", self.meta]
        if self.shared:
            args.append("SHARED")
        if self.limit is not None:
            args += ["LIMIT", self.limit]
        return args

    def renew(self):
        return ["LOCK", "RENEW", self.key, self.owner, "PX", _ms(self.ttl)]

    def node_limit(self):
        """Return how long a renewal waits for a node before it asks the next one."""
        return max(self.ttl / 6, MIN_TTL)

    def release(self, token=None):
        return ["LOCK", "RELEASE", self.key, self.owner] + ([] if token is None else [token])

    def until(self, sent):
        """Return the earliest time at which the lease can end. The argument sent is the time
        at which the command that granted or renewed the lease was sent. Both times are
        those of time.monotonic."""
        return sent + self.ttl * (1 - DRIFT)

    def renewed(self, reply, token):
        """Raise LostError if the reply to RENEW is not the token of the grant."""
        if reply is None:
            raise LostError(f"lock {self.key!r}: the owner does not hold it")
        if int(reply) != token:
            raise LostError(f"lock {self.key!r}: the grant has token {int(reply)}, not {token}")


class Lease:
    """The common base class of Held and AsyncHeld."""

    def __init__(self, client, request, token, until):
        self.token = token
        """The fencing token. It is higher than the tokens of all earlier grants."""
        self._client, self._request, self._until = client, request, until
        self._cause = None  # why the event lost of Held or AsyncHeld was set, or None

    @property
    def key(self):
        return self._request.key

    @property
    def owner(self):
        """The owner of the lock: the value of the key, unless the lock is shared or has a limit."""
        return self._request.owner

    def left(self):
        """Return for how many more seconds the lease certainly lasts."""
        return max(self._until - monotonic(), 0)

    def check(self):
        """Raise LostError or UnprovedError if the event lost is set."""
        if self._cause is not None:
            raise self._cause


class Pause:
    """The growing pauses between tries."""

    def __init__(self):
        self._next = RETRY_MIN

    def next(self):
        now, self._next = self._next, min(2 * self._next, RETRY_MAX)
        return now


def monotonic():
    return time.monotonic()


def split(address):
    """Split "host:port" or "[host]:port"."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"{address!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def _ms(seconds):
    return int(seconds * 1000)
