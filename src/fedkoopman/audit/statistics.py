"""How often an attack is right, how sure that is, and what chance alone would do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

__all__ = ["Measured", "area_under_curve", "interval", "measured", "true_positives", "widened"]

DRAWS = 400
"""Resamples behind an interval."""
FEWEST = 3
"""Groups from which on there is an interval."""
LEVEL = 95.0
"""Per cent of the resamples that an interval holds."""


@dataclass(frozen=True)
class Measured:
    """A number with its 95 % interval, beside chance.

    Attributes:
        value, low, high: what was measured.
        chance: what guessing gives.
        small: from chance up (or down) to here a leak is too small to be of use.
    """

    value: float
    low: float
    high: float
    chance: float
    small: float

    @property
    def excess(self) -> float:
        """By how much it goes beyond chance, on the side that leaks; below 0 there is no leak."""
        return self._towards_leak(self.value)

    @property
    def verdict(self) -> str:
        """ "leaks" where the whole interval is beyond chance, "hidden" where all of it is below
        what is of use, otherwise "undecided"."""
        ends = sorted(self._towards_leak(end) for end in (self.low, self.high))
        if ends[1] < abs(self.small - self.chance):
            return "hidden"
        return "leaks" if ends[0] > 0 else "undecided"

    def _towards_leak(self, value: float) -> float:
        return (value - self.chance) * (1 if self.small > self.chance else -1)


def area_under_curve(scores: NDArray[Any], truth: NDArray[np.bool_]) -> float:
    """How often a true case scores higher than a false one; a tie counts half (Mann-Whitney)."""
    true = int(truth.sum())
    false = len(truth) - true
    if not true or not false:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - true * (true + 1) / 2) / (true * false))


def true_positives(scores: NDArray[Any], truth: NDArray[np.bool_], false_positives: float) -> float:
    """The share of true cases found when at most so large a share of false ones is taken too."""
    if truth.all() or not truth.any():
        return float("nan")
    false = np.sort(scores[~truth])[::-1]
    allowed = int(np.floor(false_positives * len(false)))
    return float((scores[truth] > false[min(allowed, len(false) - 1)]).mean())


def interval(
    statistic: Callable[[NDArray[np.int64]], float],
    groups: Sequence[Any] | NDArray[Any],
    *,
    seed: int,
) -> tuple[float, float]:
    """The 95 % interval of a statistic by resampling groups of cases, as cases of one group are not
    independent.

    Arguments:
        statistic: of the cases with the given numbers, which may repeat; NaN if they have none.
        groups: of each case, the group that it belongs to.
    """
    _, place = np.unique(np.asarray(groups), return_inverse=True)
    members = [np.flatnonzero(place == g) for g in range(place.max() + 1)]
    if len(members) < FEWEST:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    found = [
        statistic(np.concatenate([members[g] for g in drawn]))
        for drawn in random.integers(len(members), size=(DRAWS, len(members)))
    ]
    kept = [value for value in found if np.isfinite(value)]
    if not kept:
        return float("nan"), float("nan")
    low, high = np.percentile(kept, [50 - LEVEL / 2, 50 + LEVEL / 2])
    return float(low), float(high)


def measured(
    statistic: Callable[[NDArray[np.int64]], float],
    groups: Sequence[Any] | NDArray[Any],
    *,
    chance: float,
    small: float,
    seed: int,
) -> Measured:
    """A statistic of all cases with its interval; arguments as for `interval`."""
    value = statistic(np.arange(len(groups)))
    return Measured(value, *interval(statistic, groups, seed=seed), chance, small)


def widened(found: Measured, shuffled: Sequence[float]) -> Measured:
    """The same with an interval at least as wide as what chance alone does.

    Resampling cases takes what was learned as given. Learned from few sites it varies too, and
    labels that mean nothing show by how much.

    Arguments:
        shuffled: the statistic with shuffled labels, many times.
    """
    low, middle, high = np.nanpercentile(shuffled, [50 - LEVEL / 2, 50, 50 + LEVEL / 2])
    return replace(
        found,
        low=min(found.low, max(0.0, found.value - float(high - middle))),
        high=max(found.high, min(1.0, found.value + float(middle - low))),
    )
