"""Where simulations start: states or windows, as arrays or as rows of a table, and the way back."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.bookkeeping import SEGMENT, TIME
from fedkoopman.koopman.frames import Rows, Table, is_series, is_table, later, pandas, read_table
from fedkoopman.koopman.frames import row_of as as_row
from fedkoopman.koopman.trajectories import array_of


@dataclass(frozen=True, eq=False)
class Starts:
    """Where simulations start.

    Attributes:
        windows: one per row, flat, oldest state first, (B, μ d).
        single: whether one was given by itself, and not a batch.
        table: the table they come from; None for arrays.
        rows: the row of the table in which each window ends.
    """

    windows: NDArray[np.float64]
    single: bool
    table: Table | None = None
    rows: NDArray[np.intp] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the states, where they are known."""
        return None if self.table is None else self.table.names

    def like(self, states: NDArray[np.float64], spacing: Rows) -> Any:
        """Simulated states (B, H, d), as arrays, or as one DataFrame if a DataFrame was given.

        Arguments:
            spacing: how many samples one row lies after the other, and their interval.
        """
        if self.table is None or self.table.source is None:
            return states[0] if self.single else states
        count, steps, dim = states.shape
        step = np.arange(1, steps + 1)
        index = pandas().Index(step, name="step")
        if not self.single:
            levels, names = [self._labels(), step], [SEGMENT, "step"]
            index = pandas().MultiIndex.from_product(levels, names=names)
        frame = pandas().DataFrame(
            states.reshape(-1, dim), index=index, columns=list(self.table.columns)
        )
        if self.table.time is not None and self.rows is not None:
            last = pandas().Index(self.table.time)[np.repeat(self.rows, steps)]
            times = later(last, np.tile(step * spacing.ahead, count), spacing.dt)
            frame.insert(0, TIME, times.array)
        return frame

    def _labels(self) -> Any:
        """A name for each simulation: its segment's or its row's, if these are their own."""
        assert self.table is not None and self.table.source is not None and self.rows is not None
        source, level = self.table.source, self.table.in_index.get(SEGMENT)
        ways = [source.index] if source.index.nlevels == 1 else []
        if level is not None or SEGMENT in source.columns:
            named = source[SEGMENT] if level is None else source.index.get_level_values(level)
            ways.insert(0, pandas().Index(named))
        for way in ways:
            if way[self.rows].is_unique:
                return way[self.rows]
        return np.arange(len(self.rows))


def as_starts(x0: Any, window: int, dim: int) -> Starts:
    """Check what the user gave.

    Arguments:
        window: the number of states in one start.
        dim: the number of components of a state.
    """
    if is_table(x0) or (is_series(x0) and window == 1):
        return _of_table(x0, window, dim)
    start = array_of(x0, "x0")
    shape = (dim,) if window == 1 else (window, dim)
    if start.ndim not in (len(shape), len(shape) + 1) or start.shape[-len(shape) :] != shape:
        batch = ", ".join(("B", *map(str, shape)))
        raise InputError(f"x0 has shape {start.shape}: give {shape} or ({batch})")
    if not start.size:
        raise InputError(f"x0 has shape {start.shape}: give at least one state")
    return Starts(start.reshape(-1, window * dim), start.ndim == len(shape))


def _of_table(x0: Any, window: int, dim: int) -> Starts:
    """Of a table each row is a start; with delays each segment is a window."""
    table = read_table(as_row(x0) if is_series(x0) else x0, "x0", whole=window == 1)
    states = array_of(table.states, "x0")
    if states.shape[1] != dim:
        raise InputError(f"x0 has {states.shape[1]} columns of states: give {dim}")
    if not len(states):
        raise InputError("x0 has no rows: give at least one state")
    if window == 1:
        return Starts(states, is_series(x0), table, np.arange(len(states)))
    for i, length in enumerate(np.diff(table.bounds, prepend=0)):
        if length != window:
            raise InputError(
                f"{table.part(i)} has {length} rows, but n_delays={window - 1} starts from "
                f"{window}: give so many rows, or segments of so many each"
            )
    rows = np.asarray(table.bounds) - 1
    return Starts(states.reshape(-1, window * dim), table.segments is None, table, rows)
