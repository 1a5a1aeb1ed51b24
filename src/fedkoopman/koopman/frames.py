"""DataFrames in, DataFrames out: which columns are states, where segments end, and the way back.

A table is read by the program's own rules. Its columns `segment`, `time` and `step`, or levels of
its index with these names, are bookkeeping and never states; neither is `x_std` beside a column
`x`. Rows of one segment stand together, and their instants are one regular interval apart.

Any table can be read that gives its columns by name (pandas, polars, Arrow); results come back as
tables for pandas alone. pandas is not imported: who gives a DataFrame has it loaded.
"""

import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.koopman.bookkeeping import (
    REGULAR,
    SEGMENT,
    TIME,
    as_numbers,
    index_roles,
    is_bookkeeping,
    part_title,
    regular_interval,
    segment_runs,
)


@dataclass(frozen=True)
class Rows:
    """How results for the rows of a table become a table again.

    Attributes:
        columns: of the results; None takes the columns of the table's states.
        ahead: how many samples later than its row a result lies; its time is moved on by as many.
        dt: the sampling interval.
        bookkeeping: whether the columns `segment` and `time` come along.
    """

    columns: Sequence[Hashable] | None = None
    ahead: int = 0
    dt: float = 1.0
    bookkeeping: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """A table taken apart.

    Attributes:
        title: what messages call it.
        states: its columns of states, all rows.
        columns: the labels of these columns.
        bounds: the row after the last of each segment.
        segments: labels of the segments; None where the table is one.
        time: the instants of all rows as the table has them; None without.
        interval: between samples, in seconds where instants are dates; None if nothing tells.
        source: the pandas DataFrame; None for a table of another library.
        in_index: level of the index that holds `segment` or `time`; a column otherwise.
    """

    title: str
    states: Any
    columns: tuple[Hashable, ...]
    bounds: tuple[int, ...]
    segments: tuple[Any, ...] | None
    time: Any | None
    interval: float | None
    source: Any | None
    in_index: dict[str, int]

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the states, if all are texts."""
        named = tuple(name for name in self.columns if isinstance(name, str))
        return named if len(named) == len(self.columns) else None

    def part(self, i: int) -> str:
        """What messages call segment i."""
        return part_title(self.title, self.segments, i)

    def rebuilt(self, pieces: Sequence[NDArray[Any]], rows: Rows) -> Any:
        """A DataFrame of results, one piece per segment; rows that delays took are left out."""
        assert self.source is not None
        kept = np.concatenate(
            [np.arange(end - len(p), end) for p, end in zip(pieces, self.bounds, strict=True)]
        )
        index, times = self.source.index[kept], self.source.index[:0]
        if self.time is not None:
            times = self._times(kept, rows.ahead, rows.dt)
            if TIME in self.in_index and rows.ahead:
                index = _with_level(index, self.in_index[TIME], times)
        columns = self.columns if rows.columns is None else rows.columns
        frame = pandas().DataFrame(np.concatenate(pieces), index=index, columns=list(columns))
        if rows.bookkeeping:
            for place, name in enumerate(c for c in self.source.columns if c in (SEGMENT, TIME)):
                values = times if name == TIME else self.source[name].iloc[kept]
                frame.insert(place, name, values.array)  # of a Series, pandas would align the index
        return frame

    def _times(self, kept: NDArray[np.intp], ahead: int, dt: float) -> Any:
        """The instants of rows, so many samples later: those recorded, and on from the last."""
        ends = np.repeat(self.bounds, np.diff(self.bounds, prepend=0))[kept] - 1
        beyond = np.maximum(kept + ahead - ends, 0)
        times = pandas().Index(self.time)[kept + ahead - beyond]
        return later(times, beyond, dt) if beyond.any() else times


def later(times: Any, samples: NDArray[np.intp], dt: float) -> Any:
    """Instants moved on by so many samples each; dates by seconds."""
    if times.dtype.kind in "Mm":
        return times + pandas().to_timedelta(samples * dt, unit="s")
    moved = times.to_numpy() + samples * dt
    whole = times.dtype.kind in "iu" and float(dt).is_integer()
    return pandas().Index(moved.astype(times.dtype) if whole else moved)


def pandas() -> Any:
    """The library, which is there because somebody gave a DataFrame or asked for one."""
    try:
        return sys.modules.get("pandas") or __import__("pandas")
    except ImportError:
        raise InputError(
            "a DataFrame needs pandas, which is not installed: pip install pandas, or use arrays "
            '(set_output(transform="default"))'
        ) from None


def is_table(x: Any) -> bool:
    """Whether something has named columns."""
    return _columns(x) is not None


def is_series(x: Any) -> bool:
    """Whether something is one row or column of a DataFrame."""
    return "pandas" in sys.modules and isinstance(x, sys.modules["pandas"].Series)


def row_of(x: Any) -> Any:
    """A Series as a DataFrame of one row."""
    return x.to_frame().T.infer_objects()


def frames_of(result: Any, columns: Sequence[Hashable]) -> Any:
    """Arrays as DataFrames: one for rows, a list for several trajectories; tables as they are."""
    if isinstance(result, list) or getattr(result, "ndim", 0) == 3:
        return [frames_of(part, columns) for part in result]
    if not isinstance(result, np.ndarray):
        return result
    if result.ndim == 1:
        return pandas().Series(result, index=list(columns))
    return pandas().DataFrame(result, columns=list(columns))


def read_table(x: Any, title: str, *, whole: bool = False) -> Table:
    """Take a table apart.

    Arguments:
        title: what messages call it.
        whole: rows are taken by themselves, whatever their segments and instants.
    """
    names = _columns(x) or ()
    source = x if hasattr(x, "iloc") else None
    places = [i for i, name in enumerate(names) if not is_bookkeeping(name, names)]
    if not places:
        raise InputError(
            f"{title} has no column of states, only {short([*names])}: give their columns too"
        )
    in_index = {} if source is None else index_roles(x.index, names, title)
    found = {
        role: x.index.get_level_values(in_index[role]) if role in in_index else x[role]
        for role in (SEGMENT, TIME)
        if role in in_index or role in names
    }
    count = len(x)
    segments: tuple[Any, ...] | None = None
    bounds: tuple[int, ...] = (count,)
    if SEGMENT in found and count and not whole:
        segments, bounds = segment_runs(found[SEGMENT], title)
    interval = None
    if TIME in found and not whole:
        parts = [part_title(title, segments, i) for i in range(len(bounds))]
        interval = regular_interval(as_numbers(found[TIME], title), bounds, parts)
    states = (
        x.iloc[:, places]
        if source is not None
        else np.column_stack([np.asarray(x[names[i]]) for i in places])
    )
    columns = tuple(names[i] for i in places)
    return Table(
        title, states, columns, bounds, segments, found.get(TIME), interval, source, in_index
    )


def _columns(x: Any) -> tuple[Hashable, ...] | None:
    """The labels of the columns; Arrow's `columns` are the columns themselves."""
    found = getattr(x, "column_names", None)
    found = getattr(x, "columns", None) if found is None else found
    return None if found is None else tuple(found)


def _with_level(index: Any, level: int, values: Any) -> Any:
    if index.nlevels == 1:
        return pandas().Index(values, name=index.name)
    levels = [values if i == level else index.get_level_values(i) for i in range(index.nlevels)]
    return pandas().MultiIndex.from_arrays(levels, names=index.names)


def common_interval(tables: Iterable[Table]) -> float | None:
    """The sampling interval of all tables; None if none has instants."""
    told = [(table, table.interval) for table in tables if table.interval is not None]
    for table, interval in told[1:]:
        first, expected = told[0]
        if abs(interval - expected) > REGULAR * expected:
            raise InputError(
                f"samples of {table.title} are {interval:.6g} apart and those of {first.title} "
                f"{expected:.6g}: resample them to one interval"
            )
    return told[0][1] if told else None
