"""A study's recordings: files of true states, read whole and checked before anything runs."""

from bisect import bisect_left
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.formats import FORMATS, Wanted, suffix_of
from fedkoopman.errors import InputError, short
from fedkoopman.federation.arrivals import Recordings
from fedkoopman.systems import System

if TYPE_CHECKING:
    from fedkoopman.config.study import Study

_BLOCK_BYTES = 1 << 20
"""Of a text file that are parsed at once."""


def recordings_of(study: "Study", system: System) -> Recordings | None:
    """The recordings that a study names; None where the truth is simulated."""
    given, steps = study.recordings, study.segments.steps
    if not given.train:
        return None
    found = {
        kind: [
            _states(study.root / file, f"recordings.{kind}[{i}]", system.names)
            for i, file in enumerate(getattr(given, kind))
        ]
        for kind in ("train", "test")
    }
    for i, (file, states) in enumerate(zip(given.train, found["train"], strict=True)):
        if len(states) < steps:
            raise InputError(
                f"recordings.train[{i}]: {file} has {len(states)} rows, fewer than segments.steps "
                f"= {steps}: give a longer recording, or at most {len(states)} steps"
            )
    recordings = Recordings(
        tuple(found["train"]), tuple(found["test"]), given.windows == "consecutive"
    )
    wanted, there = study.evaluation.trajectories, recordings.test_count(steps)
    if there < wanted:
        raise InputError(
            f"recordings.test holds {there} trajectories of segments.steps = {steps} steps but "
            f"evaluation.trajectories is {wanted}: "
            + (
                f"give at most {there}, or more data"
                if there
                else f"give at least {steps + 1} rows"
            )
        )
    return recordings


def _states(path: Path, key: str, names: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        if not path.is_file():
            problem = "is a directory" if path.is_dir() else "does not exist"
            raise InputError(
                f"{path} {problem}: give the path of a file, relative to the study's directory"
            )
        about = path.stat()
        return _read(path.resolve(), names, about.st_mtime_ns, about.st_size)
    except InputError as error:
        raise InputError(f"{key}: {error}") from error
    except (OSError, ValueError) as error:
        # ValueError: a name that no file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"{key}: cannot read {path}: {cause}; check it") from error


@lru_cache(maxsize=32)
def _read(path: Path, names: tuple[str, ...], changed: int, size: int) -> NDArray[np.float64]:
    """Read a file; once, as long as it stays as it is, for all seeds."""
    del changed
    if size == 0:
        raise InputError(f"{path} is empty: it needs a row of states for every sample")
    recording = FORMATS.find(suffix_of(path))(path, names)
    if recording.names and tuple(recording.names) != names:
        raise InputError(
            f"{path} begins with {short(','.join(recording.names))} but the states are "
            f"{','.join(names)}: make these its columns, in this order"
        )
    wanted = Wanted(names if recording.names else ())
    blocks = list(recording.blocks(wanted, _BLOCK_BYTES))
    _check(path, blocks, names)
    states = np.ascontiguousarray(np.concatenate([block.observed for block in blocks]))
    states.setflags(write=False)
    return states


def _check(path: Path, blocks: list[Any], names: tuple[str, ...]) -> None:
    """Refuse what is no whole trajectory of the states, with a number in every cell."""
    if not any(len(block.observed) for block in blocks):
        raise InputError(f"{path} has no rows: it needs one for every sample")
    rows = 0
    for block in blocks:
        width = block.observed.shape[1]
        if block.label is not None or width != len(names):
            held = f"{width} columns" if block.label is None else "several segments"
            raise InputError(
                f"{path} has {held}: give one trajectory with {len(names)} columns, "
                f"{','.join(names)}"
            )
        bad = np.argwhere(~np.isfinite(block.observed))
        if len(bad):
            row, column = bad[0]
            raise InputError(
                f"{block.source.row(block.row + row)} holds {block.observed[row, column]} in "
                f"column {column + 1}, {names[column]}: give a finite number in every cell"
            )
        rows += len(block.observed)
    # A reader skips blank lines, but here a gap would shift all that follows in time.
    line = blocks[0].source.line
    if line(rows) not in (None, rows + 1):
        first = bisect_left(range(1, rows + 1), True, key=lambda row: line(row) != row + 1) + 1
        raise InputError(f"line {first + 1} of {path} is blank: give every sample its numbers")
