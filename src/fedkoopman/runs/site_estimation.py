"""One site's estimation: its observations through its sensor to its states."""

import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.config.parts import sensor_for
from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.beliefs import HEAD, STARTS, initial_state, observation_noise
from fedkoopman.data.filter_beliefs import ENOUGH
from fedkoopman.data.observations import REGULAR, Observations, SiteStates, filled
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import ESTIMATORS, DivergenceWarning, Estimates, estimate, nis
from fedkoopman.estimation.estimates import Arrays
from fedkoopman.estimation.initial import estimated_law, first_law
from fedkoopman.estimation.noise import estimate_noise
from fedkoopman.sensors import LinearSensor, Sensor
from fedkoopman.systems import System, by_name
from fedkoopman.systems.user import check_own_system
from fedkoopman.user_code import is_reference, load_object


def load_system(
    name: str, parameters: Mapping[str, float] | None = None, dt: float | None = None
) -> System:
    """A built-in system by its name, or `file.py:name` of a system of the user's own.

    Arguments:
        dt: the longest sampling interval, from which a built-in system chooses the sub-steps of
            its one-step map; a user's system has chosen its own.
    """
    found = load_object(name, Path.cwd()) if is_reference(name) else None
    if found is None or (isinstance(found, type) and issubclass(found, System)):
        return by_name(name, **({} if dt is None else {"dt": dt})).with_parameters(
            **parameters or {}
        )
    if not isinstance(found, System):
        raise InputError(
            f"{name!r} is a {type(found).__name__}, not a System: "
            "make one with fedkoopman.System.from_function"
        )
    return check_own_system(found, name).with_parameters(**parameters or {})


