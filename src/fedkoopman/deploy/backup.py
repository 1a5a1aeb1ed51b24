"""Backups of a run, a fleet or a site's state, taken while they are in use, and put back.

A backup is one uncompressed tar file. Only its owner may read it, as it holds private keys. Its
last entry has a hash of every other one, so that a damaged file is noticed.

What is in use is saved consistently: a database by SQLite's own backup, a checkpoint before the
records that it counts; every other file is replaced whole whenever it changes. Logs, locks and
what a start makes anew are left out. `restore` checks everything before it puts anything in its
place, and replaces nothing.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
import sqlite3
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from fedkoopman.durable import new_file, private_directory, sync_directory, writing
from fedkoopman.errors import ComputationError, InputError, short, system_error
from fedkoopman.version import __version__

FORMAT = 1
HEAD, LIST = "fedkoopman-backup.json", "fedkoopman-backup-files.json"
"""Names of the first entry, which says what was saved, and of the last one, which lists all."""
KINDS = {
    "roster.json": "a fleet",
    "run.json": "a run",
    "store.sqlite": "a site's state",
}
"""What a directory is, by a file in it."""
SKIPPED_DIRECTORIES = ("logs", "proxy", "compiled", "__pycache__")
SKIPPED_ENDINGS = (".lock", "-wal", "-shm", "-journal")
"""Hidden files are skipped too, as they are being written. The files beside a database are part of
its copy."""
MARK = ".lock"
"""Saved though it is a lock: it marks a run directory as one of fedkoopman's."""
SQLITE = b"SQLite format 3\0"
PIECE = 2**20
LONGEST_LIST = 2**28


@dataclass(frozen=True)
class Saved:
    """What a backup holds.

    Attributes:
        parts: what each directory is, by the name that it is restored under.
        made: when, as ISO 8601 in UTC.
        files: how many.
        size: their bytes.
    """

    parts: dict[str, str]
    made: str
    files: int
    size: int


def backup(what: Sequence[Path], to: Path) -> Saved:
    """Save directories in one file.

    Arguments:
        what: a server's run and fleet, a site's state: one or several.
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
    """A directory and all in it that is to be saved; checkpoints first, as they count records."""
    yield place
    entries = sorted(place.iterdir(), key=lambda path: (path.name != "checkpoint", path.name))
    for path in entries:
        skipped = path.name.startswith(".") or path.name.endswith(SKIPPED_ENDINGS)
        if path.is_symlink() or (skipped and path.name != MARK):
            continue
        if path.is_dir() and path.name not in SKIPPED_DIRECTORIES:
            yield from _in_order(path)
        elif path.is_file():
            yield path


@contextmanager
def _content(path: Path, beside: Path) -> Iterator[IO[bytes]]:
    """An open file whose content no longer changes.

    Arguments:
        beside: a directory with room for the copy of a database.
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
    """Copy a database as it is at one instant, while others may write to it."""
    cause: sqlite3.Error | None = None
    # After a writer was killed, SQLite must repair the file before it can be read: that is writing.
    for mode in ("ro", "rw"):
        try:
            address = f"{path.as_uri()}?mode={mode}"
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
    """A file that is read and hashed at the same time."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.sum = file, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self.file.read(size)
        self.sum.update(data)
        return data


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> str:
    """Add a file with its present length, and return its hash; later growth is left out."""
    info = tarfile.TarInfo(name)
    content.seek(0, os.SEEK_END)
    info.size, info.mode = content.tell(), 0o600
    content.seek(0)
    hashed = _Hashed(content)
    archive.addfile(info, hashed)
    return hashed.sum.hexdigest()


def restore(file: Path, to: Path) -> Saved:
    """Put a backup's directories back, each under its own name.

    Arguments:
        to: the directory that they go into; made if it is missing.
    """
    damaged = InputError(f"{file} is damaged, or no backup: take another one; nothing was restored")
    try:
        if not file.is_file():
            problem = "is a directory" if file.is_dir() else "does not exist"
            raise InputError(f"the backup {file} {problem}: check the path")
        with file.open("rb") as opened, tarfile.open(fileobj=opened, mode="r:") as archive:
            try:
                return _restored(archive, _head(archive, file), to, damaged)
            except (KeyError, TypeError, AttributeError) as error:
                raise damaged from error
    except (tarfile.TarError, EOFError) as error:
        raise damaged from error
    except OSError as error:
        raise system_error(f"cannot read {file}", error) from error


def _restored(
    archive: tarfile.TarFile, head: dict[str, Any], to: Path, damaged: InputError
) -> Saved:
    parts: dict[str, str] = head["parts"]
    for part in parts:
        if _place(part, damaged).parts != (part,):
            raise damaged
        if (to / part).exists() or (to / part).is_symlink():
            raise InputError(
                f"{to / part} exists, and nothing is overwritten: move it away first, or give "
                "another --to"
            )
    private = not to.exists()
    with writing(to):
        to.mkdir(parents=True, exist_ok=True)
    if private:
        private_directory(to)
    fresh = private_directory(to / f".restore-{secrets.token_hex(8)}")
    try:
        found, size = _unpack(archive, fresh, damaged)
        about = json.loads((fresh / LIST).read_bytes()) if LIST in found else {}
        files: dict[str, list[Any]] = about.get("files", {})
        found.pop(LIST, None)
        if {name: entry[0] for name, entry in files.items()} != found:
            raise damaged
        with writing(to):
            for name, entry in files.items():
                (fresh / name).chmod(entry[1] & 0o777)
            for name, mode in about["folders"].items():
                folder = fresh / _place(name, damaged)
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode & 0o777)
            for part in parts:
                os.rename(fresh / part, to / part)
            sync_directory(to)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise damaged from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Saved(parts, str(head["made"]), len(files), size)


def _head(archive: tarfile.TarFile, file: Path) -> dict[str, Any]:
    first = archive.next()
    foreign = InputError(f"{file} is no backup: give a file that `fedkoopman backup` made")
    if first is None or first.name != HEAD or not first.isreg() or first.size > PIECE:
        raise foreign
    content = archive.extractfile(first)
    try:
        head = json.loads(content.read() if content else b"")
        its_format = head["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise foreign from error
    if its_format != FORMAT:
        raise InputError(
            f"{file} was made in format {short(its_format)}, this is format {FORMAT}: use the "
            "version of fedkoopman that made it"
        )
    if not isinstance(head.get("parts"), dict) or not head["parts"]:
        raise foreign
    return dict(head)


def _unpack(
    archive: tarfile.TarFile, into: Path, damaged: InputError
) -> tuple[dict[str, str], int]:
    """Write all entries after the first below a directory; their hashes by name, and their size."""
    found: dict[str, str] = {}
    size = 0
    while (entry := archive.next()) is not None:
        # A backup has plain files only. A sparse one could be larger than the archive.
        if not entry.isreg() or entry.issparse() or entry.name in found or LIST in found:
            raise damaged
        path = into / _place(entry.name, damaged)
        content = archive.extractfile(entry)
        assert content is not None
        hashed = _Hashed(content)
        with writing(path):
            private_directory(path.parent)
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "wb") as file:
                shutil.copyfileobj(hashed, file, PIECE)
                file.flush()
                os.fsync(file.fileno())
        if path.stat().st_size != entry.size or (entry.name == LIST and entry.size > LONGEST_LIST):
            raise damaged
        found[entry.name] = hashed.sum.hexdigest()
        size += entry.size
    return found, size


def _place(name: str, damaged: InputError) -> Path:
    """A path below a directory; one that leads out of it is refused."""
    path = Path(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise damaged
    return path
