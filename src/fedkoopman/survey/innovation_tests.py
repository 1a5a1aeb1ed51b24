"""A site's innovations channel by channel: are they as large as said, and white?

Of a consistent filter ν_i / √S_ii is white with variance 1, so its mean square is χ² over its count
and its autocorrelations are independent of each other (Ljung and Box). The first samples of each
segment, in which what is believed of the initial state still shows, are told apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation import Estimates

__all__ = [
    "LAGS",
    "ChannelTest",
    "InitialTest",
    "channel_tests",
    "first_samples",
    "initial_test",
    "observed_noise",
]

LAGS = 10
MARGIN = 1.25
"""Ratios of variances nearer to 1 than this are of no consequence, however significant."""
INITIAL_MARGIN = 2.0
"""Likewise for the first samples, which are few and soon forgotten."""
FAINT = 0.1
"""Autocorrelations smaller than this are of no consequence either."""
SETTLED = 20
"""Samples after which the initial state is taken to be forgotten; a quarter of short segments."""


@dataclass(frozen=True)
class ChannelTest:
    """One channel's innovations against their own covariance.

    Attributes:
        name: the channel's.
        count: innovations that entered.
        ratio: mean of ν² / S; 1 where the noise is right.
        lower, upper: the band of `ratio` at the level asked for.
        correlation: the autocorrelation of the largest size over `LAGS` lags.
        lag: at which that is.
        white: whether autocorrelations are chance, at the level asked for, or faint.
    """

    name: str
    count: int
    ratio: float
    lower: float
    upper: float
    correlation: float
    lag: int
    white: bool

    @property
    def sized(self) -> bool:
        """Whether the innovations are as large as their covariance says, or nearly."""
        within = self.lower <= self.ratio <= self.upper
        return within or 1 / MARGIN <= self.ratio <= MARGIN

    @property
    def consistent(self) -> bool:
        """Both, as far as can be told."""
        return not self.count or (self.sized and self.white)


@dataclass(frozen=True)
class InitialTest:
    """The first samples of all segments together."""

    ratio: float
    upper: float

    @property
    def consistent(self) -> bool:
        """Whether they are no further off than the initial covariance lets expect, or hardly."""
        return not self.ratio > max(self.upper, INITIAL_MARGIN)


def first_samples(length: int) -> int:
    """How many samples at the start of a segment of that length are judged apart."""
    return min(SETTLED, length // 4)


def channel_tests(
    states: Estimates, names: Sequence[str], level: float = 0.99
) -> tuple[ChannelTest, ...]:
    """Test every channel after the first samples.

    Arguments:
        states: estimates of a list of segments, by a consistent filter.
        names: the channels'.
        level: probability that all of them pass if the filter is consistent.
    """
    from scipy import stats

    late = [_marginal(v, s)[first_samples(len(v)) :] for v, s in _good(states)]
    # two tests of each channel: Bonferroni's bound
    tail = (1 - level) / (2 * max(1, len(names)))
    found = []
    for i, name in enumerate(names):
        columns = [w[:, i] for w in late]
        count = sum(int(np.sum(~np.isnan(w))) for w in columns)
        ratio = sum(float(np.nansum(w**2)) for w in columns) / count if count else np.nan
        band = stats.chi2.ppf([tail / 2, 1 - tail / 2], count) / count if count else (np.nan,) * 2
        correlations, weights = _autocorrelations(columns, ratio)
        statistic = float(np.sum(correlations**2 * weights))
        chance = stats.chi2.sf(statistic, LAGS) if count > 2 * LAGS else 1.0
        worst = int(np.argmax(np.abs(correlations)))
        white = bool(chance > tail or abs(correlations[worst]) < FAINT)
        found.append(
            ChannelTest(
                name, count, ratio, float(band[0]), float(band[1]),
                float(correlations[worst]), worst + 1, white,
            )
        )  # fmt: skip
    return tuple(found)


def initial_test(states: Estimates, level: float = 0.99) -> InitialTest:
    """Test whether the first samples are where the initial state says.

    Arguments: as `channel_tests`.
    """
    from scipy import stats

    early = [_marginal(v, s)[: first_samples(len(v))] for v, s in _good(states)]
    squares = np.concatenate([w[~np.isnan(w)] ** 2 for w in early]) if early else np.empty(0)
    if not len(squares):
        return InitialTest(np.nan, np.nan)
    upper = stats.chi2.ppf(level, len(squares)) / len(squares)
    return InitialTest(float(squares.mean()), float(upper))


def observed_noise(states: Estimates, observation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Variances of the observation noise as the innovations show them, after the first samples.

    As E[ν_i²] = S_ii of a consistent filter, R̂_ii = R_ii + mean(ν_i² − S_ii). It is the noise where
    R and Q are about right, and points the right way elsewhere. NaN where nothing was observed.

    Arguments:
        states: estimates of a list of segments, by a consistent filter.
        observation: the covariance R that was used for them.
    """
    excess = [
        (v**2 - np.diagonal(s, axis1=-2, axis2=-1))[first_samples(len(v)) :]
        for v, s in _good(states)
    ]
    found = np.full(len(observation), np.nan)
    for i, r in enumerate(np.diag(observation)):
        seen = np.concatenate([e[~np.isnan(e[:, i]), i] for e in excess] or [np.empty(0)])
        if len(seen):
            found[i] = max(r + seen.mean(), 0.0)
    return found


def _good(states: Estimates) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Innovations and their covariances of the segments on which the filter stayed finite."""
    segments = zip(states.innovations, states.innovation_cov, np.atleast_1d(states.ok), strict=True)
    return [(v, s) for v, s, ok in segments if ok]


def _marginal(v: NDArray[np.float64], s: NDArray[np.float64]) -> NDArray[np.float64]:
    """ν_i / √S_ii; NaN where nothing was observed, or nothing can vary."""
    variance = np.diagonal(s, axis1=-2, axis2=-1)
    normal = np.sqrt(np.where(variance > 0, variance, np.nan))
    white: NDArray[np.float64] = v / normal
    return white


def _autocorrelations(
    columns: list[NDArray[np.float64]], variance: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Autocorrelations at lags 1 … LAGS over all segments, and the number of pairs of each."""
    correlations, pairs = np.zeros(LAGS), np.zeros(LAGS)
    for lag in range(1, LAGS + 1):
        products = [w[lag:] * w[:-lag] for w in columns]
        pairs[lag - 1] = sum(int(np.sum(~np.isnan(p))) for p in products)
        total = sum(float(np.nansum(p)) for p in products)
        if pairs[lag - 1] and variance > 0:
            correlations[lag - 1] = total / (pairs[lag - 1] * variance)
    return correlations, pairs
