"""Files that are whole or absent and outlast a power cut; directories with one user at a time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["held", "sync_directory", "write_whole", "writing"]

REMEDY = "check that its directory exists, may be written and has room"


def write_whole(path: Path, content: bytes, remedy: str = REMEDY) -> None:
    """Write a file so that, whatever happens, it is either the old one or the new one.

    Arguments:
        remedy: what the message of a failed write advises.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with writing(path, remedy):
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextmanager
def writing(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Tell a failed write in one line."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or error
        raise InputError(f"cannot write {path}: {cause}; {remedy}") from error


def sync_directory(path: Path) -> None:
    """Make a renaming last; where directories cannot be opened (Windows), nothing is needed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def held(lock: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of what a lock file stands for.

    The system lets go of it when this process ends, however it does.

    Arguments:
        lock: the file; made if it is missing.
        refusal: what is said where another process holds it.
    """
    with writing(lock.parent):
        file = lock.open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(refusal) from None
        yield
