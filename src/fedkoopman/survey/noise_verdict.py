"""What a filter's innovations say of the noise that a site declares, in plain words.

Of a consistent filter ν_i / √S_ii is white with variance 1, so its mean square is χ² over its count
and its autocorrelations are independent of each other (Ljung and Box). The first samples of each
segment, in which what is believed of the initial state still shows, are told apart.

A wrong noise makes innovations both too large or small and coloured, and so does a wrong model.
What tells them apart is the best noise there is: with it, innovations of a right model are white.
What stays coloured is the model's fault, and what does not is named with the value to try.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.estimation import Estimates
from fedkoopman.estimation.noise_structure import NoiseEstimates

LAGS = 10
MARGIN = 1.25
"""Ratios of variances nearer to 1 than this are of no consequence, however significant."""
INITIAL_MARGIN = 2.0
"""Likewise for the first samples, which are few and soon forgotten."""
FAINT = 0.1
"""Autocorrelations smaller than this are of no consequence either."""
SETTLED = 20
"""Samples after which the initial state is taken to be forgotten; a quarter of short segments."""
CLEAR = 6.0
"""Rise of the log-likelihood that one more free variance must bring: 3.5 standard errors."""
NEGLIGIBLE = 0.5
"""Ratio below which innovations are too small, for what is said of them, to blame the model."""
PROCESS_MARGIN = 2.0
"""Process noise is known less well, and its size matters less, than that of observations."""
LEAST_FACTOR = 0.01
"""Least by which it is advised to multiply noise at once, where the data show hardly any."""
HARDLY_COUNTED = 1e6
"""Factors beyond are not spelt out."""


@dataclass(frozen=True)
class ChannelTest:
    """One channel's innovations against their own covariance.

    Attributes:
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
    """Test whether the first samples are where the initial state says."""
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


@dataclass(frozen=True)
class Verdict:
    """What is found of a site's noise and model; `str` of it is one line.

    Attributes:
        kind: "consistent", "noise", "model", "initial" or "unknown".
        channels: the tests of each channel's innovations with the noise declared.
        observation: variances to try, where the declared ones are off.
        process: factor to try on the process noise, where that is off.
        estimated: variances of the best noise, where those declared were not good enough.
    """

    kind: str
    text: str
    channels: tuple[ChannelTest, ...]
    observation: NDArray[np.float64] | None = None
    process: float | None = None
    estimated: NDArray[np.float64] | None = None

    @property
    def consistent(self) -> bool:
        return self.kind == "consistent"

    def __str__(self) -> str:
        return self.text


class Fit(NamedTuple):
    """Some of the noise at its best, and the channels' tests with it."""

    noise: NoiseEstimates
    tests: tuple[ChannelTest, ...]


def judge(
    declared: tuple[ChannelTest, ...],
    initial: InitialTest,
    observation: NDArray[np.float64],
    process: NDArray[np.float64],
    fits: Sequence[Fit] = (),
) -> Verdict:
    """The verdict from tests with the noise declared and with the best noise there is.

    Arguments:
        fits: the best noise, with more and more that is free; none if that declared is good enough.
    """
    if fits:
        fit = simplest(fits)
        coloured = [test for test in fit.tests if not test.white and test.ratio > NEGLIGIBLE]
        if coloured:
            return Verdict("model", _model_phrase(coloured), declared)
        names = [test.name for test in declared]
        variances, texts = _observation_phrases(fit.noise, observation, names)
        factor, more = _process_phrases(fit.noise, process)
        if texts or more:
            return Verdict("noise", "; ".join([*texts, *more]), declared, variances, factor)
    if not initial.consistent:
        text = (
            f"the first samples lie {np.sqrt(initial.ratio):.2g}× as far off as the initial state "
            "lets expect: give another initial.mean or a larger initial.cov"
        )
        return Verdict("initial", text, declared)
    return Verdict("consistent", "consistent", declared)


def consistent(tests: Sequence[ChannelTest]) -> bool:
    """Whether all channels pass."""
    return all(test.consistent for test in tests)