def estimate_site(
    system: str,
    site: SiteFile,
    observations: Observations,
    *,
    parameters: Mapping[str, float] | None = None,
    dt: float | None = None,
    **options: Any,
) -> SiteStates:
    """Estimate the states behind a site's observations.

    A trajectory on which the filter diverges keeps its place with NaN; if all do, that is a
    `ComputationError`.

    Arguments:
        system: what is observed, by name; see `load_system`.
        dt: sampling interval; None takes the observations' times, or the system's own interval.
        options: method and the like, as `fedkoopman.estimate` takes them.
    """
    intervals = observations.intervals() if dt is None else dt
    longest = max(map(np.max, intervals)) if isinstance(intervals, tuple) else intervals
    model = load_system(system, parameters, longest)
    site.check_states(model.names)
    sensor = sensor_for(site, model.dim)
    check_width(observations, sensor)
    if len(site.data.inputs) != model.input_dim:
        raise InputError(
            f"data.inputs names {len(site.data.inputs)} columns but {system} takes "
            f"{model.input_dim} inputs: name one column per input"
        )
    acts = observations.acting()
    options |= {"inputs": None if acts is None else filled([u[:-1] for u in acts])}
    declared: dict[str, Any] = initial_state(site, model.dim)
    known, unknown = dict(declared), [name for name, value in declared.items() if value is None]
    per_step = _per_step(intervals, observations, float(model.dt))
    auto = site.noise.observation == "auto"
    noise = observation_noise(site, sensor.dim, observations.trajectories if auto else ())
    beginnings = _beginnings(observations, per_step, options)
    if unknown:
        law = first_law(
            model, sensor, mean=declared["initial_mean"], observation_noise=noise, **beginnings
        )
        known = {"initial_mean": law.mean, "initial_cov": law.cov} | _given(declared)
    if auto:
        noise = _observed_noise(model, sensor, site, observations, per_step, options | known)
    if unknown:
        law = estimated_law(
            model, sensor, law=law, mean=declared["initial_mean"], observation_noise=noise,
            **beginnings,
        )  # fmt: skip
        known = {"initial_mean": law.mean, "initial_cov": law.cov} | _given(declared)
    with warnings.catch_warnings():
        # the caller is told through `SiteStates.ok`
        warnings.simplefilter("ignore", DivergenceWarning)
        z = list(observations.trajectories)
        given = {"observation_noise": noise, "dt": per_step, **known, **options}
        found = estimate(model, sensor, z, **given)
    return _site_states(model, sensor, observations, found, intervals)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def _beginnings(
    observations: Observations, per_step: np.ndarray | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The first samples of the first trajectories, from which an initial state is estimated, and
    the options that matter for it."""
    names = ("process_noise", "alpha", "beta", "kappa")
    first = [z[:HEAD] for z in observations.trajectories[:STARTS]]
    longest = max(map(len, first))
    return {
        "z": first,
        "dt": None if per_step is None else per_step[: len(first), :longest],
        "inputs": _some(options["inputs"], len(first), longest),
        **{name: options[name] for name in names if name in options},
    }


def _some(inputs: np.ndarray | None, count: int, steps: int) -> np.ndarray | None:
    """The inputs of the first trajectories, so many steps of them."""
    return None if inputs is None else inputs[:count, :steps]


def check_width(observations: Observations, sensor: Sensor) -> None:
    """Refuse observations of another width than the sensor's."""
    if observations.dim != sensor.dim:
        raise InputError(
            f"{observations.source} has {observations.dim} observed components but the sensor "
            f"observes {sensor.dim}: choose the columns or mend the sensor"
        )


def _observed_noise(
    system: System,
    sensor: Sensor,
    site: SiteFile,
    observations: Observations,
    per_step: np.ndarray | None,
    options: Mapping[str, Any],
) -> np.ndarray:
    """The observation noise by maximum likelihood, from the first trajectories."""
    sizes = np.cumsum([len(z) for z in observations.trajectories])
    count = int(np.searchsorted(sizes, ENOUGH)) + 1
    sample = [z[:ENOUGH] for z in observations.trajectories[:count]]
    steps = max(map(len, sample))
    names = ("initial_mean", "initial_cov", "process_noise", "alpha", "beta", "kappa")
    return estimate_noise(
        system,
        sensor,
        sample,
        observation_noise=observation_noise(site, sensor.dim, sample),
        dt=None if per_step is None else per_step[:count, :steps],
        inputs=_some(options["inputs"], count, steps),
        process_structure="fixed",
        **{name: options[name] for name in names if name in options},
    ).observation_noise


def _per_step(
    intervals: float | tuple[np.ndarray, ...] | None, observations: Observations, own: float
) -> np.ndarray | None:
    """Intervals (B, T), those of shorter trajectories filled up; None if all are `own`."""
    steps = max(map(len, observations.trajectories))
    if isinstance(intervals, tuple):
        return np.stack([np.pad(d, (0, steps - len(d)), mode="edge") for d in intervals])
    if intervals is None or math.isclose(intervals, own, rel_tol=REGULAR):
        return None
    return np.full((len(observations.trajectories), steps), intervals)


def _site_states(
    system: System,
    sensor: Sensor,
    observations: Observations,
    found: Estimates,
    intervals: float | tuple[np.ndarray, ...] | None,
) -> SiteStates:
    ok = np.atleast_1d(found.ok)
    if not ok.any():
        count = "its one trajectory" if len(ok) == 1 else f"all {len(ok)} trajectories"
        raise ComputationError(
            f"the {found.method} filter diverged on {count} of {observations.source}, nothing is "
            "written: check the system, its units and dt, or give a larger --process-noise"
        )

    def blanked(arrays: Arrays) -> list[np.ndarray]:
        return [a if good else np.full_like(a, np.nan) for a, good in zip(arrays, ok, strict=True)]

    dt = intervals if isinstance(intervals, float) else float(system.dt)
    return SiteStates(
        names=system.names,
        units=system.units,
        labels=observations.labels,
        times=list(
            observations.times or [np.arange(1, len(z) + 1) * dt for z in observations.trajectories]
        ),
        means=blanked(found.mean),
        covs=blanked(found.cov),
        observed=[seen_alone(sensor, z, system.dim) for z in observations.trajectories],
        ok=ok,
        log_likelihood=float(np.sum(np.atleast_1d(found.log_likelihood)[ok])),
        consistency=str(nis(found)) if ESTIMATORS.find(found.method).consistent else None,
    )


def seen_alone(sensor: Sensor, z: np.ndarray, dim: int) -> np.ndarray:
    """The states (T, dim) that a linear sensor shows one by one, NaN for the others.

    A row of the matrix with a single entry b at state j reads x_j = z / b + o_j.
    """
    states = np.full((len(z), dim), np.nan)
    if isinstance(sensor, LinearSensor):
        matrix = np.asarray(sensor.matrix)
        offset = np.zeros(dim) if sensor.offset is None else np.asarray(sensor.offset)
        for i in np.flatnonzero(np.count_nonzero(matrix, axis=1) == 1):
            j = int(np.flatnonzero(matrix[i])[0])
            states[:, j] = z[:, i] / matrix[i, j] + offset[j]
    return states
