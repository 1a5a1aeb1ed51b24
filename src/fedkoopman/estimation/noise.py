"""Noise covariances from the observations alone: maximum likelihood of the innovations.

Why not expectation-maximisation: its fixed point is the maximum only where the model is linear
(elsewhere its expectations are those of an approximate smoother), and it crawls where one noise is
much smaller than the other, which is the usual case. Here the consistent filter's own likelihood is
climbed with exact derivatives, a handful of filter runs, and the information matrix says how well
each variance is known.

Where the filter can lose the track the likelihood has false tops (all is observation noise), so a
coarse look around, at what the data themselves suggest, comes before the climb.

The paper's `ukf` is refused: its innovation covariance lacks Q, so its likelihood is of no model.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimates import Estimates, Progress, estimate
from fedkoopman.estimation.estimator import Options, Problem, problem_of
from fedkoopman.estimation.gaussian_estimator import GaussianEstimator
from fedkoopman.estimation.likelihood import Point, climb, score
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.estimation.noise_structure import (
    NoiseEstimates,
    Structure,
    noise_estimates,
    structure_of,
    variances_of,
)
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_count, number

FLOOR = 1e-6
"""Smallest variance, relative to the mean square of what the channel (the estimated state, for Q)
changes by from one sample to the next: a thousandth of that, as a standard deviation. Below it a
filter would trust its model or its sensor without reserve."""
LEAST = 10
"""Observations that a channel needs for its noise to be estimated."""

OBSERVATION_LEVELS = (1.0, 0.1, 0.01)
"""Of `Scales.channels`, which white noise alone would give: what moves the system between two
samples can only make the noise smaller."""
PROCESS_LEVELS = (1e-6, 1e-4, 1e-2, 1.0)
"""Of `Scales.states`; at 1 nothing but noise moves the system."""


def estimate_noise(
    system: System,
    sensor: Sensor,
    z: Any,
    *,
    process_noise: Any = 1.0,
    observation_noise: Any = 1.0,
    initial_mean: Any = None,
    initial_cov: Any = None,
    method: str = "ukf-resampled",
    alpha: float = 0.1,
    beta: float = 2.0,
    kappa: float = -1.0,
    inputs: Any = None,
    dt: Any = None,
    structure: str = "diagonal",
    process_structure: str | None = None,
    skip: int = 0,
    floor: float = FLOOR,
    iterations: int = 50,
    progress: Progress | None = None,
) -> NoiseEstimates:
    """Estimate Σ_h and Σ_f by maximum likelihood, starting from those given.

    Arguments:
        process_noise, observation_noise: where to start, and what is kept where the structure or
            the data leave no choice: a channel without observations keeps its variance, and so
            does what is given as exactly 0.
        method: "ukf-resampled" or "ekf".
        structure: what may change: "diagonal", "scalar" (one factor), "blocks" (one factor per
            group of correlated components), "full" or "fixed"; see `noise_structure`.
        process_structure: likewise for the process noise; None takes `structure`.
        skip: samples at the start of each trajectory that do not count, where the initial state
            is not known well enough to be believed.
        floor: smallest variance relative to the mean squared change, from one sample to the next,
            of the channel or of the estimated state.
        iterations: evaluations of the likelihood at the most.
        progress: called with (evaluations done, evaluations at the most).

    The other arguments are those of `fk.estimate`; z may be one trajectory, a batch or a list.

    >>> found = fk.estimation.estimate_noise(system, sensor, z, process_structure="scalar")
    >>> e = fk.estimate(system, sensor, z, observation_noise=found.observation_noise,
    ...                 process_noise=found.process_noise, method="ukf-resampled")
    """
    checks.only_one(system, System, "system")
    checks.only_one(sensor, Sensor, "sensor")
    estimator = ESTIMATORS.find(method)
    if not isinstance(estimator, GaussianEstimator) or not estimator.consistent:
        raise InputError(
            f"method {method!r} has no consistent likelihood to estimate noise with: use "
            "'ukf-resampled' or 'ekf'"
        )
    skip = check_count(skip, "skip", least=0)
    iterations = check_count(iterations, "iterations", least=1)
    if not 0 < float(number(floor, "floor")) < 1:
        raise InputError(f"floor is {floor:g}: give a number between 0 and 1, as 1e-6")
    spread = Options(alpha, beta, kappa)
    estimator.check(spread, system.dim)
    transform = estimator.transform(spread)
    problem, _ = problem_of(
        system, sensor, z, process_noise=process_noise, observation_noise=observation_noise,
        initial_mean=initial_mean, initial_cov=initial_cov, inputs=inputs, dt=dt,
    )  # fmt: skip
    seen = np.sum(~np.isnan(problem.z[:, skip:]), axis=(0, 1))
    if not (seen >= LEAST).any():
        raise InputError(
            f"z has at most {seen.max()} observations in any channel after the first {skip} "
            f"samples: noise can be estimated from {LEAST} on"
        )
    shape_r = structure_of(structure, problem.r, seen < LEAST, "observation_noise")
    shape_q = structure_of(
        process_structure or structure, problem.q, np.zeros(system.dim, bool), "process_noise"
    )
    options = {"method": method, "alpha": alpha, "beta": beta, "kappa": kappa}
    scales = scales_of(problem, tracked(problem, problem.q, problem.r, options))
    lowest = np.concatenate(
        [shape_r.lowest(floor * scales.channels), shape_q.lowest(floor * scales.states)]
    )
    if not len(lowest):
        raise InputError(
            "nothing is left to estimate: both structures are 'fixed', or what they leave free is "
            "given as 0"
        )

    def matrices(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return shape_q.matrix(theta[shape_r.size :]), shape_r.matrix(theta[: shape_r.size])

    def evaluate(theta: np.ndarray) -> Point:
        q, r = matrices(theta)
        dq, dr = shape_q.slopes(theta[shape_r.size :]), shape_r.slopes(theta[: shape_r.size])
        dq = np.concatenate([np.zeros((shape_r.size, *q.shape)), dq])
        dr = np.concatenate([dr, np.zeros((shape_q.size, *r.shape))])
        found = score(problem, transform, q, r, dq, dr, counted=counted, skip=skip)
        total = float(found.log_likelihood[counted].sum())
        return Point(total, found.gradient, found.information)

    starts = [np.maximum(theta, lowest) for theta in candidates(scales, shape_q, shape_r)]
    chosen, counted, given = best_start(
        [likelihoods(tracked(problem, *matrices(theta), options), skip) for theta in starts]
    )
    if not counted.any():
        raise ComputationError(
            f"the {method} filter diverged on all {len(counted)} trajectories, whatever the noise: "
            "check the system, its units and dt, and the initial state"
        )
    climbed = climb(evaluate, starts[chosen], lowest, iterations, progress)
    values = climbed.values if chosen == 0 else [given, *climbed.values]
    return noise_estimates(climbed._replace(values=values), lowest, shape_q, shape_r, counted)


class Scales(NamedTuple):
    """How much things change from one sample to the next: unlike their spread over a whole
    trajectory, that does not grow where they drift."""

    states: np.ndarray
    """Mean squared change of each estimated state component, (n,)."""
    channels: np.ndarray
    """Half the mean squared change of each channel, (m,)."""


def tracked(problem: Problem, q: np.ndarray, r: np.ndarray, options: dict[str, Any]) -> Estimates:
    """States with process noise `q` and observation noise `r`.

    Arguments:
        options: method and the like, of `fk.estimate`.
    """
    lengths = problem.lengths
    # smoothed, though only the scales need it: a second kernel would take longer to compile
    return estimate(
        problem.system, problem.sensor,
        problem.z if lengths is None else [z[:n] for z, n in zip(problem.z, lengths, strict=True)],
        process_noise=q, observation_noise=r, initial_mean=problem.mean, initial_cov=problem.cov,
        inputs=problem.inputs, dt=problem.dt, warn=False, **options,
    )  # fmt: skip


def likelihoods(states: Estimates, skip: int) -> np.ndarray:
    """Log-likelihood of each trajectory (B,) without its first samples; NaN where it diverged."""
    totals = np.where(states.ok, np.asarray(states.log_likelihood), np.nan)
    for b in np.flatnonzero(states.ok) if skip else ():
        early, cov = states.innovations[b][:skip], states.innovation_cov[b][:skip]
        seen = ~np.isnan(early)
        values, vectors = np.linalg.eigh(cov)  # a missing component has a unit row
        along = np.einsum("tij,ti->tj", vectors, np.nan_to_num(early))
        random = values > len(values[0]) * np.finfo(float).eps * values[:, -1:]
        logs = along[random] ** 2 / values[random] + np.log(values[random])
        totals[b] += 0.5 * (logs.sum() + seen.sum() * np.log(2 * np.pi))
    return totals


def scales_of(problem: Problem, states: Estimates) -> Scales:
    """Scales from the data and the states estimated with the noise given."""
    means = [mean for mean, ok in zip(states.mean, np.atleast_1d(states.ok), strict=True) if ok]
    angles = checks.first_of(problem.sensor, Sensor, "sensor").angles
    return Scales(
        _changes(means, states.angles, variances_of(problem.q)),
        _changes(list(problem.z), angles, 2 * variances_of(problem.r)) / 2,
    )


def _changes(paths: Sequence[np.ndarray], angles: Sequence[int], instead: np.ndarray) -> np.ndarray:
    """Mean squared change per step; `instead` (or 1) where there is none, or nothing to see."""
    steps = np.concatenate([np.empty((0, len(instead))), *(np.diff(x, axis=0) for x in paths)])
    at = list(angles)
    steps[:, at] = np.pi - np.mod(np.pi - steps[:, at], 2 * np.pi)
    result = np.where(instead > 0, instead, 1.0)
    for i, column in enumerate(steps.T):
        seen = column[~np.isnan(column)]
        square = float(np.mean(seen**2)) if len(seen) else 0.0
        if 0 < square < np.inf:
            result[i] = square
    return result


def candidates(scales: Scales, shape_q: Structure, shape_r: Structure) -> Iterator[np.ndarray]:
    """Parameters to look at, those of the observation noise first; 0, what was given, to begin."""
    zero_q, zero_r = np.zeros(shape_q.size), np.zeros(shape_r.size)
    given = variances_of(shape_q.matrix(zero_q))
    # the process noise keeps its proportions, of which the data know little
    ratios = np.where(given > 0, given, np.nan) / scales.states
    share = np.where(given > 0, given, 1.0) / (np.nanmax(ratios) if shape_q.size else 1.0)
    of_r = [shape_r.towards(level * scales.channels) for level in OBSERVATION_LEVELS]
    of_q = [shape_q.towards(level * share) for level in PROCESS_LEVELS]
    yield np.concatenate([zero_r, zero_q])
    for theta_r in of_r if shape_r.size else [zero_r]:
        for theta_q in of_q if shape_q.size else [zero_q]:
            yield np.concatenate([theta_r, theta_q])


def best_start(likelihoods: Sequence[np.ndarray]) -> tuple[int, np.ndarray, float]:
    """The likeliest candidate, the trajectories to go on with, and the likelihood of the first.

    Those trajectories are the ones on which the filter stays finite with as many as possible.

    Arguments:
        likelihoods: of each trajectory (B,), for each candidate.
    """
    table = np.stack(likelihoods)
    finite = np.isfinite(table)
    counted = finite[np.argmax(finite.sum(axis=1))]
    totals = np.where(finite[:, counted].all(axis=1), table[:, counted].sum(axis=1), -np.inf)
    return int(np.argmax(totals)), counted, float(totals[0])