def simplest(fits: Sequence[Fit]) -> Fit:
    """The first that is consistent, unless the freest is much likelier and sees the sensor
    differently: then what is put down to the sensor is not the sensor's."""
    freest = fits[-1].noise
    seen = np.isfinite(freest.observation_error)
    variances = np.diag(freest.observation_noise)[seen]
    for fit in fits:
        rise = freest.log_likelihoods[-1] - fit.noise.log_likelihoods[-1]
        ratios = np.diag(fit.noise.observation_noise)[seen] / variances
        agree = np.all(np.abs(np.log(ratios)) < np.log(MARGIN))
        if consistent(fit.tests) and (rise < CLEAR or agree):
            return fit
    return fits[-1]


def _model_phrase(coloured: Sequence[ChannelTest]) -> str:
    """What to say of channels whose innovations no noise can make white."""
    worst = max(coloured, key=lambda test: abs(test.correlation))
    apart = "from one sample to the next" if worst.lag == 1 else f"{worst.lag} samples apart"
    return (
        f"the model does not explain the data: with the best noise too, what is left of "
        f"{worst.name} is correlated in time ({worst.correlation:.2f} {apart}): check the "
        "equations and their parameters, units, dt and the sensor"
    )


def _observation_phrases(
    found: NoiseEstimates, declared: NDArray[np.float64], names: Sequence[str]
) -> tuple[NDArray[np.float64] | None, list[str]]:
    """Variances to try, and a phrase for each channel whose noise is off."""
    now = np.diag(declared)
    least = np.where(found.observation_floored, LEAST_FACTOR * now, 0.0)
    best = np.maximum(np.diag(found.observation_noise), least)
    errors = np.where(found.observation_floored, 0.0, found.observation_error)
    live = np.flatnonzero(np.isfinite(errors) & (now > 0))
    ratios = {int(i): float(best[i] / now[i]) for i in live}
    off = [i for i, ratio in ratios.items() if _off(ratio, errors[i], MARGIN)]
    if not off:
        return None, []
    logs = np.log(list(ratios.values()))
    if np.ptp(now[live]) == 0 and np.ptp(logs) < np.log(MARGIN):  # one number serves for all
        common = float(np.exp(logs.mean()))
        said = [f"observation noise looks {_times(common)}: try {common * now[live[0]]:.2g}"]
        return best, said
    return best, [
        f"observation noise of {names[i]} looks {_times(ratios[i])}: try {best[i]:.2g}" for i in off
    ]


def _process_phrases(
    found: NoiseEstimates, declared: NDArray[np.float64]
) -> tuple[float | None, list[str]]:
    """A factor to try, and a phrase, where the process noise is off."""
    now, best = np.diag(declared), np.diag(found.process_noise)
    if not (now > 0).any():
        return None, []
    at = int(np.argmax(now))
    factor = float(best[at] / now[at])
    error = found.process_error[at]
    unseen = not np.isfinite(error) or error > 1  # gone, as far as the data can tell
    if factor < 1 and unseen:
        if factor > 1 / PROCESS_MARGIN**2:
            return None, []
        factor = max(factor, LEAST_FACTOR)
        said = "process noise looks far too large, the data show hardly any"
    elif _off(factor, error, PROCESS_MARGIN):
        said = f"process noise looks {_times(factor)}"
    else:
        return None, []
    same = np.ptp(now[now > 0]) == 0
    remedy = f"try {factor * now[at]:.2g}" if same else f"multiply it by {factor:.2g}"
    if factor > PROCESS_MARGIN**4:
        remedy += ", or mend the equations, which miss something"
    return factor, [f"{said}: {remedy}"]


def _off(ratio: float, error: float, margin: float) -> bool:
    """Whether a ratio is of consequence, and more than chance (3 standard errors)."""
    size = abs(np.log(ratio))
    return bool(np.isfinite(error) and size > max(np.log(margin), 3 * error))


def _times(ratio: float) -> str:
    size, way = max(ratio, 1 / ratio), f"too {'small' if ratio > 1 else 'large'}"
    if size > HARDLY_COUNTED:
        return f"far {way}"
    rounded = f"{size:.1f}" if size < 2 else f"{float(f'{size:.{1 if size < 10 else 2}g}'):,.0f}"
    return f"{rounded}× {way}"
