"""Files that are whole or absent, and that outlast a power cut."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError

__all__ = ["write_whole", "writing"]

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
            _sync_directory(path.parent)
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


def _sync_directory(path: Path) -> None:
    """Make a renaming last; where directories cannot be opened (Windows), nothing is needed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
