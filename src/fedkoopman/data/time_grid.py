"""Sampling instants on the study's grid: gaps become missing samples, the rest fits or is refused.

Sample k of a segment belongs to t_0 + k dt, where t_0 is the segment's first instant. An instant is
on the grid if it is within a tenth of dt of such a time, which allows for printed times that are
rounded. Everywhere `times` are instants (n,) in order, `values` what was recorded (n, k), `dt`
is the study's sampling interval, and `source` and `place` name the file and a row in messages.
"""

from collections.abc import Callable

import numpy as np

from fedkoopman.errors import InputError

Place = Callable[[int], str]
"""From the index of a row to its name in messages."""

ON_GRID = 0.1
"""How far an instant may be off the grid, in sampling intervals."""

GAP = 1.5
"""Neighbours further apart than so many usual intervals have a gap between them."""

SPARSE = 10.0
"""Samples further apart than so many dt are taken for a wrong dt, or a wrong unit of time."""

_SAME = 1e-6
"""Instants this close, in sampling intervals, are the same."""

BEYOND = np.errstate(over="ignore", invalid="ignore")
"""Times may be beyond all measure (1e300): what comes out as infinite is refused."""


@BEYOND
def check_order(times: np.ndarray, before: float | None, place: Place) -> None:
    """Refuse instants that are no numbers, come twice or go back.

    Arguments:
        before: the instant of the row before them, in the same segment.
    """
    if before is not None:
        times = np.concatenate([[before], times])
    start = 0 if before is None else 1
    finite = np.isfinite(times)
    ahead = np.diff(times) > 0 if finite.all() else np.zeros(0, bool)
    if finite.all() and ahead.all():
        return
    good = int(np.argmin(finite)) if not finite.all() else len(times)
    late = np.flatnonzero(~(np.diff(times[:good]) > 0))
    if len(late):
        i = int(late[0]) + 1
        if times[i] == times[i - 1]:
            raise InputError(
                f"{place(i - start)} has time {times[i]:.12g}, which the row before has too: keep "
                "one of the two, or tell segments apart by data.segment"
            )
        raise InputError(
            f"{place(i - start)} has time {times[i]:.12g}, which goes back from "
            f"{times[i - 1]:.12g}: sort the rows, or tell segments apart by data.segment"
        )
    raise InputError(
        f"{place(good - start)} has time {times[good]}: give every row the instant of its sample"
    )


@BEYOND
def usual_interval(times: np.ndarray) -> float | None:
    """The interval at which samples were taken, whatever is missing between; None for one sample.

    The median interval tells how many samples each interval stands for; the whole time divided by
    their number averages out the rounding of printed times.
    """
    steps = np.diff(times)
    if not len(steps):
        return None
    mean = float(times[-1] - times[0]) / len(steps)
    if steps.min() > (1 - ON_GRID) * mean and steps.max() < (1 + ON_GRID) * mean:
        return mean  # nothing is missing
    median = float(np.median(steps))
    return float((times[-1] - times[0]) / max(np.sum(np.rint(steps / median)), 1.0))


@BEYOND
def check_interval(times: np.ndarray, dt: float, source: str) -> None:
    """Refuse samples so far apart that hardly any sample of the grid would be there."""
    if len(times) > 1 and float(np.median(np.diff(times))) > SPARSE * dt:
        usual = usual_interval(times)
        raise InputError(
            f"samples of {source} are {usual:.6g} apart but the study's dt is {dt:.6g}: set "
            f"system.parameters.dt = {usual:.6g}, or check the unit of the time column"
        )


@BEYOND
def on_grid(
    times: np.ndarray, values: np.ndarray, dt: float, source: str, place: Place
) -> np.ndarray:
    """Values (N, k) on the grid, NaN where there is no sample."""
    index, fits = grid_places(times, dt)
    if not fits.all():
        raise _off_grid(times, dt, int(np.argmin(fits)), source, place)
    return placed(values, index)


