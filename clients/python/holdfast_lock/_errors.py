"""The errors of the package, and which errors of redis-py are worth another try."""

from redis import exceptions as redis_errors


class LockError(Exception):
    """The base of the errors of this package."""


class TakenError(LockError):
    """Another owner holds the lock, and the time to wait for it is over."""


class LostError(LockError):
    """The cluster has ended the lease: it expired, or was broken or overwritten."""


class UnprovedError(LockError):
    """The cluster did not confirm a renewal in time, so the lease may have ended."""


class NoLockCommandError(LockError):
    """The server has no LOCK command, so it is not Holdfast."""


_TRANSIENT_CODES = {
    "UNKNOWN", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "READONLY", "MASTERDOWN", "BUSY", "MOVED", "ASK",
}
# redis-py removes the code from some errors and makes it a class instead.
_TRANSIENT_CLASSES = {
    "BusyLoadingError", "ReadOnlyError", "ClusterDownError", "TryAgainError", "MovedError", "AskError",
    "MasterDownError",
}


def transient(err):
    """Report whether the same command may succeed later.

    The connection was lost, or the cluster has no leader for the moment. To repeat
    a command is harmless, because the cluster knows the owner.
    """
    if isinstance(err, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    if isinstance(err, (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)):
        return True
    code = str(err).split(" ", 1)[0]
    return type(err).__name__ in _TRANSIENT_CLASSES or code in _TRANSIENT_CODES


def unknown_command(err):
    """Report whether a server does not know the command."""
    return isinstance(err, redis_errors.ResponseError) and "unknown command" in str(err).lower()
