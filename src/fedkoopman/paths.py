"""Paths: how messages show them, whether they can be read, and texts as names of directories."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError, short, system_error

__all__ = ["check_name", "folder_name", "naming", "readable_file", "shown"]

_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+")
_LONGEST = 100


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


def folder_name(text: str) -> str:
    """A text as the name of one directory, on any file system.

    What a name may not hold becomes a dash; a long text is cut, and ends in a part of its hash so
    that another long text has another name.

    Arguments:
        text: as a study's name, or "training.epochs=5,policy.segments=3".
    """
    name = _UNSAFE.sub("-", text).strip("-.") or "unnamed"
    if len(name) <= _LONGEST:
        return name
    mark = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{name[:_LONGEST].rstrip('-.,')}-{mark}"
