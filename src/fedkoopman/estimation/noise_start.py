"""Where to start climbing: what was given, or what the data suggest, whichever is likelier."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.estimation.estimate import estimate
from fedkoopman.estimation.noise_structure import Structure
from fedkoopman.estimation.problem import Problem

OBSERVATION_LEVELS = (1.0, 0.1, 0.01)
"""Of half the mean squared difference of neighbouring observations, which white noise alone would
give: what moves the system between two samples can only make the noise smaller."""
PROCESS_LEVELS = (1e-6, 1e-4, 1e-2, 1.0)
"""Of the variance of the states over time."""


class Scales(NamedTuple):
    """How large things are, in variances."""

    states: np.ndarray
    """Of each estimated state component over time, (n,)."""
    channels: np.ndarray
    """Of each channel over time, (m,)."""
    neighbours: np.ndarray
    """Half the mean squared difference of neighbouring observations of each channel, (m,)."""


def scales_of(problem: Problem, options: dict[str, Any]) -> Scales:
    """Scales from the data and one estimation with the noise given.

    Arguments:
        problem: the trajectories.
        options: method and the like, of `fk.estimate`.
    """
    lengths = problem.lengths
    found = estimate(
        problem.system,
        problem.sensor,
        problem.z if lengths is None else [z[:n] for z, n in zip(problem.z, lengths, strict=True)],
        process_noise=problem.q,
        observation_noise=problem.r,
        initial_mean=problem.mean,
        initial_cov=problem.cov,
        inputs=problem.inputs,
        dt=problem.dt,
        warn=False,
        **options,
    )
    states = [mean for mean, ok in zip(found.mean, np.atleast_1d(found.ok), strict=True) if ok]
    flat = np.concatenate(states) if states else np.empty((0, problem.q.shape[-1]))
    steps = np.diff(problem.z, axis=1)
    angles: Any = list(problem.sensor.angles)  # type: ignore[union-attr]
    steps[..., angles] = np.pi - np.mod(np.pi - steps[..., angles], 2 * np.pi)
    channels = _spread(problem.z.reshape(-1, problem.z.shape[-1]), _given(problem.r), centred=True)
    return Scales(
        _spread(flat, _given(problem.q), centred=True),
        channels,
        _spread(steps.reshape(-1, steps.shape[-1]), 2 * channels, centred=False) / 2,
    )


def _spread(values: np.ndarray, instead: np.ndarray, *, centred: bool) -> np.ndarray:
    """Mean squares of the columns; `instead` where there is nothing, or nothing that moves."""
    result = np.where(instead > 0, instead, 1.0)
    for i, column in enumerate(values.T):
        seen = column[~np.isnan(column)]
        square = np.mean((seen - centred * seen.mean()) ** 2) if len(seen) > 1 else 0.0
        if np.isfinite(square) and square > 0:
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
    of_r = [shape_r.towards(level * scales.neighbours) for level in OBSERVATION_LEVELS]
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
