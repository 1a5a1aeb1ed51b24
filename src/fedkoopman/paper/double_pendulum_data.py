"""The three trials of the measured double pendulum (Section V).

Myers et al. filmed a double pendulum and tracked its two links. Their archive has a folder per
trial, with a file of times in seconds and unwrapped angles in degrees for each link. The paper's
velocity is the difference of angles 200 samples before and after, divided by the time between:

    ω_k = (θ_j − θ_i) / (0.002 (j − i)),  i = max(0, k − 200),  j = min(k + 200, last)

It prints θ_i − θ_j, which would be the velocity with the wrong sign.

True states have no missing cells, unlike observations: a gap would shift all that follows in time.
"""

import csv
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short

TRIALS = (1, 2, 3)
LINKS = ("DPmean_data_RB0.csv", "DPmean_data_RB1.csv")
"""Files of the upper and the lower link."""
INTERVAL = 0.002
REACH = 200
SHORTEST = 6_000 + REACH + 1
"""Fewest rows that hold all of the paper's samples with their velocities."""
LARGEST = 64 * 2**20
"""Largest size of a file in bytes; the authors' files have about 2 million."""
DEEPEST = 6
"""Depth to which folders are searched for trials."""

SOURCE = (
    "give the folder or the zip of the measured double pendulum, with Trial1, Trial2 and Trial3, "
    f"each with {LINKS[0]} and {LINKS[1]} (no header; time in s, angle in degrees, every 0.002 s): "
    "Video_Tracking_Data.zip of Myers et al., HardwareX 8 (2020) e00138, at Mendeley Data, doi "
    "10.17632/7yd2ntbh3w"
)
_TRIAL = re.compile(r"trial[ _-]?([0-9]+)", re.IGNORECASE)

Read = Callable[[], bytes]


def read_trials(path: Path) -> list[NDArray[np.float64]]:
    """The states (T, 4) of trials 1, 2 and 3: θ₁, ω₁, θ₂, ω₂, in radians and radians per second.

    Arguments:
        path: a folder, or the authors' zip, in which the trials' folders may lie at any depth.
    """
    try:
        if path.is_dir():
            return _all_states(path, dict(_in_folder(path)))
        if not path.is_file():
            raise InputError(f"there is no {path}: {SOURCE}")
        with zipfile.ZipFile(path) as archive:
            return _all_states(path, dict(_in_zip(archive)))
    except zipfile.BadZipFile as error:
        raise InputError(f"{path} is no zip archive, or not whole ({error}): {SOURCE}") from error
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        cause = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path} ({cause}): {SOURCE}") from error


