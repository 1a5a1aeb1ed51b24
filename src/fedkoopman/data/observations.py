"""A user's file in memory: observations or states as they were recorded, and estimated states.

Segments are whole and at their own instants. For files larger than memory, and for segments on a
study's grid, see `segments`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.config.formats import check_source
from fedkoopman.config.sensor_file import in_flat_words, site_of_file
from fedkoopman.config.site_file import AUTO, SiteFile
from fedkoopman.data.arrays import Variables
from fedkoopman.data.row_blocks import BOOKKEEPING, Recording, open_recording, wanted_of
from fedkoopman.data.segments import recorded
from fedkoopman.data.time_grid import acting, grid_places
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

if TYPE_CHECKING:
    from fedkoopman.koopman.fitted import Fitted

REGULAR = 0.01
"""Sampling intervals this close to each other, relatively, count as one regular interval."""


@dataclass(frozen=True)
class Observations:
    """What a site observed.

    Attributes:
        source: the file's name, for messages.
        trajectories: arrays (T_i, m), NaN where an observation is missing.
        labels: the name of each trajectory; None for one trajectory without a name.
        times: the sampling instants (T_i,) of each trajectory, where the file has them.
        inputs: the known inputs (T_i, u), as they stand in the rows; None without.
        hold: when a row's inputs act, "until" the row or "from" it on.
    """

    source: str
    trajectories: tuple[np.ndarray, ...]
    labels: tuple[str, ...] | None = None
    times: tuple[np.ndarray, ...] | None = None
    inputs: tuple[np.ndarray, ...] | None = None
    hold: str = "until"

    @property
    def dim(self) -> int:
        """Number m of observed components."""
        return int(self.trajectories[0].shape[1])

    def where(self, index: int) -> str:
        """Names one trajectory, for messages."""
        return (
            self.source if self.labels is None else f"segment {self.labels[index]} of {self.source}"
        )

    def acting(self, dt: float | None = None) -> list[np.ndarray] | None:
        """The inputs that act until each sample and from the last one on, (T_i + 1, u); None
        without.

        Arguments:
            dt: of a grid on which the samples lie; None takes them one after the other.
        """
        if self.inputs is None:
            return None
        found = []
        for i, u in enumerate(self.inputs):
            times = None if dt is None or self.times is None else self.times[i]
            count = len(u) if times is None else int(grid_places(times, dt or 1.0)[0][-1]) + 1
            found.append(acting(u, self.hold, times, dt or 1.0, count))
        return found

    @np.errstate(over="ignore", invalid="ignore")  # of times beyond all measure, refused as inf
    def intervals(self) -> float | tuple[np.ndarray, ...] | None:
        """Sampling intervals: one number if regular, else an array (T_i,) per trajectory.

        None without times, or without two of them in any trajectory. The instant before a
        trajectory's first sample is not in the file: the interval that leads to the first sample
        is the trajectory's median one, or the file's where it has a single sample.
        """
        steps = [np.diff(t) for t in self.times or ()]
        together = np.concatenate([*steps, []])
        if not together.size:
            return None
        mean = float(np.mean(together))
        if np.all(np.abs(together - mean) <= REGULAR * mean):
            return mean
        usual = np.median(together)
        return tuple(np.concatenate([[np.median(d) if len(d) else usual], d]) for d in steps)


def filled(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays (T_i, u) as one (B, T, u), shorter ones filled up with their last rows."""
    longest = max(map(len, parts))
    room = [((0, longest - len(part)), (0, 0)) for part in parts]
    return np.stack([np.pad(part, r, "edge") for part, r in zip(parts, room, strict=True)])


