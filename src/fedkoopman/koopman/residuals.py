"""How far off a model is: the difference between lifted trajectories and what K predicts.

After h applications of K the model is off by e_h = φ(x_{k+h}) − K^h φ(x_k). Were the one-step
residuals r = e_1 independent in time, their covariances would add up as M_h = K M_{h−1} Kᵀ + Q
with Q = E[r rᵀ]. They are not: a model is wrong in the same way at neighbouring states, and errors
that agree add up faster. So, as far as the data reach, E[e_h e_hᵀ] is measured and not computed;
beyond, and for filters, which need one covariance per step, Q is scaled so that what adds up is as
large as what was measured.

Moments are taken about zero, not about the mean, because a constant error is an error too.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.trajectories import windows_of

__all__ = [
    "ErrorSum",
    "accumulated",
    "enough",
    "error_sums",
    "lifted_noise",
    "noise_of_sums",
    "spread",
]

SPANS = 20
"""Fewer spans of h steps that do not overlap say too little of how far off h steps lead: the
relative error of a variance from n independent samples is √(2/n)."""

ENOUGH = 100_000
"""Samples of which errors are measured; more tell nothing new."""

LONG = 1000
"""Samples below which no trajectory is cut short."""

REACH = 64
"""The longest span, in applications of K, by which the noise is scaled."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ErrorSum:
    """What one group of trajectories tells of h steps: it adds up with what others tell."""

    moment: Array
    """Σ e_h e_hᵀ, (O, O)."""
    count: int
    """Of the errors."""
    spans: int
    """Of h steps that do not overlap."""


def spread(learned: Learned, parts: list[Array], steps: int) -> Array:
    """M_1 … M_steps, (steps, O, O): the second moments of the model's error h steps ahead.

    Trajectories that tell too little are not asked where the model knows its own noise.

    Arguments:
        learned: the model.
        parts: trajectories of states (T_i, d); those too short for one step are left out.
        steps: how many applications of K.
    """
    if learned.noise is not None and not enough(learned, parts):
        return accumulated(learned, learned.noise, steps)
    measured = np.array(list(_means([_sums(learned, parts, steps, SPANS)])))
    if len(measured) == steps:
        return measured
    noise, more = lifted_noise(learned, parts), steps - len(measured)
    return np.concatenate([measured, accumulated(learned, noise, more, measured[-1])])


def enough(learned: Learned, parts: list[Array]) -> bool:
    """Whether trajectories are enough to tell how far off the model is after one step."""
    window, depth = learned.architecture.window, learned.architecture.depth
    return sum(max(0, len(part) - window) // depth for part in parts) >= SPANS


def accumulated(learned: Learned, noise: Array, steps: int, start: Any = 0.0) -> Array:
    """M_h = K M_{h−1} Kᵀ + Q from M_0 = `start`, for 1 … steps, (steps, O, O)."""
    operator, result = learned.operator, np.empty((steps, *noise.shape))
    moment = np.broadcast_to(start, noise.shape)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller checks the result
        for h in range(steps):
            moment = result[h] = operator @ moment @ operator.T + noise
    return result


def lifted_noise(learned: Learned, parts: list[Array]) -> Array:
    """Q, scaled by how much faster errors add up than independent ones would, (O, O).

    The scale is the mean, over spans of 1, 2, 4, … steps, of the ratio of the variance measured to
    the variance that Q alone would give; each component counts by its share in one step.
    """
    return noise_of_sums(learned, [_sums(learned, parts, REACH, SPANS)])


def error_sums(learned: Learned, parts: list[Array]) -> list[ErrorSum]:
    """What trajectories tell of 1, 2, … steps, to be added to what is known elsewhere."""
    return list(_sums(learned, parts, REACH, 1))


def noise_of_sums(learned: Learned, groups: Sequence[Iterable[ErrorSum]]) -> Array:
    """`lifted_noise` of all trajectories of several groups, from their sums alone."""
    measured = np.array(list(_means(groups)))
    noise = measured[0]
    independent = accumulated(learned, noise, len(measured))
    variance = np.diagonal(noise)
    share = np.divide(1, variance, out=np.zeros_like(variance), where=variance > 0)
    scales = []
    for h in range(len(measured).bit_length()):
        total = float(np.diagonal(independent[2**h - 1]) @ share)
        found = float(np.diagonal(measured[2**h - 1]) @ share)
        if np.isfinite(total) and np.isfinite(found) and total > 0:
            scales.append(found / total)
    return noise * float(np.mean(scales or [1.0]))


def _means(groups: Sequence[Iterable[ErrorSum]]) -> Iterator[Array]:
    """E[e_h e_hᵀ] for h = 1, 2, … while there are enough spans; one step at least."""
    for h, sums in enumerate(zip_longest(*groups), 1):
        told = [one for one in sums if one is not None]
        if h > 1 and sum(one.spans for one in told) < SPANS:
            return
        moment = sum((one.moment for one in told[1:]), told[0].moment)
        yield moment / sum(one.count for one in told)


def _sums(learned: Learned, parts: list[Array], most: int, least: int) -> Iterator[ErrorSum]:
    """Sums over the errors after h = 1, 2, … steps while there are so many spans; one at least."""
    window, depth = learned.architecture.window, learned.architecture.depth
    parts = _sample([part for part in parts if len(part) >= window + depth])
    if not parts:
        raise InputError(
            f"no trajectory has the {window + depth} samples that one step of the model and its "
            "outcome need: give longer ones"
        )
    lengths = [len(part) - window + 1 for part in parts]
    joined = np.concatenate([windows_of(part, window) for part in parts])
    lifted = np.split(learned.lift(joined), np.cumsum(lengths)[:-1])
    ahead, operator = lifted, learned.operator
    for h in range(1, most + 1):
        spans = sum((length - 1) // (h * depth) for length in lengths)
        if h > 1 and spans < least:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # a model may have diverged
            ahead = [part[:-depth] @ operator.T for part in ahead]
            errors = np.concatenate(
                [y[h * depth :] - part for y, part in zip(lifted, ahead, strict=True)]
            )
            moment: Any = errors.T @ errors
        if h > 1 and not np.isfinite(moment).all():
            return
        yield ErrorSum((moment + moment.T) / 2, len(errors), spans)


def _sample(parts: list[Array]) -> list[Array]:
    """Trajectories from all over, of about `ENOUGH` samples: of long ones the beginnings, of many
    short ones every so many."""
    total = sum(map(len, parts))
    if total <= ENOUGH:
        return parts
    each = ENOUGH // len(parts)
    return [part[:each] for part in parts] if each >= LONG else parts[:: -(-total // ENOUGH)]
