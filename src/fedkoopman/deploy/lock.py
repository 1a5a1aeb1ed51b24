"""A directory that one process uses at a time."""

import os
from pathlib import Path

from fedkoopman.errors import InputError

__all__ = ["locked"]


def locked(path: Path) -> int:
    """A lock that the system lets go of when this process ends, however it does."""
    import fcntl  # not on Windows, where there are no agents

    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        other = os.read(lock, 20).decode(errors="replace").strip()
        os.close(lock)
        raise InputError(
            f"{path.parent} is in use by another agent (process {other or 'unknown'}): stop that "
            "one first, or name another directory by --state"
        ) from error
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    except OSError:
        pass  # on a full disk the lock holds all the same
    return lock
