"""Backups of what must not be lost, taken while it is in use: a run, a fleet, a site's state.

A backup is one uncompressed tar file that only its owner may read, as it holds private keys. Its
last entry has a hash of every other one, so that a file that was cut off or changed is noticed.

What is in use stays consistent: a database is copied by SQLite's own backup, a checkpoint before
the records that it counts, and every other file is whole at any time. Logs, locks and what a start
makes anew are left out.
"""

import hashlib
import io
import json
import os
import sqlite3
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from fedkoopman.durable import new_file, writing
from fedkoopman.errors import ComputationError, InputError, system_error
from fedkoopman.version import __version__

__all__ = ["FORMAT", "HEAD", "LIST", "Saved", "backup"]

FORMAT = 1
HEAD, LIST = "fedkoopman-backup.json", "fedkoopman-backup-files.json"
"""The first entry says what it is, the last one what should be in it."""
KINDS = {
    "roster.json": "a fleet",
    "run.json": "a run",
    "store.sqlite": "a site's state",
}
"""By a file that each has."""
LEFT_OUT = ("logs", "proxy", "compiled", "__pycache__")
"""Directories."""
ENDS = (".lock", "-wal", "-shm", "-journal")
"""Of files; a database's copy has what stands in those beside it. So are hidden files left out, as
they are being written."""
MARK = ".lock"
"""Saved for its presence: by it a run's directory is known as one of ours."""
SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class Saved:
    """What a backup holds.

    Attributes:
        parts: what each directory is, by the name that it is restored under.
        made: when, as ISO 8601 in UTC.
        files: how many.
        size: bytes of them.
    """

    parts: dict[str, str]
    made: str
    files: int
    size: int


def backup(what: Sequence[Path], to: Path) -> Saved:
    """Save directories in one file.

    Arguments:
        what: a server's run and fleet, a site's state: one or several.
        to: the new file.
    """
    parts: dict[str, tuple[Path, str]] = {}
    for path in what:
        place = path.absolute()
        if place.name in parts:
            raise InputError(
                f"two directories are called {place.name}: save them in two backups, they would be "
                "restored under one name"
            )
        parts[place.name] = place, kind_of(place)
        if to.absolute().is_relative_to(place):
            raise InputError(f"{to} lies in {path}, which is to be saved: give another place")
    if to.exists():
        raise InputError(f"{to} exists: give the name of a new file, backups are never overwritten")
    made = datetime.now(UTC).isoformat(timespec="seconds")
    kinds = {name: kind for name, (_, kind) in parts.items()}
    head = {"format": FORMAT, "version": __version__, "made": made, "parts": kinds}
    files: dict[str, list[object]] = {}
    folders: dict[str, int] = {}
    with new_file(to) as file, tarfile.open(fileobj=file, mode="w:") as archive:
        _add(archive, HEAD, io.BytesIO(json.dumps(head).encode()))
        for name, (place, _) in parts.items():
            for path in _in_order(place):
                entry = f"{name}/{path.relative_to(place).as_posix()}".removesuffix("/.")
                mode = stat.S_IMODE(path.stat().st_mode)
                if path.is_dir():
                    folders[entry] = mode
                    continue
                with _content(path, to.absolute().parent) as opened:
                    files[entry] = [_add(archive, entry, opened), mode]
        about = json.dumps({"files": files, "folders": folders}).encode()
        _add(archive, LIST, io.BytesIO(about))
        size = file.tell()
    return Saved(kinds, made, len(files), size)


def kind_of(place: Path) -> str:
    """What a directory is, by what is in it."""
    if not place.is_dir():
        problem = "is a file" if place.exists() else "does not exist"
        raise InputError(f"{place} {problem}: give the directory of a run, a fleet or a site")
    for file, kind in KINDS.items():
        if (place / file).is_file():
            return kind
    raise InputError(
        f"{place} holds neither a run (run.json) nor a fleet (roster.json) nor a site's state "
        "(store.sqlite): check the path; a site's state is .fedkoopman/NAME beside its site.toml"
    )


def _in_order(place: Path) -> Iterator[Path]:
    """A directory and all in it that is to be saved; checkpoints first, which count records."""
    yield place
    entries = sorted(place.iterdir(), key=lambda path: (path.name != "checkpoint", path.name))
    for path in entries:
        left_out = path.name.startswith(".") or path.name.endswith(ENDS)
        if path.is_symlink() or (left_out and path.name != MARK):
            continue
        if path.is_dir() and path.name not in LEFT_OUT:
            yield from _in_order(path)
        elif path.is_file():
            yield path


@contextmanager
def _content(path: Path, beside: Path) -> Iterator[IO[bytes]]:
    """A file to be read that no longer changes.

    Arguments:
        path: of the file.
        beside: where there is room for the copy of a database.
    """
    try:
        file = path.open("rb")
        begins = file.read(len(SQLITE))
    except OSError as error:
        raise system_error(f"cannot read {path}", error) from error
    with file:
        if begins != SQLITE:
            yield file
            return
    with writing(beside), tempfile.TemporaryDirectory(prefix=".backup-", dir=beside) as folder:
        copy = Path(folder) / "copy"
        _copy_database(path, copy)
        with copy.open("rb") as copied:
            yield copied


def _copy_database(path: Path, copy: Path) -> None:
    """A database as it is at one instant, whoever writes meanwhile."""
    cause: sqlite3.Error | None = None
    # Where its last writer was killed, reading begins with clearing up, and so with writing.
    for way in ("ro", "rw"):
        try:
            address = f"{path.as_uri()}?mode={way}"
            with (
                closing(sqlite3.connect(address, uri=True, timeout=60)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")  # one file, with nothing beside it
                [verdict] = target.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise ComputationError(
                    f"{path} is damaged ({' '.join(verdict.split())}), so that nothing was saved: "
                    "restore it from an earlier backup"
                )
            return
        except sqlite3.Error as error:
            cause = error
            copy.unlink(missing_ok=True)
    raise ComputationError(
        f"cannot copy {path} ({cause}), so that nothing was saved: check that it is a whole "
        "database, and that there is room for a copy"
    ) from cause


class _Hashed:
    """Reads a file, and knows the hash of what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sum = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.sum.update(data)
        return data


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> str:
    """Add a file as long as it is now, and return its hash; what it grows by later is left out."""
    info = tarfile.TarInfo(name)
    content.seek(0, os.SEEK_END)
    info.size, info.mode = content.tell(), 0o600
    content.seek(0)
    hashed = _Hashed(content)
    archive.addfile(info, hashed)
    return hashed.sum.hexdigest()
