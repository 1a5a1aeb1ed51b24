"""The forms in which users give trajectories, and every check of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.koopman.frames import (
    Rows,
    Table,
    common_interval,
    is_series,
    is_table,
    read_table,
    row_of,
)

STATES = (
    "estimate the states first with fk.estimate, which takes missing observations, or cut the "
    "trajectory there"
)
"""The remedy for states that are missing."""
FORMS = "give (T, n), (N, T, n), a list of (T_i, n) or tables, rows being time"


@dataclass(frozen=True, eq=False)
class Trajectories:
    """One or more arrays of rows, and the form in which they came.

    Attributes:
        parts: (T_i, n), float64 and finite.
        form: a single row (n,), the rows (T, n) of one trajectory or of one table, a stack
            (N, T, n) or a list.
        names: of the columns, where the input was a table that has them.
        tables: what was given, entry by entry, where it was a table; None for an array. A table
            makes as many parts as it has segments.
        title: what messages call it.
    """

    parts: list[NDArray[np.float64]]
    form: Literal["row", "rows", "stack", "list"]
    names: tuple[str, ...] | None = None
    tables: tuple[Table | None, ...] = ()
    title: str = "X"

    @property
    def interval(self) -> float | None:
        """The sampling interval, as far as tables tell it."""
        return common_interval(table for table in self.tables if table is not None)

    def label(self, i: int) -> str:
        """What a message calls part i."""
        for j, table in enumerate(self.tables):
            count = 1 if table is None else len(table.bounds)
            if i < count:
                return f"{self.title}[{j}]" if table is None else table.part(i)
            i -= count
        return f"{self.title}[{i}]" if self.form in ("stack", "list") else self.title

    @property
    def several(self) -> bool:
        """Whether there may be more than one trajectory, and results have an axis for them."""
        return self.form in ("stack", "list") or len(self.parts) > 1

    def like(self, joined: NDArray[Any], lengths: list[int], rows: Rows) -> Any:
        """Results for all parts, joined, in the form in which the parts came.

        Arguments:
            lengths: how many rows there are of each part.
            rows: how they become tables, where tables were given.
        """
        pieces: list[Any] = np.split(joined, np.cumsum(lengths)[:-1])
        if any(table is not None for table in self.tables):
            pieces = list(self._rebuilt(pieces, rows))
        if self.form == "row":
            return pieces[0][0] if isinstance(pieces[0], np.ndarray) else pieces[0].iloc[0]
        if self.form == "rows":
            return pieces[0]
        return np.stack(pieces) if self.form == "stack" else pieces

    def _rebuilt(self, pieces: list[Any], rows: Rows) -> Iterator[Any]:
        """One result per entry that was given."""
        for table in self.tables:
            count = 1 if table is None else len(table.bounds)
            own, pieces = pieces[:count], pieces[count:]
            if table is None or table.source is None:
                yield np.concatenate(own)
            else:
                yield table.rebuilt(own, rows)

    def check_features(self, expected: int, owner: str, what: str = "features") -> None:
        """Refuse another number of columns."""
        for i, part in enumerate(self.parts):
            if part.shape[1] != expected:
                raise InputError(
                    f"{self.label(i)} has {part.shape[1]} {what}, but {owner} is expecting "
                    f"{expected} {what} as input: give arrays with {expected} columns"
                )

    def check_names(self, expected: tuple[str, ...] | None) -> None:
        """Refuse columns with other names, or in another order, than those of the training."""
        check_names(self.names, expected, "X")

    def check_lengths(self, least: int, needed_by: str) -> None:
        """Refuse trajectories that are too short."""
        for i, part in enumerate(self.parts):
            if len(part) < least:
                count = f"{len(part)} sample{'' if len(part) == 1 else 's'}"
                raise InputError(
                    f"{self.label(i)} has {count}, but {needed_by} needs at least {least}: "
                    "give a longer trajectory or leave this one out"
                )


def as_trajectories(
    x: Any, *, single: bool = False, whole: bool = False, title: str = "X"
) -> Trajectories:
    """Check what the user gave.

    Arguments:
        single: whether one row (n,) will do.
        whole: rows of tables are taken by themselves, whatever their segments and instants.
        title: what messages call it.
    """
    if isinstance(x, list | tuple) and len(x) and _has_rows(x[0]):
        return _listed(x, whole, title)
    if is_table(x) or (single and is_series(x)):
        table = read_table(row_of(x) if is_series(x) else x, title, whole=whole)
        form: Literal["row", "rows"] = "row" if is_series(x) else "rows"
        return Trajectories(_split(table), form, table.names, (table,), title)
    array = array_of(x, title)
    if array.ndim == 3 and len(array):
        return Trajectories(list(array), "stack", title=title)
    if array.ndim == 2:
        return Trajectories([array], "rows", title=title)
    if array.ndim == 1 and single:
        return Trajectories([array[None]], "row", title=title)
    column = f"{title}.to_frame()" if is_series(x) else f"{title}.reshape(-1, 1)"
    hint = f"; for a single component, {column}" if array.ndim == 1 else ""
    raise InputError(f"{title} has shape {array.shape}: {FORMS}{hint}")


def _listed(x: Sequence[Any], whole: bool, title: str) -> Trajectories:
    parts: list[NDArray[np.float64]] = []
    tables: list[Table | None] = []
    for i, entry in enumerate(x):
        tables.append(read_table(entry, f"{title}[{i}]", whole=whole) if is_table(entry) else None)
        table = tables[-1]
        parts += [array_of(entry, f"{title}[{i}]")] if table is None else _split(table)
    given = Trajectories(parts, "list", _common_names(tables), tuple(tables), title)
    for i, part in enumerate(parts):
        if part.ndim != 2:
            raise InputError(
                f"{given.label(i)} has shape {part.shape}: in a list, give (T_i, n) arrays"
            )
    given.check_features(parts[0].shape[1], f"the list, by {title}[0],")
    return given


def _split(table: Table) -> list[NDArray[np.float64]]:
    """The states of each segment."""
    return np.split(array_of(table.states, table.title), table.bounds[:-1])


def check_names(
    names: tuple[str, ...] | None, expected: tuple[str, ...] | None, title: str
) -> None:
    """Refuse columns with other names, or in another order, than those of the training."""
    if names is not None and expected is not None and names != expected:
        raise InputError(
            f"{title} has the columns {short(list(names))} but the model was trained on "
            f"{short(list(expected))}: give the same columns in the same order"
        )


def array_of(x: Any, label: str) -> NDArray[np.float64]:
    """A float64 array of finite numbers with at least one column."""
    plain = _plain(x, label)
    try:
        array = plain.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{label} is not an array of real numbers ({error}): give numbers"
        ) from None
    if array.ndim and array.shape[-1] == 0:
        raise InputError(
            f"{label} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required. "
            "Give at least one component"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        *where, column = bad[0].tolist() if array.ndim else (0,)
        value = "NaN" if np.isnan(array[tuple(bad[0])]) else "inf"
        place = f"{label}[{where[0]}]" if len(where) > 1 else label
        row = f" in row {where[-1]}" if where else ""
        known = label.partition("[")[0] in ("U", "future", "past")
        remedy = "give every known input a number" if known else STATES
        raise InputError(f"{place} has {value}{row}, column {column}: {remedy}")
    return array


def windows_of(part: NDArray[np.float64], window: int, inputs: int = 0) -> NDArray[np.float64]:
    """All windows of consecutive rows, each flat, oldest row first: (T − window + 1, window n).

    Arguments:
        inputs: how many columns, the last ones, are inputs; those between a window's states stand
            before the states (`koopman.kind`).
    """
    if inputs:
        states, rest = windows_of(part[:, :-inputs], window), windows_of(part[:, -inputs:], window)
        return np.hstack([rest[:, : (window - 1) * inputs], states])
    view = sliding_window_view(part, window, axis=0)
    return view.swapaxes(1, 2).reshape(len(view), -1)


def _plain(x: Any, label: str) -> NDArray[Any]:
    if hasattr(x, "toarray"):
        raise InputError(f"{label} is a sparse array: give a dense one, {label}.toarray()")
    if np.ma.is_masked(x):
        raise InputError(f"{label} has masked entries: fill or cut them first")
    try:
        array = np.asarray(x)
    except ValueError:
        raise InputError(f"{label} has rows of different lengths: {FORMS}") from None
    if array.dtype.kind == "c":
        raise InputError(f"{label} has complex entries. Complex data not supported: give real ones")
    if array.dtype.kind not in "biufO":
        raise InputError(f"{label} holds {array.dtype} entries: give real numbers")
    return array


def _has_rows(x: Any) -> bool:
    """Whether an entry of a list is a whole trajectory rather than a row."""
    if is_table(x):
        return True
    if hasattr(x, "shape"):
        return len(x.shape) == 2
    return (
        isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], list | tuple | np.ndarray)
    )


def _common_names(tables: Sequence[Table | None]) -> tuple[str, ...] | None:
    found = [None if table is None else table.names for table in tables]
    for i, names in enumerate(found):
        if names is not None and found[0] is not None and names != found[0]:
            raise InputError(
                f"X[{i}] has the columns {short(list(names))} but X[0] has "
                f"{short(list(found[0]))}: give the same columns in the same order"
            )
    return found[0]
