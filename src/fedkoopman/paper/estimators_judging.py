"""What the paper's text says of Table III, judged from paired trajectories.

All filters see the same trajectories and noise, so that differences of ε are taken trajectory by
trajectory, with Student's intervals; those of the spread 𝒱 have bootstrap intervals over
trajectories. Words such as “comparably” need a limit: each is named here and in the notes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from fedkoopman.paper.items import FAILS, HOLDS, UNDECIDED, Claim

UKF, RESAMPLED = "UKF", "UKF with resampling"
EKF, PARTICLE = "Extended Kalman filter", "Particle filter"
FILTERS = (UKF, RESAMPLED, EKF, PARTICLE)
SHORT = {RESAMPLED: "resampled UKF", EKF: "EKF", PARTICLE: "particle filter"}

CLOSE = 1.1
"""ε within this factor is comparable, competitive, or a marginal gain."""
DEARER = 2.0
"""Costs above this factor are significantly higher."""
FEWEST = 10
"""Fewest trajectories for which a bootstrap interval decides a claim."""
MORE = (
    "the interval over these trajectories leaves it open; more of them, in another directory, may "
    "decide (--trajectories)"
)


@dataclass(frozen=True)
class Score:
    """One method at one noise level."""

    method: str
    noise: float
    error: float
    """ε."""
    spread: float
    """𝒱."""
    interval: float
    """Half width of the 95 % interval of ε over trajectories."""
    seconds: float
    """Time per trajectory, without compilation."""
    each: Sequence[float]
    """Mean error of every trajectory, for paired comparisons."""


@dataclass(frozen=True)
class Judge:
    """The scores and differences of spreads of one table."""

    scores: Mapping[tuple[str, float], Score]
    spreads: Mapping[tuple[str, float], Mapping[str, float]]
    extended: str
    """A remark for claims that the extended filter decides."""

    def lowest(self, text: str, best: str, noise: float, sign: int = 1) -> Claim:
        """Whether a filter has the lowest ε of the four, or the highest (sign −1)."""
        others = [name for name in FILTERS if name != best]
        gaps = {n: sign * self.difference(n, best, noise) for n in others}
        nearest = min(others, key=lambda n: gaps[n][0])
        evidence = f"closest: {self.told(nearest, best, noise)}"
        extended = self.extended if EKF in (best, nearest) else ""
        return _claim(
            text,
            evidence,
            holds=all(low > 0 for low, _ in gaps.values()),
            fails=any(high < 0 for _, high in gaps.values()),
            why=extended,
        )

    def at_most(self, text: str, name: str, others: Sequence[str], noise: float) -> Claim:
        """Whether a filter's ε is at most `CLOSE` times each of the others'."""
        evidence = "; ".join(self.told(name, other, noise) for other in others)
        return self._close(text, [(name, other) for other in others], noise, evidence)

    def comparable(self, text: str, name: str, other: str, noise: float) -> Claim:
        """Whether ε of two filters is within `CLOSE`, whichever is larger."""
        pairs = [(name, other), (other, name)]
        return self._close(text, pairs, noise, self.told(name, other, noise))

    def _close(
        self, text: str, pairs: Sequence[tuple[str, str]], noise: float, evidence: str
    ) -> Claim:
        gaps = [self.difference(*pair, noise, CLOSE) for pair in pairs]
        holds = all(high < 0 for _, high in gaps)
        return _claim(text, evidence, holds=holds, fails=any(low > 0 for low, _ in gaps))

    def no_gain(self, text: str, noise: float) -> Claim:
        """Whether resampling does not lower the UKF's ε."""
        low, high = self.difference(UKF, RESAMPLED, noise)
        return _claim(text, self.told(UKF, RESAMPLED, noise), holds=high < 0, fails=low > 0)

    def marginal_gain(self, text: str, noise: float) -> Claim:
        """Whether resampling lowers the UKF's ε, but by less than `CLOSE`."""
        low, high = self.difference(UKF, RESAMPLED, noise)
        least, most = self.difference(UKF, RESAMPLED, noise, CLOSE)
        return _claim(
            text,
            self.told(UKF, RESAMPLED, noise),
            holds=low > 0 and most < 0,
            fails=high < 0 or least > 0,
            why="there is no gain: it is worse" if high < 0 else "the gain is larger",
        )

    def less_spread(self, text: str, others: Sequence[str], noise: float) -> Claim:
        """Whether the particle filter has the lowest 𝒱."""
        found = [self.spreads[other, noise] for other in others]
        own = self.scores[PARTICLE, noise]
        parts = [
            f"{_short(other)} − particle filter {_signed(one['difference'])} "
            f"({_signed(one['low'])} to {_signed(one['high'])})"
            for other, one in zip(others, found, strict=True)
        ]
        enough = len(own.each) >= FEWEST
        return _claim(
            text,
            f"𝒱 of the particle filter {own.spread:.3f}; differences: {'; '.join(parts)}",
            holds=enough and all(one["low"] > 0 for one in found),
            fails=enough and any(one["high"] < 0 for one in found),
        )

    def costs(self) -> tuple[Claim, Claim]:
        """What the text says of computation, by the time per trajectory at both noise levels."""
        levels = sorted({noise for _, noise in self.scores})
        seconds = {n: [self.scores[n, noise].seconds for noise in levels] for n in FILTERS}
        dear = np.array(seconds[PARTICLE]) / np.max([seconds[n] for n in FILTERS[:3]], axis=0)
        light = np.array(seconds[UKF]) / np.min([seconds[n] for n in FILTERS], axis=0)
        told = ", ".join(f"{n} {1e3 * np.mean(values):.3g}" for n, values in seconds.items())
        evidence = f"ms per trajectory: {told}"
        why = "it is so at one noise level only: times vary with what else this machine does"

        def judged(text: str, told: str, high: np.ndarray) -> Claim:
            holds, fails = bool(np.all(high)), not np.any(high)
            return _claim(text, f"{evidence}; {told}", holds=holds, fails=fails, open_why=why)

        return (
            judged(
                "the particle filter costs significantly more than the others",
                f"at least {dear.min():.3g} times the dearest of the others",
                dear > DEARER,
            ),
            judged(
                "the UKF is computationally efficient",
                f"the UKF at most {light.max():.3g} times the cheapest",
                light <= DEARER,
            ),
        )

    def difference(self, a: str, b: str, noise: float, factor: float = 1.0) -> np.ndarray:
        """95 % interval of the mean of ε_a − factor · ε_b."""
        middle, half = self._paired(a, b, noise, factor)
        return np.array([middle - half, middle + half])

    def told(self, a: str, b: str, noise: float) -> str:
        """The difference in words."""
        middle, half = self._paired(a, b, noise)
        share = 100 * middle / self.scores[b, noise].error
        return (
            f"paired difference {_short(a)} − {_short(b)} {_signed(middle)} ± {half:.4f} "
            f"({_signed(share, '.1f')} %)"
        )

    def _paired(self, a: str, b: str, noise: float, factor: float = 1.0) -> tuple[float, float]:
        mine, other = (np.array(self.scores[name, noise].each) for name in (a, b))
        gap = mine - factor * other
        half = stats.t.ppf(0.975, len(gap) - 1) * stats.sem(gap)
        return float(gap.mean()), float(half)


