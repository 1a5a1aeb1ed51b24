"""Files of states for a learned model: its states by name, or arrays of its width."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkoopman.data.observations import Observations, read_observations
from fedkoopman.data.tables import BOOKKEEPING, open_table
from fedkoopman.errors import InputError
from fedkoopman.koopman.fitted import Fitted

__all__ = ["read_states"]

TABLES = (".csv", ".parquet")


def read_states(
    path: Path,
    model: Fitted,
    *,
    columns: Sequence[str] | None = None,
    segment_column: str | None = None,
    time_column: str | None = None,
) -> tuple[Observations, list[np.ndarray] | None]:
    """States for a model, and their standard deviations where a table has NAME_std columns.

    Arguments:
        path: a table with the model's states as columns, or arrays (T, d) or (B, T, d).
        columns: a table's columns in the model's order; None takes those of the states' names.
        segment_column, time_column: as for `read_observations`.
    """
    dim = model.learned_.architecture.state_dim
    stds: tuple[str, ...] = ()
    if path.suffix.lower() in TABLES and path.is_file() and path.stat().st_size:
        table = open_table(path)
        if columns is None:
            columns = _state_columns(table.names, model, path.name)
        stds = tuple(f"{name}_std" for name in columns)
        stds = stds if set(stds) <= set(table.names) else ()
    found = read_observations(
        path,
        columns=None if columns is None else [*columns, *stds],
        segment_column=segment_column,
        time_column=time_column,
    )
    if found.dim - len(stds) != dim:
        raise InputError(
            f"{found.source} has {found.dim - len(stds)} components but the model has {dim} "
            "states: give states, or raw observations with --sensor"
        )
    for i, rows in enumerate(found.trajectories):
        if np.isnan(rows).any():
            raise InputError(
                f"{found.where(i)} has no state in sample {np.isnan(rows).any(axis=1).argmax() + 1}"
                ": estimate the missing states first, or give raw observations with --sensor"
            )
    states = replace(found, trajectories=tuple(rows[:, :dim] for rows in found.trajectories))
    return states, [rows[:, dim:] for rows in found.trajectories] if stds else None


def _state_columns(names: Sequence[str], model: Fitted, source: str) -> list[str]:
    """Which columns of a table are the model's states."""
    wanted = model.learned_.names
    if wanted is None:
        return [n for n in names if n not in BOOKKEEPING and not n.endswith("_std")]
    for name in wanted:
        if name not in names:
            raise InputError(
                f"{source} has no column {name!r}, which is a state of the model (columns: "
                f"{', '.join(names)}): name the states by --columns, or give raw observations with "
                "--sensor"
            )
    return list(wanted)
