"""Locks in a Holdfast cluster, over redis-py.

    import redis
    from holdfast_lock import Lock, Nodes

    nodes = Nodes.from_addresses(["10.0.0.1:6379", "10.0.0.2:6379"])
    with Lock(nodes, "backup", ttl=30) as held:
        work(held.token)

Lock and Nodes are for threads. AsyncLock and AsyncNodes are for asyncio.

A lock is a lease: the owner holds it for ttl seconds. The package renews the lease
after each third of that time, until the block ends. held.lost is set when the lock
is lost, or when the lease may have ended because no renewal was confirmed in time.
The owner must then stop. If a former owner must never change a resource, the
resource itself must check the token: see docs/locks.md.
"""

from ._aio import AsyncHeld, AsyncLock, AsyncNodes
from ._errors import LockError, LostError, NoLockCommandError, TakenError, UnprovedError
from ._sync import Held, Lock, Nodes

__all__ = [
    "AsyncHeld",
    "AsyncLock",
    "AsyncNodes",
    "Held",
    "Lock",
    "LockError",
    "LostError",
    "NoLockCommandError",
    "Nodes",
    "TakenError",
    "UnprovedError",
]
