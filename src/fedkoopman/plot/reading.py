"""What users hand over to be drawn, read as plain arrays: trajectories with names and times."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short, unknown_name

Matrix = NDArray[np.float64]
BOOKKEEPING = ("segment", "time", "step")


@dataclass(frozen=True)
class Paths:
    """Trajectories of states.

    Attributes:
        parts: (T_i, d) each.
        names: of the states; empty where unknown.
        times: of every part's rows; None where nothing tells.
    """

    parts: list[Matrix]
    names: tuple[str, ...] = ()
    times: list[Matrix] | None = None


def paths_of(given: Any, title: str = "X") -> Paths:
    """Trajectories from an array (T, d) or (B, T, d), a list of arrays, or a DataFrame."""
    if hasattr(given, "columns") and hasattr(given, "iloc"):
        return _of_frame(given, title)
    if hasattr(given, "mean") and hasattr(given, "cov"):  # estimates and forecasts
        return Paths(paths_of(given.mean, title).parts, tuple(getattr(given, "names", None) or ()))
    ragged = isinstance(given, list | tuple) and given and np.ndim(given[0]) == 2
    try:
        parts = [np.asarray(part, float) for part in given] if ragged else np.asarray(given, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{title} is {short(given)}: give states (T, d), or many such") from error
    if isinstance(parts, np.ndarray):
        parts = list(parts) if parts.ndim == 3 else [parts[:, None] if parts.ndim == 1 else parts]
    dims = {part.shape[1] for part in parts if part.ndim == 2}
    if not parts or len(dims) != 1 or any(part.ndim != 2 for part in parts):
        raise InputError(f"{title} has rows of {sorted(dims)} states: give states (T, d)")
    return Paths(parts)


def _of_frame(frame: Any, title: str) -> Paths:
    """A table, whose segments are told apart by their column and whose times by theirs."""
    table = frame.reset_index() if set(frame.index.names) & {"segment", "time"} else frame
    names = [name for name in table.columns if name not in BOOKKEEPING]
    names = [n for n in names if not (str(n).endswith("_std") and str(n)[:-4] in names)]
    if not names or not len(table):
        raise InputError(f"{title} has no states: give a table with a row per sample")
    whole = [table]
    if "segment" in table.columns:
        whole = [part for _, part in table.groupby("segment", sort=False)]
    times = None
    if "time" in table.columns and table["time"].dtype.kind in "iuf":
        times = [part["time"].to_numpy(float) for part in whole]
    parts = [part[names].to_numpy(float) for part in whole]
    return Paths(parts, tuple(map(str, names)), times)


def chosen(states: Any, dim: int, names: Sequence[str]) -> list[int]:
    """The places of states that are asked for by name or index; all for None."""
    if states is None:
        return list(range(dim))
    several = [states] if isinstance(states, str) or np.ndim(states) == 0 else list(states)
    places = []
    for one in several:
        if isinstance(one, str):
            if one not in names:
                raise unknown_name("state", one, names)
            places.append(names.index(one))
        elif isinstance(one, int | np.integer) and -dim <= one < dim:
            places.append(int(one) % dim)
        else:
            raise InputError(f"states has {short(one)}: give indices below {dim}, or names")
    if not places:
        raise InputError("states is empty: name at least one")
    return places


def state_names(known: Any, dim: int) -> tuple[str, ...]:
    """Names of the states; x1, x2, … where they have none."""
    names = tuple(map(str, known)) if known is not None else ()
    return names if len(names) == dim else tuple(f"x{i + 1}" for i in range(dim))


def model_of(given: Any) -> Any:
    """A fitted model: what is given, or the model of a run; None if it is neither."""
    if hasattr(given, "all_records"):
        return given.model
    return given if hasattr(given, "eigenvalues_") else None


def words_of(model: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and units of a model's states."""
    dim = model.n_features_in_
    names = state_names(getattr(model, "feature_names_in_", None), dim)
    return names, tuple(model.units_ or ("",) * dim)
