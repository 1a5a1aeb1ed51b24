"""Records of a run, as scalars, to a tracking service, while the run goes on.

A tracker is a file beside this one with a function `tracker(directory, seed, study)`. Records are
read from the run's own files, by a process beside the run: the run is not slowed, and nothing that
a service does can end it. After a resumption a tracker says what it has already.
"""

import importlib
import json
import math
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedkoopman.config.loader import parse_toml
from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.reports.records import CLIENTS, AppendedRecords

Rows = Sequence[tuple[int, Mapping[str, float]]]
"""Slots, and the scalars of each."""


class Tracker(Protocol):
    """Where the scalars of one seed go."""

    logged: int
    """The last slot that is there already."""

    def log(self, rows: Rows) -> None:
        """Take scalars of slots after `logged`, and remember that they are there."""

    def close(self, finished: bool) -> None:
        """Let go of it, at the end of the run or of a part of it."""


class _Kind(NamedTuple):
    module: str
    package: str


TRACKERS = {
    "tensorboard": _Kind("fedkoopman.reports.track_tensorboard", "tensorboardX"),
    "mlflow": _Kind("fedkoopman.reports.track_mlflow", "mlflow"),
}
LOOK = 1.0
"""Seconds between looks at the records."""


def check_tracker(name: str) -> None:
    """Refuse a tracker that is unknown, or whose package is missing."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    if find_spec(TRACKERS[name].package) is None:
        raise InputError(
            f"--track {name} needs the package {TRACKERS[name].package}, which is not installed: "
            f"pip install 'fedkoopman[{name}]'"
        )


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """What is a number in a record, and how many clients each of its lists names."""
    found = {
        name: float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "slot"
    }
    found |= {name: float(len(record[name])) for name in CLIENTS if record.get(name) is not None}
    return {name: value for name, value in found.items() if math.isfinite(value)}


class Following:
    """All seeds of a run directory, each with its tracker once it has records."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._make = importlib.import_module(TRACKERS[kind].module).tracker
        self._directory = directory
        self._files: dict[Path, AppendedRecords] = {}
        self._trackers: dict[Path, Tracker] = {}

    def look(self) -> None:
        """Log what is new."""
        nested = sorted(self._directory.glob("seed-*"))
        for folder in nested or [self._directory]:
            file = self._files.setdefault(folder, AppendedRecords(folder / "records.jsonl"))
            _, records = file.read()
            if not records:
                continue
            if folder not in self._trackers:
                self._trackers[folder] = self._opened(folder)
            tracker = self._trackers[folder]
            rows = [(r["slot"], scalars(r)) for r in records if r["slot"] > tracker.logged]
            if rows:
                tracker.log(rows)

    def close(self) -> None:
        """Log what came last, and let go."""
        self.look()
        finished = (self._directory / "summary.json").is_file()
        for tracker in self._trackers.values():
            tracker.close(finished)

    def _opened(self, folder: Path) -> Tracker:
        study = parse_toml((folder / "study.toml").read_text(encoding="utf-8"))
        found: Tracker = self._make(self._directory / "tracking", int(study["seed"]), study)
        return found


class Memory:
    """What a tracker must not forget of a seed: a small file in the run's directory."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, str(seed)

    def read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return dict(found.get(self._seed, {}))

    def write(self, **values: Any) -> None:
        try:
            every = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            every = {}
        every[self._seed] = values
        write_whole(self._path, (json.dumps(every, indent=1) + "\n").encode())


def flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A study's values by dotted key."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= (
            flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {above + name: value}
        )
    return found


def main(arguments: Sequence[str]) -> None:
    """Follow a run until standard input ends, which it does with the run.

    Arguments:
        arguments: the tracker's name, and the run's directory.
    """
    os.nice(10)
    following = Following(arguments[0], Path(arguments[1]))
    over = threading.Event()

    def listen() -> None:
        while sys.stdin.buffer.read(1):
            pass
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    while not over.wait(LOOK):
        following.look()
    following.close()


if __name__ == "__main__":
    main(sys.argv[1:])
