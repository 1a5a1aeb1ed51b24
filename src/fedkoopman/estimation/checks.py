"""Every check of what a user passes to an estimation, and the shapes it is brought to.

Everything that can be wrong with the input is found here, before anything is compiled, and reported
with the argument's name, its value and a remedy.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from fedkoopman.covariance import covariance
from fedkoopman.errors import InputError
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


def observations(z: Any, m: int) -> tuple[np.ndarray, np.ndarray | None, str]:
    """z as (B, T, m), the lengths of ragged trajectories, and the form it came in."""
    if isinstance(z, list | tuple) and len(z) and _is_trajectory(z[0]):
        parts = [_numbers(part, f"z[{i}]") for i, part in enumerate(z)]
        for i, part in enumerate(parts):
            _check_trajectory(part, m, f"z[{i}]")
        lengths = np.array([len(part) for part in parts])
        padded = np.full((len(parts), lengths.max(), m), np.nan)
        for row, part in zip(padded, parts, strict=True):
            row[: len(part)] = part
        return padded, lengths if np.ptp(lengths) else None, "list"
    array = _numbers(z, "z")
    if array.ndim == 2:
        _check_trajectory(array, m, "z")
        return array[None], None, "single"
    if array.ndim == 3:
        if len(array) == 0:
            raise InputError("z has shape (0, …): a batch needs at least one trajectory")
        if array.shape[1] == 0 or array.shape[2] != m:
            _check_trajectory(array.reshape(-1, array.shape[-1]), m, "z")
        if np.isinf(array).any():
            b = int(np.argwhere(np.isinf(array))[0][0])
            _check_trajectory(array[b], m, f"z[{b}]")
        return array, None, "batch"
    hint = "; for one component pass z[:, None]" if array.ndim == 1 else ""
    raise InputError(
        f"z has shape {array.shape}: give (T, {m}) for one trajectory, (B, T, {m}) for a batch "
        f"or a list of (T_i, {m}){hint}"
    )


def _is_trajectory(value: Any) -> bool:
    """Whether a member of a list is a trajectory of its own (and not a row of numbers)."""
    try:
        return np.ndim(value) == 2
    except ValueError:  # rows of different lengths: `_numbers` will say so
        return True


def _numbers(value: Any, name: str) -> np.ndarray:
    try:
        if np.iscomplexobj(value):
            raise InputError(f"{name} has complex numbers: give real ones, a column for each part")
        return np.asarray(value, dtype=np.float64)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        cause = " ".join(str(error).split())[:120]
        raise InputError(f"{name} is not an array of numbers ({cause}): convert it first") from None


def _check_trajectory(z: np.ndarray, m: int, name: str) -> None:
    if z.ndim != 2:
        raise InputError(f"{name} has shape {z.shape}: a trajectory is (T, {m}), rows are time")
    if z.shape[1] != m:
        raise InputError(
            f"{name} has {z.shape[1]} columns (shape {z.shape}) but its sensor observes {m}: "
            "rows are time, columns are the sensor's components"
        )
    if len(z) == 0:
        raise InputError(f"{name} has no rows: at least one observation is needed")
    if np.isinf(z).any():
        row, column = np.argwhere(np.isinf(z))[0]
        raise InputError(
            f"{name} is infinite at row {row}, column {column}: use NaN for a missing value"
        )


def first_state(value: Any, n: int, batch: int) -> np.ndarray:
    """initial_mean as (B, n)."""
    if value is None:
        return np.zeros((batch, n))
    mean = _numbers(value, "initial_mean")
    if mean.shape not in {(n,), (batch, n)}:
        raise InputError(
            f"initial_mean has shape {mean.shape}: give ({n},) or one row per trajectory, "
            f"({batch}, {n})"
        )
    if not np.isfinite(mean).all():
        raise InputError(f"initial_mean is not finite: {mean.tolist()}")
    return mean[None] if mean.ndim == batch == 1 else np.broadcast_to(mean, (batch, n))


def first_cov(value: Any, n: int, batch: int) -> np.ndarray:
    """initial_cov as (B, n, n)."""
    cov = covariance(1.0 if value is None else value, n, "initial_cov")
    if cov.ndim > 3 or (cov.ndim == 3 and len(cov) != batch):
        raise InputError(
            f"initial_cov has shape {cov.shape}: give a variance, ({n},), ({n}, {n}) or one "
            f"matrix per trajectory, ({batch}, {n}, {n})"
        )
    return cov[None] if batch == 1 and cov.ndim == 2 else np.broadcast_to(cov, (batch, n, n))


def noise(value: Any, n: int, name: str, batch: int, steps: int) -> np.ndarray:
    """A noise covariance as (n, n), (T, n, n), (B or 1, T, n, n), or (B or 1, 1, n, n) where it
    does not change with time."""
    cov = covariance(value, n, name)
    if cov.ndim == 3 and len(cov) != steps:
        raise InputError(
            f"{name} has {len(cov)} matrices but z has {steps} steps: give one per step"
        )
    if cov.ndim == 4 and (cov.shape[0] not in (1, batch) or cov.shape[1] not in (1, steps)):
        raise InputError(
            f"{name} has shape {cov.shape}: per trajectory and step it is "
            f"({batch}, {steps} or 1, {n}, {n})"
        )
    return cov


def per_step(value: Any, name: str, shape: tuple[int, ...], batch: int) -> np.ndarray:
    """inputs or intervals, for all trajectories (T, …) or for each (B, T, …)."""
    array = _numbers(value, name)
    if array.shape not in {shape, (batch, *shape)}:
        raise InputError(f"{name} has shape {array.shape}: give {shape} or {(batch, *shape)}")
    if not np.isfinite(array).all():
        raise InputError(f"{name} is not finite: a known input cannot be missing")
    return np.broadcast_to(array, (batch, *shape))


def intervals(value: Any, steps: int, batch: int) -> np.ndarray:
    """Intervals between observations as (B, T), all positive."""
    if isinstance(value, int | float | np.integer | np.floating):
        value = np.full(steps, float(value))
    dt = per_step(value, "dt", (steps,), batch)
    if (dt <= 0).any():
        b, k = np.argwhere(dt <= 0)[0]
        raise InputError(
            f"dt is {dt[b, k]:g} at step {k}: intervals must be positive, sort by time"
        )
    return dt


def first_of(value: Any, kind: type, name: str) -> Any:
    """The system or sensor itself, or the first of a list of them."""
    first = value[0] if isinstance(value, Sequence) and value else value
    return one_or_each(first, kind, name, 1)


def check_inputs(system: System, inputs: Any) -> None:
    """Inputs must be given if and only if the system takes them."""
    if inputs is None and system.input_dim:
        raise InputError(
            f"the system takes {system.input_dim} inputs but none were given: pass inputs=(T, "
            f"{system.input_dim})"
        )
    if inputs is not None and not system.input_dim:
        raise InputError("inputs were given but the system takes none: drop them")


def only_one(value: Any, kind: type, name: str) -> Any:
    """A system or sensor, and not a list of them."""
    if isinstance(value, list | tuple):
        raise InputError(f"{name} is a {type(value).__name__}: give a single {name}")
    return one_or_each(value, kind, name, 1)


def one_row(value: Any, m: int) -> np.ndarray:
    """A single observation (m,)."""
    z = _numbers(value, "z")
    if z.shape != (m,):
        raise InputError(f"z has shape {z.shape}: one observation of this sensor is ({m},)")
    if np.isinf(z).any():
        raise InputError(f"z is infinite in {z.tolist()}: use NaN for a missing value")
    return z


def one_or_each(value: Any, kind: type, name: str, batch: int) -> Any:
    """A system or sensor for all trajectories, or a list with one for each."""
    if isinstance(value, kind):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(v, kind) for v in value):
        if len(value) != batch:
            raise InputError(f"{len(value)} {name}s were given for {batch} trajectories")
        return list(value)
    raise InputError(
        f"{name} is a {type(value).__name__}, not a {kind.__name__}: see fedkoopman.{name}s"
    )


def same_dimensions(system: Any, sensor: Any) -> None:
    """The systems (sensors) of a batch are of one dimension, and each sensor sees such states."""
    systems = system if isinstance(system, list) else [system]
    sensors = sensor if isinstance(sensor, list) else [sensor]
    for name, members in (("system", systems), ("sensor", sensors)):
        for i, member in enumerate(members):
            if member.dim != members[0].dim:
                raise InputError(
                    f"{name} {i} has dimension {member.dim} but {name} 0 has {members[0].dim}: "
                    "estimate each kind in its own call"
                )
    for one in sensors:
        sensor_sees(one, systems[0].dim)


def sensor_sees(sensor: Sensor, n: int) -> None:
    """Refuse a sensor that does not take the system's states or returns another shape."""
    leaves, structure = jax.tree.flatten(sensor)
    _sees(structure, tuple(np.shape(leaf) for leaf in leaves), n)


@lru_cache(maxsize=256)
def _sees(structure: Any, shapes: tuple[tuple[int, ...], ...], n: int) -> None:
    # Tracing a user's function takes a millisecond, so each kind of sensor is checked once.
    jax.tree.unflatten(structure, [np.zeros(shape) for shape in shapes]).check_state(n)
