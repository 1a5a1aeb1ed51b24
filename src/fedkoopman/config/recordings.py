"""A study's recordings: files of true states, read whole and checked before anything runs."""

import csv
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.number_rows import number_rows
from fedkoopman.errors import InputError, short
from fedkoopman.federation.recordings import Recordings
from fedkoopman.systems import System

if TYPE_CHECKING:
    from fedkoopman.config.study import Study

__all__ = ["recordings_of"]


def recordings_of(study: "Study", system: System) -> Recordings | None:
    """The recordings that a study names; None where the truth is simulated.

    Arguments:
        study: the study, to which relative paths are relative.
        system: whose states they are.
    """
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
    states = _read_array(path, names) if path.suffix.lower() == ".npy" else _read_csv(path, names)
    if not len(states):
        raise InputError(f"{path} has no rows: it needs one for every sample")
    states.setflags(write=False)
    return states


def _read_csv(path: Path, names: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = [cell.strip() for cell in next(csv.reader([next(lines, "")]))]
            if header != list(names):
                raise InputError(
                    f"{path} begins with {short(','.join(header))} but the states are "
                    f"{','.join(names)}: make this its first line, and its columns so"
                )
            return number_rows(lines, len(names), str(path), skipped=1)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} is not a text file in UTF-8: save it as CSV") from error


def _read_array(path: Path, names: tuple[str, ...]) -> NDArray[np.float64]:
    try:
        with path.open("rb") as file:
            content = np.lib.format.read_array(file, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        raise InputError(
            f"{path} is not a NumPy file of numbers, or not whole: write it with numpy.save"
        ) from error
    if content.dtype.kind not in "fiu":
        raise InputError(f"{path} holds {content.dtype}, not real numbers: save it as float64")
    if content.ndim != 2 or content.shape[1] != len(names):
        raise InputError(
            f"{path} has shape {content.shape}: give one of (samples, {len(names)}), with columns "
            f"{','.join(names)}"
        )
    states = np.array(content, dtype=np.float64, order="C")
    bad = np.argwhere(~np.isfinite(states))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            f"row {row + 1} of {path} holds {states[row, column]} in column {column + 1}, "
            f"{names[column]}: give a finite number in every cell"
        )
    return states
