"""Paths as messages show them, and whether they can be read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError, short, system_error

__all__ = ["check_name", "naming", "readable_file", "shown"]


def shown(path: Path) -> str:
    """A path as messages show it: from the working directory, if it lies below."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except (ValueError, OSError):  # OSError: the working directory is gone
        return str(path)


def check_name(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can have: the system knows no name with a zero byte in it."""
    if "\0" in os.fspath(path):
        raise InputError(
            f"{short(os.fspath(path))} is no path, as it contains a zero byte (\\0): give the name "
            "of a file or directory"
        )


def readable_file(path: Path) -> bool:
    """Whether there is such a file; where that cannot be told, an error says why."""
    check_name(path)
    try:
        return path.is_file()
    except OSError as error:
        raise system_error(f"cannot read {shown(path)}", error) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors begin with a file, if they do not name it themselves."""
    try:
        yield
    except InputError as error:
        if str(path) in str(error) or shown(path) in str(error):
            raise
        raise InputError(f"{shown(path)}: {error}") from error
