"""Files and directories that only their owner may read: keys, kits, backups."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedkoopman.durable import sync_directory, writing

__all__ = ["new_file", "private_directory", "write_private"]


def private_directory(path: Path) -> Path:
    """Make a directory, with what is above it, and keep it to its owner."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Write a file whole or not at all; nobody else could read it at any time."""
    with new_file(path) as file:
        file.write(content)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to be written that takes its place, durably, when all of it is there.

    Arguments:
        path: its place; what stands there is replaced at the end.
    """
    partial = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}.partial")
    with writing(path):
        try:
            number = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)
