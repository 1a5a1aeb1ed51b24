"""Segments and instants of a table's rows: which columns tell them, and the checks of both.

These are the rules by which the program reads files: see `data.row_blocks` and `data.time_grid`.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short

SEGMENT, TIME = "segment", "time"
BOOKKEEPING = (SEGMENT, "step", TIME)
"""Columns that are never states."""

ON_GRID = 0.1
"""How far an instant may be off the regular grid, in sampling intervals: times may be rounded."""

REGULAR = 0.01
"""Sampling intervals this close to each other, relatively, are the same."""


def is_bookkeeping(name: Hashable, names: Sequence[Hashable]) -> bool:
    """Whether a column of such a name, among others, is no state."""
    if not isinstance(name, str):
        return False
    return name in BOOKKEEPING or (name.endswith("_std") and name[: -len("_std")] in names)


def index_roles(index: Any, names: Sequence[Hashable], title: str) -> dict[str, int]:
    """Which level of an index tells segments apart or gives the instants.

    Beside names, an outer level of two is taken for segments, as `pandas.concat` with keys makes
    it, and dates or fractions for instants; a level of whole numbers just counts rows.
    """
    roles = {
        name: level
        for level, name in enumerate(index.names)
        if name in (SEGMENT, TIME) and name not in names
    }
    rest = [i for i, name in enumerate(index.names) if name not in BOOKKEEPING]
    if index.nlevels > 1 and SEGMENT not in roles and SEGMENT not in names and 0 in rest:
        roles[SEGMENT] = rest.pop(0)
    timely = [i for i in rest if index.get_level_values(i).dtype.kind in "Mmf"]
    dated = index.nlevels == 1 and index.dtype.kind in "Mm"
    if TIME not in roles and TIME not in names and timely and (dated or index.nlevels == 2):
        roles[TIME] = timely[0]
    if index.nlevels > 2 and [i for i in rest if i not in roles.values()]:
        raise InputError(
            f"{title} has an index of the levels {short(list(index.names))}: name those that tell "
            "segments apart and give the instants 'segment' and 'time', and drop the others"
        )
    return roles


def part_title(title: str, segments: tuple[Any, ...] | None, i: int) -> str:
    """What messages call segment i of a table."""
    return title if segments is None else f"segment {short(segments[i])} of {title}"


def segment_runs(values: Any, title: str) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    """The labels of consecutive rows, and the row after the last of each."""
    labels: list[Any] = np.asarray(values, object).tolist()
    ends: dict[Any, int] = {}
    last: Any = None
    for row, label in enumerate(labels):
        if _blank(label):
            raise InputError(
                f"{title} has a blank cell in row {row} of 'segment': say which segment the row "
                "belongs to"
            )
        if ends and label != last and label in ends:
            raise InputError(
                f"segment {short(label)} comes back in row {row} of {title}: sort the rows by "
                "segment (and time), so that all rows of one stand together"
            )
        ends[label] = row + 1
        last = label
    return tuple(ends), tuple(ends.values())


def _blank(label: Any) -> bool:
    try:
        return label is None or bool(label != label) or str(label).strip() == ""
    except TypeError:  # pandas.NA is neither equal to itself nor different
        return True


def as_numbers(values: Any, title: str) -> NDArray[np.float64]:
    """Instants as numbers; dates as seconds since the first."""
    array = np.asarray(values)
    if array.dtype.kind == "O" and getattr(values, "dtype", array.dtype).kind == "M":
        array = np.asarray(values, "datetime64[ns]")  # in a time zone
    if array.dtype.kind in "Mm":
        return (array - array[:1]) / np.timedelta64(1, "s")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"the times of {title} are neither numbers nor dates, as {short(array[0])}: convert "
            "them, for example with pandas.to_datetime"
        ) from None


def regular_interval(
    times: NDArray[np.float64], bounds: Sequence[int], parts: Sequence[str]
) -> float | None:
    """The one interval between samples of all segments; None if no segment has two."""
    told: list[tuple[str, float]] = []
    for start, end, part in zip((0, *bounds), bounds, parts, strict=False):
        instants = times[start:end]
        steps = np.diff(instants)
        if not np.isfinite(instants).all():
            row = start + int(np.argmin(np.isfinite(instants)))
            raise InputError(f"{part} has no time in row {row}: give every row its instant")
        if not (steps > 0).all():
            row = start + 1 + int(np.argmin(steps > 0))
            raise InputError(
                f"{part} has time {times[row]:.12g} in row {row}, not later than "
                f"{times[row - 1]:.12g} in the row before: sort the rows by time, or tell segments "
                "apart by a column 'segment'"
            )
        if not len(steps):
            continue
        interval = float(instants[-1] - instants[0]) / len(steps)
        off = np.abs(instants - instants[0] - interval * np.arange(len(instants)))
        if (off > ON_GRID * interval).any():
            raise InputError(
                f"samples of {part} are {steps.min():.6g} to {steps.max():.6g} apart, the widest "
                f"gap before row {start + 1 + int(steps.argmax())}: resample to a regular "
                "interval, or make each stretch between gaps a segment of its own"
            )
        told.append((part, interval))
    for part, interval in told[1:]:
        first, expected = told[0]
        if abs(interval - expected) > REGULAR * expected:
            raise InputError(
                f"samples of {part} are {interval:.6g} apart and those of {first} "
                f"{expected:.6g}: resample them to one interval"
            )
    # Twelve digits: 0.02 should not become 0.020000000000000004 on the way through differences.
    return float(f"{np.mean([interval for _, interval in told]):.12g}") if told else None


def agreed_interval(found: float | None, dt: float, owner: str) -> float:
    """The sampling interval that is known, which must be that of the tables if they tell one.

    Arguments:
        found: by the instants of the tables.
        dt: what is known of it.
        owner: whose it is, for the message.
    """
    if found is not None and not abs(found - dt) <= REGULAR * dt:
        raise InputError(
            f"samples of X are {found:.6g} apart by its times, but {owner} is {dt:.6g}: give "
            f"dt={found:.6g}, or resample X"
        )
    return dt
