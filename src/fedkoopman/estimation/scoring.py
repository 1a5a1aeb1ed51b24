"""Fisher scoring: climb a log-likelihood with the information matrix for its curvature.

Levenberg's damping rejects every step that does not raise the likelihood, one into a region where
the filter diverges among them, so the sequence of likelihoods only rises.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

LARGEST_STEP = 3.0
"""In any one parameter, a logarithm of a variance: a factor of 20."""
RIDGE = 1e-3
"""Information added to each parameter's own, for steps only: what the data say nothing about stays
where it is. A well-observed variance has half the number of observations."""
TOLERANCE = 1e-4
"""Rise of the log-likelihood that a full step still promises where the climb ends, after it: by the
meaning of information, 0.014 standard errors of a parameter."""


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
