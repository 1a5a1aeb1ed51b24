"""Files that are whole or absent and outlast a power cut; directories with one user at a time."""

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedkoopman.errors import InputError, system_error
from fedkoopman.paths import check_name

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "check_output",
    "held",
    "locked",
    "new_file",
    "private_directory",
    "sync_directory",
    "write_private",
    "write_whole",
    "writing",
    "written_whole",
]

REMEDY = "check that its directory exists, may be written and has room"


def write_whole(path: Path, content: bytes, remedy: str = REMEDY) -> None:
    """Write a file so that, whatever happens, it is either the old one or the new one.

    Arguments:
        remedy: what the message of a failed write advises.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with writing(path, remedy):
        _check_replaceable(path)
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_directory(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def _check_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a device or a socket, which root could do."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is no file but a device or the like: give another name")


@contextmanager
def writing(path: Path, remedy: str = REMEDY) -> Iterator[None]:
    """Tell a failed write in one line, as the fault of the user or of the machine."""
    check_name(path)
    try:
        yield
    except OSError as error:
        raise system_error(f"cannot write {path}", error, remedy) from error


def sync_directory(path: Path) -> None:
    """Make a renaming last; where directories cannot be opened (Windows), nothing is needed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


@contextmanager
def held(lock: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of what a lock file stands for.

    The system lets go of it when this process ends, however it does.

    Arguments:
        lock: the file; made if it is missing.
        refusal: what is said where another process holds it.
    """
    with writing(lock.parent):
        file = lock.open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(refusal) from None
        yield


def locked(path: Path) -> int:
    """A lock that the system lets go of when this process ends, however it does."""
    assert fcntl is not None  # there are no agents on Windows
    with writing(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        other = os.read(lock, 20).decode(errors="replace").strip()
        os.close(lock)
        raise InputError(
            f"{path.parent} is in use by another agent (process {other or 'unknown'}): stop that "
            "one first, or name another directory by --state"
        ) from error
    try:
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    except OSError:
        pass  # on a full disk the lock holds all the same
    return lock


def check_output(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse an output path that could not be written, before anything is computed.

    Arguments:
        path: where the output is to go.
        suffixes: the endings that name a format we write, such as ".csv".
    """
    check_name(path)
    if path.suffix.lower() not in suffixes:
        raise InputError(
            f"{path} ends in {path.suffix or 'no suffix'!r}, which names no format we write: "
            f"use one of {', '.join(suffixes)}"
        )
    folder = path.parent
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory: give the name of a file in it")
        _check_replaceable(path)
        found = folder.is_dir()
    except OSError as error:  # a name may be too long even to look for
        raise system_error(f"cannot write {path}", error) from error
    if not found:
        raise InputError(f"cannot write {path}: there is no directory {folder}, create it first")
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot write {path}: no permission to write in {folder}")


@contextmanager
def written_whole(*targets: Path) -> Iterator[list[Path]]:
    """Give temporary paths beside the targets; move them all into place on success only.

    The temporary files share the targets' directories, so that each move is one atomic rename, and
    their suffixes, so that writers which go by the suffix choose the same format. On any error or
    interruption they are removed and the targets stay as they were.
    """
    partial = [path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}") for path in targets]
    try:
        try:
            yield partial
            for source, target in zip(partial, targets, strict=True):
                os.replace(source, target)
        except OSError as error:
            names = " and ".join(map(str, targets))
            raise system_error(f"cannot write {names}", error) from error
    finally:
        for path in partial:
            path.unlink(missing_ok=True)


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
        _check_replaceable(path)
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
