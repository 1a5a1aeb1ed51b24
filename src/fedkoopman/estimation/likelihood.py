"""The filter's log-likelihood with its slopes by the noise covariances, and how it is climbed.

Forward mode: the derivatives of innovations ν and their covariances S run along with the filter,
so memory does not grow with what a reverse pass would have to keep, and they give the information
matrix as well (Gupta, Mehra 1974):

    ∂_i ℓ  exactly, and   I_ij = Σ_k ½ tr(S⁻¹ ∂_i S S⁻¹ ∂_j S) + ∂_i νᵀ S⁻¹ ∂_j ν.

Fisher scoring climbs with the information matrix for its curvature. Levenberg's damping rejects
every step that does not raise the likelihood, one into a region where the filter diverges among
them, so the sequence of likelihoods only rises.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedkoopman.compilation import compiled_soon
from fedkoopman.estimation.estimates import pieces
from fedkoopman.estimation.estimator import Problem
from fedkoopman.estimation.gaussian import Conditions, Noise, State, Transform, model_of, track
from fedkoopman.estimation.linalg import cholesky
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System

MOST_NUMBERS = 4_000_000
"""Of derivatives held at once; more trajectories are taken piece by piece."""
LARGEST_STEP = 3.0
"""In any one parameter, a logarithm of a variance: a factor of 20."""
RIDGE = 1e-3
"""Information added to each parameter's own, for steps only: what the data say nothing about stays
where it is. A well-observed variance has half the number of observations."""
TOLERANCE = 1e-4
"""Rise of the log-likelihood that a full step still promises where the climb ends, after it: by the
meaning of information, 0.014 standard errors of a parameter."""


class Score(NamedTuple):
    """Log-likelihood of each trajectory, and slope and information of all that count."""

    log_likelihood: np.ndarray  # (B,)
    gradient: np.ndarray  # (p,)
    information: np.ndarray  # (p, p)


def score(
    problem: Problem,
    transform: Transform,
    q: np.ndarray,
    r: np.ndarray,
    dq: np.ndarray,
    dr: np.ndarray,
    *,
    counted: np.ndarray,
    skip: int = 0,
) -> Score:
    """The likelihood at process noise `q` and observation noise `r`, and its slopes.

    Arguments:
        problem: the trajectories; its own noise is not looked at.
        transform: of the filter.
        q, r: covariances, in any of the forms of `Problem`.
        dq, dr: their slopes by p parameters, with that axis first.
        counted: which trajectories enter gradient and information, (B,) of bool.
        skip: samples at the start of each trajectory that do not count.
    """
    batch, steps, m = problem.z.shape
    p = len(dq)
    lengths = np.full(batch, steps) if problem.lengths is None else problem.lengths
    widest = int(np.clip(MOST_NUMBERS // max(1, p * steps * m * (m + 1)), 1, 64))
    total = Score(np.full(batch, np.nan), np.zeros(p), np.zeros((p, p)))
    for rows in pieces(lengths, widest):
        longest = int(lengths[rows].max())
        piece = problem.take(rows).cut(longest)
        with jax.enable_x64(True):
            values, slopes = _slopes(
                piece.system,
                piece.sensor,
                State(jnp.asarray(piece.mean.T), jnp.moveaxis(piece.cov, 0, -1)),
                np.moveaxis(piece.z, 0, -1),
                Conditions(_time_first(piece.inputs), _time_first(piece.dt)),
                np.arange(longest)[:, None] < lengths[rows],
                tuple(_laid_out(part, rows, longest) for part in (q, r)),
                tuple(_laid_out(part, rows, longest, leading=1) for part in (dq, dr)),
                transform=transform,
            )
        first = np.unique(rows, return_index=True)[1]  # a piece may be filled up by repeating
        take = first[counted[rows[first]]]
        _add(total, rows, take, skip, *jax.tree.map(np.asarray, (values, slopes)))
    return total


def _time_first(value: np.ndarray | None) -> Any:
    return None if value is None else np.moveaxis(value, 0, 1)


def _laid_out(cov: np.ndarray, rows: np.ndarray, steps: int, leading: int = 0) -> np.ndarray:
    """(…, d, d, B or 1), or (…, T, d, d, B or 1) where it changes, after `leading` other axes."""
    if cov.ndim - leading == 4:
        chosen = cov.take(rows, axis=leading) if cov.shape[leading] > 1 else cov
        chosen = np.moveaxis(chosen, leading, -1)
        if chosen.shape[leading] == 1:
            return chosen.squeeze(leading)
        return chosen[(slice(None),) * leading + (slice(steps),)]
    if cov.ndim - leading == 3:
        cov = cov[(slice(None),) * leading + (slice(steps),)]
    return cov[..., None]


@partial(compiled_soon, static_argnames=("transform",))
def _slopes(
    system: System,
    sensor: Sensor,
    initial: State,
    z: Any,
    per_step: Conditions,
    valid: Any,
    noise: tuple[Any, Any],
    slopes: tuple[Any, Any],
    *,
    transform: Transform,
) -> tuple[Any, Any]:
    """Log-likelihoods, innovations and their covariances, time first; and their derivatives."""

    def run(q: Any, r: Any) -> tuple[Any, Any, Any]:
        changing = [c if c.ndim == 4 else None for c in (q, r)]
        still = [c if c.ndim == 3 else None for c in (q, r)]
        factored = jax.vmap(lambda cov: Noise(cov, cholesky(cov)))
        fixed = [None if c is None else Noise.of(c) for c in still]
        now = per_step._replace(
            process_noise=None if changing[0] is None else factored(changing[0]),
            observation_noise=None if changing[1] is None else factored(changing[1]),
        )
        tracked = track(
            transform,
            lambda c: model_of(system, sensor, c),
            initial,
            z,
            now,
            lambda c: (fixed[0] or c.process_noise, fixed[1] or c.observation_noise),
            valid,
            smooth=False,
        )
        # to a step, an innovation that is not a number is one that is missing; the state knows
        last = jax.tree.map(lambda a: jnp.isfinite(a[-1]).reshape(-1, z.shape[-1]), tracked.states)
        lost = jnp.where(last.mean.all(axis=0) & last.cov.all(axis=0), 0.0, jnp.nan)
        info = tracked.info
        return info.log_likelihood + lost, info.innovation, info.innovation_cov

    values, derivatives = jax.vmap(partial(jax.jvp, run, noise), out_axes=(None, 0))(slopes)
    return values, derivatives


def _add(
    total: Score, rows: np.ndarray, take: np.ndarray, skip: int, values: Any, slopes: Any
) -> None:
    """Add a piece's part to the score; a missing observation has S = 1 there and slopes 0."""
    value, _, s = (part[skip:] for part in values)
    slope, dv, ds = (part[:, skip:][..., take] for part in slopes)
    total.log_likelihood[rows] = value.sum(axis=0)
    total.gradient[:] += slope.sum(axis=(1, 2))
    p, m = dv.shape[0], dv.shape[2]
    s = np.moveaxis(s[..., take], -1, 0).reshape(-1, m, m)
    dv = np.moveaxis(dv, -1, 1).reshape(p, -1, m)
    ds = np.moveaxis(ds, -1, 1).reshape(p, -1, m, m)
    if not (np.isfinite(s).all() and np.isfinite(ds).all()):
        total.information[:] = np.nan
        return
    try:
        inverse = np.linalg.inv(s)
    except np.linalg.LinAlgError:  # a direction without variance carries no information
        inverse = np.linalg.pinv(s, hermitian=True)
    relative = inverse @ ds
    moved = np.einsum("kij,pkj->pki", inverse, dv)
    total.information[:] += np.einsum("pkij,qkji->pq", relative, relative, optimize=True) / 2
    total.information[:] += np.einsum("pki,qki->pq", moved, dv, optimize=True)


