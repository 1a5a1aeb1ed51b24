"""What the disk does to a store, told in one line with the remedy."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedkoopman.errors import InputError, MachineError

__all__ = ["StoreError", "damaged", "told"]


class StoreError(MachineError):
    """The disk does not do what it should: what was stored is as it was."""


def damaged(path: Path, cause: str) -> InputError:
    """The error for a store that cannot be read any more."""
    return InputError(
        f"{path} is damaged ({' '.join(cause.split())[:100]}): restore the site's state from a "
        "backup, or move its directory away and join anew"
    )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Tell what the disk does to a store in one line."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            raise damaged(path, str(error)) from error
        raise StoreError(
            f"cannot use {path}: {error}: see that its disk has room and may be written; what was "
            "stored is as it was"
        ) from error
    except OSError as error:
        raise StoreError(
            f"cannot use {path}: {error.strerror or error}: see that its disk has room and may be "
            "written"
        ) from error
