"""The measured double pendulum (Section V): its three trials, and when the pendulum moves.

Myers et al. filmed a double pendulum and tracked its two links. Their archive has a folder per
trial, with a file of times in seconds and unwrapped angles in degrees for each link. The paper's
velocity is the difference of angles 200 samples before and after, divided by the time between:

    ω_k = (θ_j − θ_i) / (0.002 (j − i)),  i = max(0, k − 200),  j = min(k + 200, last)

It prints θ_i − θ_j, which would be the velocity with the wrong sign.

Speeds of `motion` are plain differences of neighbouring angles. The paper's velocity averages over
0.8 s and hides fast swings.
"""

import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.paper.judging import all_of, number, ratio
from fedkoopman.paper.number_rows import number_rows
from fedkoopman.paper.result import FAILS, HOLDS, OPEN, Claim

__all__ = [
    "AFTER",
    "INTERVAL",
    "MOVED",
    "NOTE",
    "TRIALS",
    "motion",
    "motion_claims",
    "read_trials",
    "states_of",
    "velocities",
]


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


MOVED = 0.05
"""Radians from its first angle at which a link has begun to move."""
BEGIN, AROUND = 1000, 250
USED, AFTER = (1000, 6000), (6000, 11000)
"""Samples that the paper takes, and as many after them."""
SUBSIDED = 2.0
"""Motion has largely subsided if its speed has fallen by this factor."""
LINK_NAMES = ("upper link", "lower link")

NOTE = (
    f"Motion: a link has begun to move where its angle is {MOVED} rad from its first; “around "
    f"sample {BEGIN}” is read as within {AROUND} samples (half a second) of it, “largely subsided” "
    f"as a root mean square speed, by differences of neighbouring angles, at least {SUBSIDED:g} "
    "times lower; intervals are over the trials."
)


def motion(trials: Sequence[NDArray[np.float64]]) -> list[dict[str, Any]]:
    """First motion and speeds of every trial.

    Arguments:
        trials: states (T, 4), as `read_trials` gives them.

    Returns:
        of each trial `begins`, the first sample at which a link has moved, or None; `used` and
        `after`, the root mean square speed of both links; `last`, where `after` ends.
    """
    found = []
    for states in trials:
        angles = states[:, [0, 2]]
        moved = np.flatnonzero((np.abs(angles - angles[0]) > MOVED).any(axis=1))
        speeds = np.diff(angles, axis=0) / INTERVAL
        used, after = (
            np.sqrt(np.mean(speeds[first:last] ** 2, axis=0)).tolist()
            for first, last in (USED, AFTER)
        )
        found.append(
            {
                "begins": int(moved[0]) if len(moved) else None,
                "used": used,
                "after": after,
                "last": min(AFTER[1], len(speeds)),
            }
        )
    return found


def motion_claims(trials: Sequence[Mapping[str, Any]]) -> tuple[Claim, ...]:
    """The paper's statements about the samples, from what `motion` gives."""
    begins = [trial["begins"] for trial in trials]
    near = [begin is not None and abs(begin - BEGIN) <= AROUND for begin in begins]
    told = ", ".join("never" if begin is None else str(begin) for begin in begins)
    used, after = (np.array([trial[part] for trial in trials]) for part in ("used", "after"))
    last = min(trial["last"] for trial in trials)
    falls = [
        (
            found.above(SUBSIDED),
            f"{link} {number(used[:, i].mean())} to {number(after[:, i].mean())} rad/s, a fall by "
            f"{found.words}",
        )
        for i, link in enumerate(LINK_NAMES)
        for found in [ratio(used[:, i], after[:, i])]
    ]
    return (
        Claim(
            f"the pendulums begin to move around sample {BEGIN}",
            HOLDS if all(near) else FAILS,
            f"first sample more than {MOVED} rad from the start, by trial: {told}",
        ),
        all_of(
            f"the motion has largely subsided by sample {USED[1]}",
            falls,
            lead=f"root mean square speed, samples {USED[0]} to {USED[1]} against {AFTER[0]} to "
            f"{last}: ",
        ),
        Claim(
            "the excluded samples are noninformative and harmful to training",
            OPEN,
            "not computed",
            "the paper speaks of preliminary experiments and shows none",
        ),
    )
