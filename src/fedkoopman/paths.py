"""Paths: how messages show them, whether they can be read, and texts as names of directories."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError

__all__ = ["folder_name", "naming", "readable_file", "shown"]

_UNSAFE = re.compile(r"[^\w.,=+\[\]-]+")
_LONGEST = 100


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