def estimator_claims(
    scores: Sequence[Score], spreads: Sequence[Mapping[str, Any]], extended: str
) -> tuple[Claim, ...]:
    """The statements of the paper's text, in its order."""
    judge = Judge(
        {(s.method, s.noise): s for s in scores},
        {(s["method"], s["noise"]): s for s in spreads},
        extended,
    )
    others = FILTERS[:3]
    less = "the particle filter has the lowest spread 𝒱 at Σ ="
    dear, light = judge.costs()
    return (
        judge.lowest("UKF has the lowest error at Σ = I", UKF, 1.0),
        judge.no_gain("resampling offers no additional benefit at Σ = I", 1.0),
        judge.comparable(
            "the particle filter performs comparably to the UKF at Σ = I", PARTICLE, UKF, 1.0
        ),
        judge.less_spread(
            "the particle filter has a lower spread 𝒱 than the UKF at Σ = I", [UKF], 1.0
        ),
        judge.less_spread(f"{less} I", others, 1.0),
        judge.less_spread(f"{less} 4I", others, 4.0),
        dear,
        judge.lowest("the extended filter is the worst at Σ = I", EKF, 1.0, -1),
        judge.lowest("UKF with resampling has the lowest error at Σ = 4I", RESAMPLED, 4.0),
        judge.marginal_gain("the gain of resampling over the UKF at Σ = 4I is marginal", 4.0),
        judge.at_most("the particle filter remains competitive at Σ = 4I", PARTICLE, others, 4.0),
        judge.lowest("the extended filter is the worst at Σ = 4I", EKF, 4.0, -1),
        light,
    )


def readings() -> str:
    """How we read the words of the paper's text."""
    close = f"{100 * (CLOSE - 1):.0f} %"
    return (
        f"Readings: “comparably” is ε within {close}, “competitive” ε at most {close} above each "
        f"of the other three filters', a “marginal” gain one above 0 and below {close}; “no "
        f"additional benefit” that ε is not lower. “Significantly” more costly is above {DEARER:g} "
        f"times the dearest of the others, “efficient” up to {DEARER:g} times the cheapest, at "
        "both noise levels. Differences of ε are of the same trajectories, with Student's 95 % "
        "intervals; those of 𝒱 have 95 % bootstrap intervals over trajectories (percentiles)."
    )


def _claim(
    text: str,
    evidence: str,
    *,
    holds: bool,
    fails: bool,
    why: str = "",
    open_why: str = MORE,
) -> Claim:
    if holds:
        return Claim(text, HOLDS, evidence)
    return (
        Claim(text, FAILS, evidence, why) if fails else Claim(text, UNDECIDED, evidence, open_why)
    )


def _short(name: str) -> str:
    return SHORT.get(name, name)


def _signed(value: float, form: str = ".4f") -> str:
    return format(value, f"+{form}").replace("-", "−")
