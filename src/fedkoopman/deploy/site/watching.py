"""Which files of a site are complete: those that have stopped changing.

Waiting is measured with a monotonic clock, and a file's modification time is compared only with its
own earlier value. So it does not matter if the machine's clock jumps.
"""

import glob
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.site.catalogue import Stamp
from fedkoopman.errors import system_error
from fedkoopman.paths import shown

UNFINISHED = (".part", ".partial", ".tmp", ".temp", ".crdownload", ".swp", "~")
"""Endings of files that are still being written."""


class Settling:
    """Remembers since when files have not changed."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Arguments:

        seconds: for how long a file must not have changed.
        clock: a monotonic clock.
        """
        self._seconds, self._clock = seconds, clock
        self._seen: dict[Path, tuple[Stamp, float]] = {}

    def settled(self, files: Iterable[Path]) -> dict[Path, Stamp]:
        """The files that have not changed for long enough, in their order."""
        now, seen, found = self._clock(), dict[Path, tuple[Stamp, float]](), dict[Path, Stamp]()
        for path in files:
            stamp = stamp_of(path)
            if stamp is None:
                continue
            before, since = self._seen.get(path, (stamp, now))
            seen[path] = stamp, since if before == stamp else now
            if now - seen[path][1] >= self._seconds:
                found[path] = stamp
        self._seen = seen
        return found

    @property
    def unsettled(self) -> int:
        """How many files may still be changing."""
        now = self._clock()
        return sum(now - since < self._seconds for _, since in self._seen.values())


def candidates(site: SiteFile) -> list[Path]:
    """The files that match a site's patterns and are not being written, in the order of `files`."""
    found: dict[str, Path] = {}
    for pattern in site.data.files:
        for name in sorted(glob.glob(pattern, root_dir=site.folder, recursive=True)):
            path = site.folder / name
            if not _temporary(path.name) and path.is_file():
                found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def stamp_of(path: Path) -> Stamp | None:
    """Size and modification time; None if there is no such file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return Stamp(about.st_size, about.st_mtime_ns)


def content_digest(path: Path) -> str:
    """The sha256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise system_error(f"cannot read {shown(path)}", error) from error


def file_key(site: SiteFile, path: Path) -> str:
    """A file's name in the store: relative to the site's folder, if it is below."""
    try:
        name = path.relative_to(site.folder).as_posix()
    except ValueError:
        name = str(path)
    return name.encode("utf-8", "backslashreplace").decode()


def _temporary(name: str) -> bool:
    return name.startswith((".", "~", "#")) or name.lower().endswith(UNFINISHED)
