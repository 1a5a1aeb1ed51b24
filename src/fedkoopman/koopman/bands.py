"""How wide a forecast's bands must be, from the errors of forecasts whose outcome is known.

At every horizon h the model forecasts from many places of known trajectories, the same way as it
will be used. The standard deviation of a state is half the 95 % quantile of its absolute errors, so
that ±2σ covers 95 of 100 of them whatever their law; errors of forecasts have heavier tails than a
Gaussian near, and lighter ones far, where they are bounded. This is split conformal prediction with
a symmetric score: V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", 2005.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.inputs import ahead_of
from fedkoopman.koopman.rollout import rollout, starts_of

if TYPE_CHECKING:
    from fedkoopman.koopman.learned import Learned

__all__ = ["COVERED", "extended", "state_errors"]

COVERED = 0.95
"""Share of outcomes within ±2σ."""
SPANS = 60
"""Spans of h steps that do not overlap, and trajectories' worth of them, from which on a quantile
means something: it is then off by a share of √(0.05 · 0.95 / 60) = 0.03 at most, usually."""
STARTS = 2_000
"""Places to forecast from."""

Array = NDArray[np.float64]


def state_errors(learned: "Learned", parts: Sequence[Array], steps: int, relift: int) -> Array:
    """Covariances of the errors of 1, 2, … steps, as far as enough is known, (h, d, d).

    Arguments:
        parts: trajectories of states (T_i, d).
        steps: the most applications of K.
        relift: after how many applications to lift anew; 0: never.
    """
    kind = learned.architecture
    window, depth, dim = kind.window, kind.depth, kind.state_dim
    lengths = [max(0, len(part) - window) // depth for part in parts]
    known = [h for h in range(1, steps + 1) if sum(n // h for n in lengths) >= SPANS]
    if not known:
        return np.zeros((0, dim, dim))
    windows, last, left = starts_of(parts, window, depth, STARTS, kind.inputs)
    rows, found = np.concatenate([np.asarray(part) for part in parts]), []
    inputs = ahead_of(rows, last, max(known), kind.inputs)
    for h, states in enumerate(rollout(learned, windows, known, relift, inputs), 1):
        reached = left >= h
        error = states[reached] - rows[last[reached] + h * depth, :dim]
        if not len(error) or not np.isfinite(error).all():
            break
        found.append(calibrated(error))
    return np.array(found).reshape(-1, dim, dim)


def calibrated(error: Array) -> Array:
    """The covariance of errors (n, d), about 0, with half the quantile for standard deviations."""
    n = len(error)
    # One more than n in the rank: the forecast's own outcome is one of n + 1 alike.
    rank = min(n, math.ceil((n + 1) * COVERED)) - 1
    std = np.sort(np.abs(error), axis=0)[rank] / 2
    moment = error.T @ error / n
    size = np.sqrt(np.diagonal(moment))
    scale = np.divide(std, size, out=np.ones_like(std), where=size > 0)
    return moment * scale[:, None] * scale


def extended(measured: Array, modelled: Array) -> Array:
    """Measured covariances and, beyond them, modelled ones scaled to go on from the last.

    Arguments:
        measured: (h, d, d).
        modelled: of every forecast and step, (B, H, d, d).
    """
    count, reach = len(modelled), len(measured)
    if not reach:
        return modelled
    both = np.array(modelled)
    both[:, :reach] = measured
    if reach < modelled.shape[1]:
        # The modelled standard deviations, by the ratio at the last measured step.
        last = np.sqrt(np.diagonal(modelled[:, reach - 1], axis1=1, axis2=2))
        wanted = np.broadcast_to(np.sqrt(np.diagonal(measured[-1])), last.shape)
        ratio = np.divide(wanted, last, out=np.ones((count, last.shape[1])), where=last > 0)
        both[:, reach:] *= ratio[:, None, :, None] * ratio[:, None, None, :]
    return both
