"""The paper's printed numbers beside ours: could a sample as small as the paper's be one of ours?

A printed number is a mean over few runs (10 trajectories, 5 seeds), so it scatters even where both
implementations are the same. It agrees with ours if it lies within the 95 % range of what samples
of that size give of ours. The range is a nested bootstrap: ours are drawn anew, because they are
a sample themselves, and of these as many as the paper had. Its tails are Hesterberg's expanded
percentiles (The American Statistician 69, 2015, 371-386), without which few runs of ours give too
short a range; of normal values it is then close to Student's prediction interval.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkoopman.paper.items import AGREES, HIGHER, LOWER, OPEN, Numbers, Printed

__all__ = ["mean_over_sample", "printed_numbers", "small_sample_range", "verdict_on"]

Values = NDArray[np.float64]
Statistic = Callable[[Values], Values]
"""Of samples (resamples, size, …), one number each."""

RESAMPLES, BLOCK = 10_000, 500
LEVEL = 0.95


def mean_over_sample(samples: Values) -> Values:
    """The mean of each sample."""
    return np.asarray(samples.mean(axis=1))


def small_sample_range(
    ours: Values, size: int, *, seed: int, statistic: Statistic = mean_over_sample
) -> tuple[float, float]:
    """The 95 % range of a statistic of `size` values drawn as ours are; NaN if there is one only.

    What is not finite has diverged, and counts as infinite.

    Arguments:
        ours: one value, or one row, per run or trajectory.
        size: how many the paper has.
        seed: of the draws.
    """
    ours, count = np.where(np.isfinite(ours), ours, np.inf), len(ours)
    if count < 2:
        return np.nan, np.nan
    random = np.random.default_rng([seed, count, size])
    found = []
    for _ in range(RESAMPLES // BLOCK):
        again = random.integers(count, size=(BLOCK, count))
        few = np.take_along_axis(again, random.integers(count, size=(BLOCK, size)), axis=1)
        found.append(statistic(ours[few]))
    tail = stats.norm.sf(np.sqrt(count / (count - 1)) * stats.t.ppf(1 - (1 - LEVEL) / 2, count - 1))
    # A quantile that is one of the values: infinite ones cannot be interpolated.
    low, high = np.quantile(np.concatenate(found), [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def verdict_on(paper: float, low: float, high: float, rounding: float = 0.0) -> str:
    """What ours is beside the paper's number, given the range from `small_sample_range`.

    Arguments:
        rounding: half a unit of the last printed digit, by which the number may be off.
    """
    if np.isnan(low) or np.isnan(high):
        return OPEN
    if low <= paper + rounding and paper - rounding <= high:
        return AGREES
    return HIGHER if paper < low else LOWER


def printed_numbers(printed: Sequence[Printed]) -> Numbers:
    """All of them, for a CSV file."""
    columns = ("what", "paper", "ours", "low", "high", "verdict", "fitted")
    rows = ((p.what, p.paper, p.ours, p.low, p.high, p.verdict, str(p.fitted)) for p in printed)
    return Numbers("printed", columns, tuple(rows))
