"""The story of run directories while runs go on: told anew when their files have changed."""

import os
import shlex
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fedkoopman.errors import InputError, cause_of
from fedkoopman.reports.blocks import Block, Story, code, section, text
from fedkoopman.reports.document import document, story_json
from fedkoopman.reports.records import RecordsFile
from fedkoopman.reports.run_files import NothingYet, RunFiles, read_run
from fedkoopman.reports.story import story_of

SHOWN = (".toml", ".json", ".jsonl")
"""Endings of the files that a story is made of."""
PAUSE, LONGEST_PAUSE = 0.3, 1.0
"""Seconds between looks at the files: as many as the last telling took, within these bounds."""


class Told(NamedTuple):
    """A story, and what tells it from the one before."""

    story: Story
    content: bytes
    """As JSON."""
    tag: str


class LiveStory:
    """The story of some directories; of those without a finished slot it says that it waits."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._records: dict[Path, RecordsFile] = {}
        self._lock = threading.Lock()
        self._seen: object = None
        self._next = 0.0
        self._told = _told(_waiting(self._directories, {}))

    def now(self) -> Told:
        """The story of the moment."""
        with self._lock:
            if time.monotonic() < self._next:
                return self._told
            began, seen = time.monotonic(), [*map(_stamps, self._directories)]
            if seen != self._seen:
                self._told, self._seen = _told(self._tell()), seen
            end = time.monotonic()
            self._next = end + min(max(PAUSE, end - began), LONGEST_PAUSE)
            return self._told

    def page(self, address: str) -> bytes:
        """The page, which goes on asking an address for newer stories."""
        return b"".join(document(self.now().story, live=address))

    def _tell(self) -> Story:
        runs: dict[Path, RunFiles] = {}
        troubles: dict[Path, InputError] = {}
        for directory in self._directories:
            try:
                runs[directory] = read_run(directory, self._records)
            except InputError as error:
                troubles[directory] = error
        if not runs:
            return _waiting(self._directories, troubles)
        try:
            found = story_of(list(runs.values()))
        except Exception as error:  # as of files that another version wrote: it may pass
            why = InputError(f"its files are not as expected ({cause_of(error)})")
            return _waiting(self._directories, troubles | dict.fromkeys(runs, why))
        if troubles:
            blocks = [block for one in troubles.items() for block in _awaited(*one)]
            found["finished"] = False
            found["sections"].insert(0, section("waiting", "Not shown yet", *blocks))
        return found


def _told(found: Story) -> Told:
    content = story_json(found)
    return Told(found, content, sha256(content).hexdigest()[:32])


def _waiting(directories: Sequence[Path], troubles: dict[Path, InputError]) -> Story:
    """What is told before any run has finished a slot."""
    blocks = [block for path in directories for block in _awaited(path, troubles.get(path))]
    return {
        "title": "Waiting for a run",
        "lede": "This page comes alive with the first finished slot. There is nothing to reload.",
        "finished": False,
        "sections": [section("waiting", "What is awaited", *blocks)],
    }


def _awaited(directory: Path, error: InputError | None) -> list[Block]:
    if directory.is_dir() or (error is not None and not isinstance(error, NothingYet)):
        return [text(_trouble(directory, error), "notice")]
    command = shlex.join(["fedkoopman", "run", "study.toml", "--out", str(directory)])
    return [text(_trouble(directory, error)), code(command)]


def _trouble(directory: Path, error: InputError | None) -> str:
    if error is not None and not isinstance(error, NothingYet):
        return f"{directory} cannot be shown: {error}"
    if not directory.is_dir():
        return f"{directory} does not exist yet; a run makes it:"
    return f"{directory} has no finished slot yet."


def _stamps(directory: Path) -> list[tuple[str, int, int]]:
    """What changes when a file of a run does."""
    found = []
    for folder in (directory, *sorted(directory.glob("seed-*"))):
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(SHOWN):
                    about = entry.stat()
                    found.append((entry.path, about.st_mtime_ns, about.st_size))
    return sorted(found)
