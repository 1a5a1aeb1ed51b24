"""Backups put back: all is checked before anything is in its place, and nothing is replaced."""

import hashlib
import json
import os
import secrets
import shutil
import tarfile
from pathlib import Path
from typing import Any

from fedkoopman.deploy.backup import FORMAT, HEAD, LIST, Saved
from fedkoopman.durable import private_directory, sync_directory, writing
from fedkoopman.errors import InputError, short, system_error

__all__ = ["restore"]

PIECE = 2**20
LONGEST_LIST = 2**28


def restore(file: Path, to: Path) -> Saved:
    """Put a backup's directories back, each under its own name.

    Arguments:
        file: of the backup.
        to: the directory that they go into; made if it is missing.
    """
    damaged = InputError(f"{file} is damaged, or no backup: take another one; nothing was restored")
    try:
        if not file.is_file():
            problem = "is a directory" if file.is_dir() else "does not exist"
            raise InputError(f"the backup {file} {problem}: check the path")
        with file.open("rb") as opened, tarfile.open(fileobj=opened, mode="r:") as archive:
            try:
                head = _head(archive, file)
                return _restored(archive, head, to, damaged)
            except (tarfile.TarError, EOFError, KeyError, TypeError, AttributeError) as error:
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
        found, size = _unpacked(archive, fresh, damaged)
        about = json.loads((fresh / LIST).read_bytes()) if LIST in found else {}
        files: dict[str, list[Any]] = about.get("files", {})
        if {name: entry[0] for name, entry in files.items()} != {
            name: mark for name, mark in found.items() if name != LIST
        }:
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
    none = InputError(f"{file} is no backup: give a file that `fedkoopman backup` made")
    if first is None or first.name != HEAD or not first.isreg() or first.size > PIECE:
        raise none
    content = archive.extractfile(first)
    try:
        head = json.loads(content.read() if content else b"")
        its_format = head["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise none from error
    if its_format != FORMAT:
        raise InputError(
            f"{file} was made in format {short(its_format)}, this is format {FORMAT}: use the "
            "version of fedkoopman that made it"
        )
    if not isinstance(head.get("parts"), dict) or not head["parts"]:
        raise none
    return dict(head)


def _unpacked(
    archive: tarfile.TarFile, into: Path, damaged: InputError
) -> tuple[dict[str, str], int]:
    """Write all entries after the first below a directory; their hashes by name, and their size."""
    found: dict[str, str] = {}
    size = 0
    while (entry := archive.next()) is not None:
        # Nothing but plain files was put in. A sparse one could be larger than the archive.
        if not entry.isreg() or entry.issparse() or entry.name in found or LIST in found:
            raise damaged
        path = into / _place(entry.name, damaged)
        content = archive.extractfile(entry)
        assert content is not None
        mark = hashlib.sha256()
        with writing(path):
            private_directory(path.parent)
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "wb") as file:
                while piece := content.read(PIECE):
                    mark.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        if path.stat().st_size != entry.size or (entry.name == LIST and entry.size > LONGEST_LIST):
            raise damaged
        found[entry.name] = mark.hexdigest()
        size += entry.size
    return found, size


def _place(name: str, damaged: InputError) -> Path:
    """A path below a directory; one that leads out of it is refused."""
    path = Path(name)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        raise damaged
    return path
