"""The errors of the package, and the errors of redis-py after which the package tries again."""

from redis import exceptions as redis_errors


class LockError(Exception):
    """The base class of the errors of this package."""


class TakenError(LockError):
    """The cluster did not grant the lock before the end of the wait."""


class LostError(LockError):
    """The cluster has ended the grant: the lease expired, or the lock was broken, overwritten or deleted."""


class UnprovedError(LockError):
    """The cluster did not confirm a renewal in time, so the lease may have ended."""


class NoLockCommandError(LockError):
    """The server has no LOCK command, so it is not Holdfast."""


_TRANSIENT_CODES = {
    "UNKNOWN", "CLUSTERDOWN", "LOADING", "TRYAGAIN", "READONLY", "MASTERDOWN", "BUSY", "MOVED", "ASK",
}
# For some error codes, redis-py raises a special class and removes the code from the text.
_TRANSIENT_CLASSES = {
    "BusyLoadingError", "ReadOnlyError", "ClusterDownError", "TryAgainError", "MovedError", "AskError",
    "MasterDownError",
}


def transient(err):
    """Report whether the same command may succeed later.

    For example, the connection was lost, or the cluster currently has no leader.
    Repeating a LOCK command is safe, because the cluster recognizes the owner.
    """
    if isinstance(err, (redis_errors.AuthenticationError, redis_errors.AuthorizationError)):
        return False
    if isinstance(err, (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)):
        return True
    code = str(err).split(" ", 1)[0]
    return type(err).__name__ in _TRANSIENT_CLASSES or code in _TRANSIENT_CODES


def unknown_command(err):
    """Report whether the error says that the server does not know the command."""
    return isinstance(err, redis_errors.ResponseError) and "unknown command" in str(err).lower()
