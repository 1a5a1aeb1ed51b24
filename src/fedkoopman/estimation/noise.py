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

from typing import Any

import numpy as np

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.estimation import checks
from fedkoopman.estimation.batches import Progress
from fedkoopman.estimation.likelihood_score import score
from fedkoopman.estimation.noise_estimates import NoiseEstimates, noise_estimates
from fedkoopman.estimation.noise_start import (
    best_start,
    candidates,
    likelihoods,
    scales_of,
    tracked,
)
from fedkoopman.estimation.noise_structure import structure_of
from fedkoopman.estimation.problem import problem_of
from fedkoopman.estimation.scoring import Point, climb
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_count, number

FLOOR = 1e-6
"""Smallest variance, relative to the mean square of what the channel (the estimated state, for Q)
changes by from one sample to the next: a thousandth of that, as a standard deviation. Below it a
filter would trust its model or its sensor without reserve."""
LEAST = 10
"""Observations that a channel needs for its noise to be estimated."""


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
    if method not in ("ukf-resampled", "ekf"):
        checks.check_method(method)
        raise InputError(
            f"method {method!r} has no consistent likelihood to estimate noise with: use "
            "'ukf-resampled' or 'ekf'"
        )
    skip = check_count(skip, "skip", least=0)
    iterations = check_count(iterations, "iterations", least=1)
    if not 0 < float(number(floor, "floor")) < 1:
        raise InputError(f"floor is {floor:g}: give a number between 0 and 1, as 1e-6")
    transform = checks.transform_of(method, system.dim, alpha, beta, kappa)
    problem, _ = problem_of(
        system,
        sensor,
        z,
        process_noise=process_noise,
        observation_noise=observation_noise,
        initial_mean=initial_mean,
        initial_cov=initial_cov,
        inputs=inputs,
        dt=dt,
    )
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
