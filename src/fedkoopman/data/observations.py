"""Sites' files: observations from CSV, Parquet, NPY, NPZ and MAT, read as a whole.

A table (CSV, Parquet) has one row per sample and one column per observed component; blank and NaN
cells are missing observations. A column `segment` divides it into trajectories, a column `time`
gives the sampling instants. An array is (T, m) or (B, T, m); an NPZ holds one array per trajectory.
A MAT file holds variables that are its columns, or one matrix (T, m). For files larger than memory
see `segments`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedkoopman.config.source_file import check_source
from fedkoopman.data.array_files import as_samples, npy_array, npz_arrays
from fedkoopman.data.tables import BOOKKEEPING, Table, open_table
from fedkoopman.data.variable_files import find_variable, read_variables
from fedkoopman.errors import InputError

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
    """

    source: str
    trajectories: tuple[np.ndarray, ...]
    labels: tuple[str, ...] | None = None
    times: tuple[np.ndarray, ...] | None = None

    @property
    def dim(self) -> int:
        """Number m of observed components."""
        return int(self.trajectories[0].shape[1])

    @property
    def rows(self) -> int:
        """Number of samples in all trajectories."""
        return sum(len(z) for z in self.trajectories)

    def where(self, index: int) -> str:
        """Names one trajectory, for messages."""
        return (
            self.source if self.labels is None else f"segment {self.labels[index]} of {self.source}"
        )

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


def read_observations(
    path: Path,
    *,
    columns: Sequence[str] | None = None,
    segment_column: str | None = None,
    time_column: str | None = None,
) -> Observations:
    """Read a site's observations; the format goes by the file's suffix.

    Arguments:
        path: a .csv, .parquet, .npy, .npz or .mat file.
        columns: a table's columns in the sensor's order; None takes all but `segment`, `step` and
            `time`.
        segment_column: the column that divides a table into trajectories; None takes `segment`
            where there is one.
        time_column: the column with the sampling instants; None takes `time` where there is one.
    """
    check_source(path, str(path))
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        for option, value in (("segment", segment_column), ("time", time_column)):
            if value is not None:
                raise InputError(
                    f"{path.name} has no {option} column {value!r}: arrays have no named columns"
                )
        found = _read_arrays(path)
    elif suffix == ".mat":
        found = _read_mat(path, columns, segment_column, time_column)
    else:
        found = _read_table(open_table(path), columns, segment_column, time_column)
    _check(found)
    return found


def _read_table(
    table: Table,
    columns: Sequence[str] | None,
    segment_column: str | None,
    time_column: str | None,
) -> Observations:
    segment = table.find(segment_column, "segment")
    time = table.find(time_column, "time")
    if columns is None:
        aside = {*BOOKKEEPING, segment, time}
        columns = [name for name in table.names if name not in aside]
        if not columns:
            raise InputError(
                f"{table.path.name} has no column of observations, only {', '.join(table.names)}"
            )
    for name in columns:
        table.find(name, None)
    if len(set(columns)) < len(columns):
        raise InputError(f"columns {', '.join(columns)} name one column twice: name each once")

    numbers = [*columns] + ([time] if time else [])
    values, segments = table.read(numbers, segment)
    z = np.column_stack([values[name] for name in columns])
    t = values[time] if time else None
    source = table.path.name
    return _divided(source, z, t, segments)


def _divided(
    source: str,
    z: np.ndarray,
    t: np.ndarray | None,
    segments: tuple[list[str], np.ndarray] | None,
) -> Observations:
    """Rows sorted into trajectories, which may be interleaved."""
    if segments is None:
        return Observations(source, (z,), None, None if t is None else (t,))
    labels, owner = segments
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=len(labels)))[:-1]
    times = None if t is None else tuple(np.split(t[order], ends))
    return Observations(source, tuple(np.split(z[order], ends)), tuple(labels), times)


def _read_mat(
    path: Path,
    columns: Sequence[str] | None,
    segment_column: str | None,
    time_column: str | None,
) -> Observations:
    segment = find_variable(path, path.name, segment_column, "segment")
    time = find_variable(path, path.name, time_column, "time")
    found = read_variables(path, path.name, tuple(columns or ()), (), segment, time)
    width = len(found.channels)
    t = found.values[:, -1] if time else None
    if found.labels is None:
        return _divided(path.name, found.values[:, :width], t, None)
    labels, first, owner = np.unique(found.labels, return_index=True, return_inverse=True)
    rank = np.argsort(first)  # in order of appearance
    place = np.argsort(rank)
    named = [str(label) for label in labels[rank]]
    return _divided(path.name, found.values[:, :width], t, (named, place[owner]))


def _read_arrays(path: Path) -> Observations:
    if path.suffix.lower() == ".npy":
        arrays = {"": npy_array(path, str(path))}
    else:
        arrays = dict(npz_arrays(path, str(path)))
    trajectories: list[np.ndarray] = []
    for key, raw in arrays.items():
        name = f"array {key!r} of {path.name}" if key else path.name
        if raw.ndim == 3 and len(arrays) == 1:
            parts = tuple(np.array(as_samples(part, name), np.float64) for part in raw)
            return Observations(path.name, parts, tuple(str(i) for i in range(len(raw))))
        trajectories.append(np.array(as_samples(raw, name), np.float64))
    return Observations(path.name, tuple(trajectories), tuple(arrays) if len(arrays) > 1 else None)


@np.errstate(over="ignore", invalid="ignore")  # of times beyond all measure
def _check(found: Observations) -> None:
    if not found.trajectories or not found.rows:
        raise InputError(f"{found.source} has no rows: it needs at least one sample")
    for i, z in enumerate(found.trajectories):
        where = found.where(i)
        if not z.size:
            raise InputError(f"{where} has shape {z.shape}: it needs at least one sample")
        if z.shape[1] != found.dim:
            raise InputError(
                f"{where} has {z.shape[1]} components but {found.where(0)} has {found.dim}: "
                "all trajectories of a file are seen by one sensor"
            )
        if np.isinf(z).any():
            row, column = np.argwhere(np.isinf(z))[0] + 1
            raise InputError(
                f"{where} holds {z[row - 1, column - 1]} in sample {row}, component {column}: "
                "leave a missing observation blank or NaN"
            )
        if found.times is not None:
            t = found.times[i]
            bad = np.flatnonzero(~(np.diff(t, prepend=-np.inf) > 0) | ~np.isfinite(t))
            if len(bad):
                raise InputError(
                    f"{where} has time {t[bad[0]]} in sample {bad[0] + 1}: "
                    "times must be numbers that increase"
                )
    if all(np.isnan(z).all() for z in found.trajectories):
        raise InputError(f"every observation in {found.source} is missing: check its columns")