def grid_places(times: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """The number of each instant on the grid, and whether the instant is there, and alone."""
    exact = (times - times[0]) / dt
    index = np.rint(exact)
    fits = np.abs(exact - index) <= ON_GRID
    fits[1:] &= np.diff(index) > 0
    return index, fits


def placed(values: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Values (n, k) at their places on the grid, NaN elsewhere."""
    count = int(index[-1]) + 1
    if count == len(index):
        return values
    grid = np.full((count, values.shape[1]), np.nan)
    grid[index.astype(np.intp)] = values
    return grid


def _off_grid(times: np.ndarray, dt: float, row: int, source: str, place: Place) -> InputError:
    usual = usual_interval(times)
    assert usual is not None  # a single instant is on its own grid
    own = (times - times[0]) / usual
    if np.all(np.abs(own - np.rint(own)) <= ON_GRID) and abs(usual / dt - 1) > _SAME:
        return InputError(
            f"samples of {source} are {usual:.6g} apart but the study's dt is {dt:.6g}: set "
            f'system.parameters.dt = {usual:.6g}, or data.off_grid = "resample"'
        )
    nearest = times[0] + dt * np.rint((times[row] - times[0]) / dt)
    return InputError(
        f"{place(row)} has time {times[row]:.12g}, off the grid of the study's dt = {dt:.6g} "
        f"(nearest {nearest:.12g}; samples are about {usual:.6g} apart): mend it, or set "
        'data.off_grid = "resample"'
    )


def resampled(times: np.ndarray, values: np.ndarray, dt: float) -> np.ndarray:
    """Values (N, k) on the grid, each channel interpolated linearly between its own neighbours.

    Across a gap nothing is interpolated: neighbours further apart than 1.5 times the usual interval
    of the rows (or dt, if that is longer) leave what is between them missing.
    """
    count = int(np.floor((times[-1] - times[0]) / dt + _SAME)) + 1
    wanted = times[0] + dt * np.arange(count)
    apart = GAP * max(dt, float(np.median(np.diff(times))) if len(times) > 1 else dt)
    grid = np.full((count, values.shape[1]), np.nan)
    for k, channel in enumerate(values.T):
        there = ~np.isnan(channel)
        t, z = (times, channel) if there.all() else (times[there], channel[there])
        if not len(t):
            continue
        after = np.clip(np.searchsorted(t, wanted), 1, max(len(t) - 1, 1))
        low, high = t[after - 1], t[np.minimum(after, len(t) - 1)]
        inside = (low <= wanted) & (wanted <= high) & (high - low <= apart)
        found = np.interp(wanted, t, z)
        grid[inside, k] = found[inside]
        # at a gap's edge, or at the very end, rounding must not lose a sample that is there
        nearest = np.where(np.abs(wanted - low) < np.abs(wanted - high), low, high)
        same = ~inside & (np.abs(wanted - nearest) <= _SAME * dt)
        grid[same, k] = np.interp(nearest[same], t, z)
    return grid


def acting(
    inputs: np.ndarray, hold: str, times: np.ndarray | None, dt: float, count: int
) -> np.ndarray:
    """Inputs of rows (N, u) as they act on the grid, (count + 1, u): until each sample, and then
    from the last sample on, which is as before where the rows do not tell.

    Arguments:
        hold: "until": a row's input acts until the row; "from": from the row on. Through gaps the
            last known one is held. What acts until the first row is its own.
        times: of the rows; None: they are the grid.
        count: samples of the grid.
    """
    if hold == "from":
        known = inputs if times is None else held(times, inputs, dt, count)
        return np.vstack([known[:1], known])
    known = inputs if times is None else _until(times, inputs, dt, count)
    return np.vstack([known, known[-1:]])


def _until(times: np.ndarray, inputs: np.ndarray, dt: float, count: int) -> np.ndarray:
    """Inputs on the grid that act until their rows, each since the row before, if that is no
    further away than rows usually are."""
    wanted, near = times[0] + dt * np.arange(count), dt * (ON_GRID + _SAME)
    before = np.maximum(np.searchsorted(times, wanted + near, side="right") - 1, 0)
    after = np.minimum(np.searchsorted(times, wanted - near), len(times) - 1)
    apart = GAP * max(dt, float(np.median(np.diff(times))) if len(times) > 1 else dt)
    gap = times[after] - times[before] > apart
    return np.asarray(inputs[np.where(gap, before, after)])


def held(times: np.ndarray, inputs: np.ndarray, dt: float, count: int) -> np.ndarray:
    """Inputs (N, u) on the grid: each holds until the next is given, through gaps as well."""
    wanted = times[0] + dt * (np.arange(count) + ON_GRID + _SAME)
    last = np.searchsorted(times, wanted, side="right") - 1
    return np.asarray(inputs[np.maximum(last, 0)])
