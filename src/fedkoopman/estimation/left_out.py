"""Which samples of an estimate are left out, and what is left of a segment without them.

The paper's remark after Theorem 1: estimates with a large covariance can be excluded from training,
and thresholds set by experts remove unrealistic ones. Both are judged sample by sample.

What is left of a segment are stretches of consecutive samples. They stay one array, in which a row
of NaN stands between two stretches: one delivered segment is one array, however often it was cut,
and no window, target or sum can cross a cut unnoticed. `stretches` gives the parts.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["kept_samples", "longest_stretch", "outside", "stretches", "uncertain", "without"]

States = NDArray[np.float64]
Mask = NDArray[np.bool_]


def uncertain(std: States, gate: float) -> Mask:
    """Samples of which some state is far less certain than it usually is, (T,).

    Usual is the median over the segment's own samples, state by state: so which samples these are
    depends on the segment alone, not on what came before it or with it. (A filter that is uncertain
    throughout has lost track, see `track_loss`.)

    Arguments:
        std: standard deviations of the smoothed states, (T, d).
        gate: how many times the usual one is too much; 0 keeps all.
    """
    if not gate or not len(std):
        return np.zeros(len(std), bool)
    return np.asarray((std > gate * np.median(std, axis=0)).any(axis=1))


def outside(states: States, bounds: Sequence[tuple[int, float, float]]) -> Mask:
    """Samples of which some state lies outside of its bounds, (T,).

    Arguments:
        bounds: place of the state, lowest and highest value, for each state that has bounds.
    """
    found = np.zeros(len(states), bool)
    for place, low, high in bounds:
        found |= (states[:, place] < low) | (states[:, place] > high)
    return found


def without(states: States, left_out: Mask, least: int) -> States:
    """States without some samples, a row of NaN between stretches; (0, d) if nothing is left.

    Arguments:
        left_out: which samples go, (T,).
        least: samples of the shortest stretch that is of use; shorter ones go too.
    """
    if not left_out.any():
        return states
    parts = [states[part] for part in _places(~left_out) if part.stop - part.start >= least]
    gap = np.full((1, states.shape[1]), np.nan)
    rows = [piece for part in parts for piece in (gap, part)][1:]
    return np.concatenate(rows) if rows else states[:0]


def longest_stretch(left_out: Mask) -> slice:
    """The longest stretch of samples that stay, the first of several; empty if there is none."""
    return max(_places(~left_out), key=lambda part: part.stop - part.start, default=slice(0, 0))


def stretches(states: States) -> list[States]:
    """The parts of what `without` made; states without a gap are one part."""
    gaps = np.isnan(states[:, 0])
    return [states[part] for part in _places(~gaps)] if gaps.any() else [states]


def kept_samples(states: States) -> int:
    """How many samples there are, rows between stretches not counted."""
    return len(states) - int(np.count_nonzero(np.isnan(states[:, 0])))


def _places(kept: Mask) -> list[slice]:
    """Where consecutive samples stay."""
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)).tolist()
    return [slice(first, end) for first, end in zip(edges[::2], edges[1::2], strict=True)]
