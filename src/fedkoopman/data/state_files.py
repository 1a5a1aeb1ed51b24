"""Files of states for a learned model: its states by name, or arrays of its width."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedkoopman.config.sensor_file import in_flat_words, site_of_file
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.observations import Observations, observations_of
from fedkoopman.data.row_blocks import BOOKKEEPING, Recording, open_recording
from fedkoopman.data.variables import Variables
from fedkoopman.errors import InputError
from fedkoopman.koopman.fitted import Fitted

__all__ = ["read_states"]


def read_states(
    path: Path,
    model: Fitted,
    *,
    columns: tuple[str, ...] = (),
    segment: str | None = None,
    time: str | None = None,
) -> tuple[SiteFile, Observations, list[np.ndarray] | None]:
    """States for a model, and their standard deviations where a table has NAME_std columns.

    Arguments:
        path: a file with the model's states as columns, or arrays (T, d) or (B, T, d).
        columns: the file's columns in the model's order; empty takes those of the states' names.
        segment, time: as of `sensor_file.site_of_file`; the site that this makes comes first.
    """
    dim = model.learned_.architecture.state_dim
    with in_flat_words():
        site = site_of_file(path, columns=columns, segment=segment, time=time)
        recording = open_recording(path, columns)
        names = recording.names
        columns = columns or _state_columns(recording, model, path.name)
        stds = tuple(f"{name}_std" for name in columns)
        stds = stds if stds and set(stds) <= set(names) else ()
        site = replace(site, data=replace(site.data, columns=(*columns, *stds)))
        found = observations_of(site)
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
    return site, states, [rows[:, dim:] for rows in found.trajectories] if stds else None


def _state_columns(recording: Recording, model: Fitted, source: str) -> tuple[str, ...]:
    """Which columns of a file are the model's states; none where columns have no names."""
    names, wanted = recording.names, model.learned_.names
    if isinstance(recording, Variables):  # which may be one matrix of all states
        return wanted if wanted and set(wanted) <= set(names) else ()
    if not names or wanted is None:
        return tuple(n for n in names if n not in BOOKKEEPING and not n.endswith("_std"))
    for name in wanted:
        if name not in names:
            raise InputError(
                f"{source} has no column {name!r}, which is a state of the model (columns: "
                f"{', '.join(names)}): name the states by --columns, or give raw observations with "
                "--sensor"
            )
    return tuple(wanted)