@dataclass(frozen=True)
class SiteStates:
    """Estimated trajectories of one site. Lists have one entry per trajectory.

    Attributes:
        names, units: of the states; a unit is "1" or "" where there is none.
        labels: the trajectories' names; None for one trajectory without a name.
        times: (T_i,), in the system's unit of time.
        means: (T_i, d), NaN for a trajectory on which the filter diverged.
        covs: (T_i, d, d), likewise.
        observed: (T_i, d), as observed where the sensor shows a state by itself; NaN elsewhere.
        ok: whether the filter stayed finite on each trajectory.
        log_likelihood: of all samples of the trajectories that are ok.
        consistency: whether the innovations are as large as the filter says, in words; None for the
            paper's `ukf`, which cannot be judged so (its innovation covariance lacks Q).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    labels: tuple[str, ...] | None
    times: list[np.ndarray]
    means: list[np.ndarray]
    covs: list[np.ndarray]
    observed: list[np.ndarray]
    ok: np.ndarray
    log_likelihood: float
    consistency: str | None = None

    @property
    def stds(self) -> list[np.ndarray]:
        """Standard deviations (T_i, d)."""
        return [np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1)) for cov in self.covs]

    @property
    def samples(self) -> int:
        """Number of samples in the trajectories that are ok."""
        return sum(len(t) for t, ok in zip(self.times, self.ok, strict=True) if ok)

    @property
    def diverged(self) -> list[str]:
        """Names of the trajectories on which the filter diverged."""
        names = self.labels or ("1",)
        return [name for name, ok in zip(names, self.ok, strict=True) if not ok]

    @property
    def summary(self) -> str:
        """How well the model explains the observations, in one phrase."""
        likelihood = f"log-likelihood per sample {self.log_likelihood / self.samples:.3f}"
        return likelihood if self.consistency is None else f"{likelihood}, {self.consistency}"


def observations_of(site: SiteFile) -> Observations:
    """Read the one file of a site, as `config.sensor_file` makes them."""
    [path] = site.files()
    found = list(recorded(site))
    labels = tuple(rows.label for rows in found if rows.label is not None)
    times = tuple(rows.times for rows in found if rows.times is not None)
    data = site.data
    return Observations(
        shown(path),
        tuple(rows.observed * data.scale + np.asarray(data.shift) for rows in found),
        labels or None,
        times or None,
        tuple(rows.inputs for rows in found if rows.inputs is not None) or None,
        data.hold,
    )


def columns_taken(site: SiteFile, otherwise: str = 'data.{} = ""') -> str:
    """What is to be told of columns that serve as segments or instants though nobody named them.

    Arguments:
        otherwise: how to do without, with braces in place of "segment" or "time".
    """
    uses = {"segment": "tells segments apart", "time": "gives the sampling instants"}
    asked = [key for key in uses if getattr(site.data, key) == AUTO]
    for path in site.files() if asked else ():
        wanted = wanted_of(open_recording(path, site.data.columns), site.data, shown(path))
        taken = [key for key in asked if getattr(wanted, key)]
        if taken:
            said = " and ".join(f"the column {key!r} {uses[key]}" for key in taken)
            remedy = " or ".join(otherwise.format(key) for key in taken)
            return f"in {shown(path)} {said}: give {remedy} to do without"
    return ""


def read_states(
    path: Path,
    model: "Fitted",
    *,
    columns: tuple[str, ...] = (),
    inputs: tuple[str, ...] | None = (),
    **about: Any,
) -> tuple[SiteFile, Observations, list[np.ndarray] | None]:
    """States for a model with its inputs, and their standard deviations where a table has columns
    NAME_std.

    Arguments:
        path: a file with the model's states as columns, or arrays (T, d) or (B, T, d).
        columns: the file's columns in the model's order; empty takes those of the states' names.
        inputs: the file's columns of inputs in the model's order; empty takes those of the inputs'
            names, None reads states alone.
        about: as of `sensor_file.site_of_file`; the site that this makes comes first.
    """
    dim = model.learned_.architecture.state_dim
    with in_flat_words():
        check_source(path, shown(path))
        recording = open_recording(path, columns)
        names = recording.names
        inputs = () if inputs is None else inputs or _input_columns(names, model, path.name)
        site = site_of_file(path, columns=columns, inputs=inputs, **about)
        columns = columns or _state_columns(recording, model, path.name, inputs)
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


def read_inputs(path: Path, model: "Fitted") -> np.ndarray:
    """The inputs (T, m) in a file, by the model's names for them or as its only columns."""
    if not model.n_inputs_:
        raise InputError(f"{path.name} holds inputs, but the model has none: leave it out")
    with in_flat_words():
        check_source(path, shown(path))
        names, wanted = open_recording(path, ()).names, model.input_names_ or ()
        columns = wanted if set(wanted) <= set(names) else ()
        found = observations_of(site_of_file(path, columns=columns))
    rows = found.trajectories[0]
    if len(found.trajectories) > 1 or rows.shape[1] != model.n_inputs_ or np.isnan(rows).any():
        raise InputError(
            f"{found.source} does not hold one row of {model.n_inputs_} numbers per step: give the "
            f"inputs to come ({_words(model)}), without gaps and as one segment"
        )
    return rows


def _input_columns(names: Sequence[str], model: "Fitted", source: str) -> tuple[str, ...]:
    """Which columns of a file are the model's inputs."""
    wanted = model.input_names_ or ()
    if model.n_inputs_ and not (wanted and set(wanted) <= set(names)):
        raise InputError(
            f"{source} has no columns of the inputs that drive the model ({_words(model)}): name "
            "them by --inputs, in a table with named columns"
        )
    return tuple(wanted)


def _words(model: "Fitted") -> str:
    return ", ".join(model.input_names_ or ()) or f"{model.n_inputs_} of them"


def _state_columns(
    recording: Recording, model: "Fitted", source: str, inputs: Sequence[str]
) -> tuple[str, ...]:
    """Which columns of a file are the model's states; none where columns have no names."""
    names, wanted = recording.names, model.learned_.names
    if isinstance(recording, Variables):  # which may be one matrix of all states
        return wanted if wanted and set(wanted) <= set(names) else ()
    if not names or wanted is None:
        aside = {*BOOKKEEPING, *inputs}
        return tuple(n for n in names if n not in aside and not n.endswith("_std"))
    for name in wanted:
        if name not in names:
            raise InputError(
                f"{source} has no column {name!r}, which is a state of the model (columns: "
                f"{', '.join(names)}): name the states by --columns, or give raw observations with "
                "--sensor"
            )
    return tuple(wanted)
