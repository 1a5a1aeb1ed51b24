"""Paths as messages show them, and whether they can be read."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError

__all__ = ["naming", "readable_file", "shown"]


def shown(path: Path) -> str:
    """A path as messages show it: from the working directory, if it lies below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def readable_file(path: Path) -> bool:
    """Whether there is such a file; where that cannot be told, an error says why."""
    try:
        return path.is_file()
    except OSError as error:
        raise InputError(f"cannot read {shown(path)}: {error.strerror or error}") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors begin with a file, if they do not name it themselves."""
    try:
        yield
    except InputError as error:
        if str(path) in str(error) or shown(path) in str(error):
            raise
        raise InputError(f"{shown(path)}: {error}") from error
