"""The forms in which users give trajectories, and every check of them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short

FORMS = "give (T, n), (N, T, n) or a list of (T_i, n), rows being time"


@dataclass(frozen=True, eq=False)
class Trajectories:
    """One or more arrays of rows, and the form in which they came.

    Attributes:
        parts: (T_i, n), float64 and finite.
        form: a single row (n,), the rows (T, n) of one trajectory, a stack (N, T, n) or a list.
        names: of the columns, where the input was a table that has them.
    """

    parts: list[NDArray[np.float64]]
    form: Literal["row", "rows", "stack", "list"]
    names: tuple[str, ...] | None = None

    def label(self, i: int) -> str:
        """What a message calls trajectory i."""
        return f"X[{i}]" if self.form in ("stack", "list") else "X"

    def like(self, joined: NDArray[Any], lengths: list[int]) -> Any:
        """Results for all parts, joined, in the form in which the parts came."""
        pieces = np.split(joined, np.cumsum(lengths)[:-1])
        if self.form == "row":
            return pieces[0][0]
        if self.form == "rows":
            return pieces[0]
        return np.stack(pieces) if self.form == "stack" else pieces

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
        if self.names is not None and expected is not None and self.names != expected:
            raise InputError(
                f"X has the columns {short(list(self.names))} but the model was trained on "
                f"{short(list(expected))}: give the same columns in the same order"
            )

    def check_lengths(self, least: int, needed_by: str) -> None:
        """Refuse trajectories that are too short."""
        for i, part in enumerate(self.parts):
            if len(part) < least:
                count = f"{len(part)} sample{'' if len(part) == 1 else 's'}"
                raise InputError(
                    f"{self.label(i)} has {count}, but {needed_by} needs at least {least}: "
                    "give a longer trajectory or leave this one out"
                )


def as_trajectories(x: Any, *, single: bool = False) -> Trajectories:
    """Check what the user gave.

    Arguments:
        single: whether one row (n,) will do.
    """
    if isinstance(x, list | tuple) and len(x) and _has_rows(x[0]):
        parts = [array_of(part, f"X[{i}]") for i, part in enumerate(x)]
        given = Trajectories(parts, "list", _common_names(x))
        for i, part in enumerate(parts):
            if part.ndim != 2:
                raise InputError(f"X[{i}] has shape {part.shape}: in a list, give (T_i, n) arrays")
        given.check_features(parts[0].shape[1], "the list, by X[0],")
        return given
    array = array_of(x, "X")
    if array.ndim == 3 and len(array):
        return Trajectories(list(array), "stack")
    if array.ndim == 2:
        return Trajectories([array], "rows", _names(x))
    if array.ndim == 1 and single:
        return Trajectories([array[None]], "row")
    hint = "; for a single component, X.reshape(-1, 1)" if array.ndim == 1 else ""
    raise InputError(f"X has shape {array.shape}: {FORMS}{hint}")


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
            "Give at least one state component"
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        *where, column = bad[0].tolist() if array.ndim else (0,)
        value = "NaN" if np.isnan(array[tuple(bad[0])]) else "inf"
        place = f"{label}[{where[0]}]" if len(where) > 1 else label
        row = f" in row {where[-1]}" if where else ""
        raise InputError(
            f"{place} has {value}{row}, column {column}: estimate the states first with "
            "fk.estimate, which takes missing observations, or cut the trajectory there"
        )
    return array


def windows_of(part: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """All windows of consecutive rows, each flat, oldest row first: (T − window + 1, window n)."""
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
    if hasattr(x, "shape"):
        return len(x.shape) == 2
    return (
        isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], list | tuple | np.ndarray)
    )


def _names(x: Any) -> tuple[str, ...] | None:
    columns = getattr(x, "columns", None)
    names = () if columns is None else tuple(columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def _common_names(parts: Any) -> tuple[str, ...] | None:
    found = [_names(part) for part in parts]
    for i, names in enumerate(found):
        if names is not None and found[0] is not None and names != found[0]:
            raise InputError(
                f"X[{i}] has the columns {short(list(names))} but X[0] has "
                f"{short(list(found[0]))}: give the same columns in the same order"
            )
    return found[0]