def states_of(upper: NDArray[np.float64], lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """States (T, 4) from the angles of both links in degrees, (T,)."""
    columns = [(np.radians(angle), np.radians(velocities(angle))) for angle in (upper, lower)]
    return np.column_stack([column for pair in columns for column in pair])


def velocities(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's velocity of angles (T,), in their unit per second."""
    k = np.arange(len(angles))
    before, after = np.maximum(k - REACH, 0), np.minimum(k + REACH, len(angles) - 1)
    found: NDArray[np.float64] = (angles[after] - angles[before]) / (INTERVAL * (after - before))
    return found


def _in_folder(folder: Path) -> Iterator[tuple[PurePosixPath, Read]]:
    """Files by their path below a folder."""
    for above, inner, names in os.walk(folder, followlinks=True):
        below = Path(above).relative_to(folder)
        inner[:] = sorted(inner) if len(below.parts) < DEEPEST else []
        for name in names:
            if name in LINKS:
                yield PurePosixPath(*below.parts, name), _reader(Path(above) / name)


def _reader(path: Path) -> Read:
    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(LARGEST + 1)

    return read


def _in_zip(archive: zipfile.ZipFile) -> Iterator[tuple[PurePosixPath, Read]]:
    """Members by name; they are read in memory, so that no name can lead out of a folder."""
    for member in archive.infolist():
        place = PurePosixPath(member.filename.replace("\\", "/"))
        if place.name in LINKS:
            yield place, _member_reader(archive, member)


def _member_reader(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Read:
    def read() -> bytes:
        try:
            with archive.open(member) as file:
                return file.read(LARGEST + 1)
        except Exception as error:  # damaged, encrypted or unknown archives
            raise zipfile.BadZipFile(" ".join(str(error).split())) from error

    return read


def _all_states(path: Path, files: dict[PurePosixPath, Read]) -> list[NDArray[np.float64]]:
    found = []
    for trial in TRIALS:
        upper, lower = (_angles(path, files, trial, link) for link in LINKS)
        if len(upper) != len(lower):
            raise InputError(
                f"trial {trial} of {path} has {len(upper)} rows of the upper link and {len(lower)} "
                f"of the lower: {SOURCE}"
            )
        found.append(states_of(upper, lower))
    return found


def _angles(
    path: Path, files: dict[PurePosixPath, Read], trial: int, link: str
) -> NDArray[np.float64]:
    """One link's angles in one trial, in degrees."""
    places = [p for p in files if p.name == link and _trial(p) == trial]
    if len(places) != 1:
        problem = "no" if not places else f"{len(places)} files"
        raise InputError(f"{path} holds {problem} Trial{trial}/{link}: {SOURCE}")
    name = f"{places[0]} in {path}"
    content = files[places[0]]()
    if len(content) > LARGEST:
        raise InputError(f"{name} is larger than {LARGEST} bytes: {SOURCE}")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is no text ({error.reason}): {SOURCE}") from error
    try:
        rows = number_rows(lines, 2, name)
    except InputError as error:
        raise InputError(f"{error}; {SOURCE}") from error
    if len(rows) < SHORTEST:
        raise InputError(
            f"{name} has {len(rows)} rows instead of 38827, and at least {SHORTEST} are needed: "
            f"{SOURCE}"
        )
    steps = np.diff(rows[:, 0])
    uneven = np.flatnonzero(np.abs(steps - INTERVAL) > INTERVAL / 100)
    if len(uneven):
        raise InputError(
            f"lines {uneven[0] + 1} and {uneven[0] + 2} of {name} are {steps[uneven[0]]:g} s apart "
            f"instead of {INTERVAL}: {SOURCE}"
        )
    return rows[:, 1]


def _trial(place: PurePosixPath) -> int | None:
    """The trial whose folder a file lies in, the innermost if they are nested."""
    for part in reversed(place.parts[:-1]):
        if match := _TRIAL.fullmatch(part):
            return int(match[1])
    return None


def number_rows(
    lines: Iterable[str], columns: int, name: str, *, skipped: int = 0
) -> NDArray[np.float64]:
    """An array (rows, columns); blank lines may stand at the end only.

    Arguments:
        lines: of the text, after its header.
        columns: how many cells each must have.
        name: of the file, for messages.
        skipped: how many lines stand before, in the count of lines.
    """
    rows: list[list[float]] = []
    blank = 0
    reader = csv.reader(lines)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"line {reader.line_num + skipped} of {name} cannot be read ({error}): write "
                "numbers separated by commas"
            ) from error
        if cells is None:
            break
        line = reader.line_num + skipped
        if not any(cell.strip() for cell in cells) and len(cells) < 2:
            blank = blank or line
            continue
        if blank:
            raise InputError(f"line {blank} of {name} is blank: give every sample its numbers")
        if len(cells) != columns:
            raise InputError(
                f"line {line} of {name} has {len(cells)} cells instead of {columns}: give every "
                "line as many, separated by commas"
            )
        rows.append([_number(cell, line, name) for cell in cells])
    return np.array(rows, dtype=np.float64).reshape(-1, columns)


def _number(cell: str, line: int, name: str) -> float:
    try:
        number = math.nan if "_" in cell else float(cell)  # Python reads 1_0 as 10
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"line {line} of {name} holds {short(cell.strip())}: give a finite number in every cell"
        )
    return number