class Point(NamedTuple):
    """Log-likelihood, gradient and information at some parameters."""

    value: float
    gradient: np.ndarray
    information: np.ndarray


class Climb(NamedTuple):
    """Where a climb ended, and how."""

    theta: np.ndarray
    point: Point
    values: list[float]
    converged: bool


def climb(
    evaluate: Callable[[np.ndarray], Point],
    start: np.ndarray,
    lowest: np.ndarray,
    iterations: int,
    progress: Callable[[int, int], None] | None = None,
) -> Climb:
    """Maximise from `start` with θ ≥ lowest.

    Arguments:
        evaluate: the likelihood at θ; a value that is not finite is a step too far.
        start: where it is finite.
        lowest: bounds.
        iterations: evaluations at the most.
        progress: called with (evaluations done, evaluations at the most).
    """
    theta, here = start, evaluate(start)
    values, damping, converged = [here.value], 1e-3, False
    for done in range(1, iterations + 1):
        free = ~((theta <= lowest) & (here.gradient < 0))
        converged = _rise(here, _step(here, free, 0.0)) < TOLERANCE  # and a last step, to polish
        step = np.clip(_step(here, free, damping), -LARGEST_STEP, LARGEST_STEP)
        trial = np.maximum(theta + step, lowest)
        there = evaluate(trial)
        finite = all(np.isfinite(part).all() for part in there)
        if finite and there.value > here.value:
            if there.value - here.value > 0.5 * _rise(here, trial - theta):
                damping /= 4
            theta, here = trial, there
            values.append(here.value)
        else:
            damping = max(4 * damping, 1e-3)
        if progress is not None:
            progress(done, iterations)
        if converged or damping > 1e8:  # of the latter no step helps any more
            break
    return Climb(theta, here, values, converged)


def _step(point: Point, free: np.ndarray, damping: float) -> np.ndarray:
    step = np.zeros(len(free))
    curvature = point.information[np.ix_(free, free)]
    damped = curvature + np.diag(damping * np.diag(curvature) + RIDGE)
    step[free] = np.linalg.solve(damped, point.gradient[free])
    return step


def _rise(point: Point, step: np.ndarray) -> float:
    """By how much the quadratic model says that a step raises the likelihood."""
    return float(point.gradient @ step - 0.5 * step @ point.information @ step)


def standard_errors(climbed: Climb, lowest: np.ndarray) -> np.ndarray:
    """Covariance (p, p) of the parameters; NaN for those at their bound or without information."""
    p = len(lowest)
    information = climbed.point.information
    known = (climbed.theta > lowest) & (np.diag(information) > RIDGE)
    covariance = np.full((p, p), np.nan)
    inside = np.ix_(known, known)
    covariance[inside] = np.linalg.pinv(information[inside], hermitian=True)
    return covariance
