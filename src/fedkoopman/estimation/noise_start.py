"""Where to start climbing: what was given, or what the data suggest, whichever is likelier."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.estimation.checks import first_of
from fedkoopman.estimation.estimate import estimate
from fedkoopman.estimation.estimates import Estimates
from fedkoopman.estimation.noise_structure import Structure
from fedkoopman.estimation.problem import Problem
from fedkoopman.sensors import Sensor

OBSERVATION_LEVELS = (1.0, 0.1, 0.01)
"""Of `Scales.channels`, which white noise alone would give: what moves the system between two
samples can only make the noise smaller."""
PROCESS_LEVELS = (1e-6, 1e-4, 1e-2, 1.0)
"""Of `Scales.states`; at 1 nothing but noise moves the system."""


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
        problem.system,
        problem.sensor,
        problem.z if lengths is None else [z[:n] for z, n in zip(problem.z, lengths, strict=True)],
        process_noise=q,
        observation_noise=r,
        initial_mean=problem.mean,
        initial_cov=problem.cov,
        inputs=problem.inputs,
        dt=problem.dt,
        warn=False,
        **options,
    )


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
    angles = first_of(problem.sensor, Sensor, "sensor").angles
    return Scales(
        _changes(means, states.angles, _given(problem.q)),
        _changes(list(problem.z), angles, 2 * _given(problem.r)) / 2,
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


def _given(cov: np.ndarray) -> np.ndarray:
    diagonal = np.diagonal(cov, axis1=-2, axis2=-1)
    return np.asarray(diagonal.reshape(-1, diagonal.shape[-1]).mean(axis=0))


def candidates(scales: Scales, shape_q: Structure, shape_r: Structure) -> Iterator[np.ndarray]:
    """Parameters to look at, those of the observation noise first; 0, what was given, to begin."""
    zero_q, zero_r = np.zeros(shape_q.size), np.zeros(shape_r.size)
    given = _given(shape_q.matrix(zero_q))
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
