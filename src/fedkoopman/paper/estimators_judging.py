"""What the paper's text says of Table III, judged from paired trajectories, under both readings.

The paper does not say whether its true states follow eq. (1), without process noise, or eq. (2),
with s_n ~ N(0, Σ_f): every claim is judged under each, and one whose verdicts differ depends on the
reading.

All filters see the same trajectories and noise, so that differences of ε are taken trajectory by
trajectory (Student's intervals and p-values); those of the spread 𝒱 are bootstrapped over
trajectories. A claim says of some differences that all are above 0. Words such as “comparably” need
a limit: each is named here and in the notes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fedkoopman.paper.items import FAILS, HOLDS, UNDECIDED, Claim
from fedkoopman.paper.verdicts import RULE, Part, by_reading, every

UKF, RESAMPLED = "UKF", "UKF with resampling"
EKF, PARTICLE = "Extended Kalman filter", "Particle filter"
FILTERS = (UKF, RESAMPLED, EKF, PARTICLE)
SMOOTHED = "UKF + smoother"
SHORT = {RESAMPLED: "resampled UKF", EKF: "EKF", PARTICLE: "particle filter"}

CLOSE = 1.1
"""ε within this factor is comparable, competitive, or a marginal gain."""
DEARER = 2.0
"""Costs above this factor are significantly higher."""
EFFICIENT = 5.0
"""Costs up to this factor above the cheapest are efficient: busy machines double times."""
NOTICED = 1.2
"""Times that differ by less cannot be told from what else a machine does."""
FEWEST = 10
"""Fewest trajectories for which a bootstrap interval decides a claim."""
MORE = "more trajectories, in another directory, may decide (--trajectories)"


@dataclass(frozen=True)
class Score:
    """One method at one noise level, under one reading."""

    truth: str
    """The equation that the true states follow."""
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
class Gap:
    """A difference that a claim says is above 0, with its 95 % interval.

    `above` and `below` are one-sided p-values: how likely numbers that speak so much for a
    difference above (below) 0 are, if it is not.
    """

    low: float
    high: float
    above: float
    below: float

    def part(self, count: int) -> Part:
        """The statement, from so many trajectories."""
        interval = f"interval {_signed(self.low)} to {_signed(self.high)}"
        return Part("", self.above, self.below, f"{count} trajectories: {interval}")


@dataclass(frozen=True)
class Judge:
    """The scores and differences of spreads under one reading."""

    scores: Mapping[tuple[str, float], Score]
    spreads: Mapping[tuple[str, float], Mapping[str, float]]
    extended: str
    """A remark for claims that the extended filter decides."""

    def lowest(self, text: str, best: str, noise: float, sign: int = 1) -> Claim:
        """Whether a filter has the lowest ε of the four, or the highest (sign −1)."""
        others = [name for name in FILTERS if name != best]
        gaps = {n: self.gap(*((n, best) if sign > 0 else (best, n)), noise) for n in others}
        nearest = min(others, key=lambda n: gaps[n].low)
        evidence = f"closest: {self.told(nearest, best, noise)}"
        return self._claim(
            text, evidence, list(gaps.values()), self.extended if EKF in (best, nearest) else ""
        )

    def at_most(self, text: str, name: str, others: Sequence[str], noise: float) -> Claim:
        """Whether a filter's ε is at most `CLOSE` times each of the others'."""
        evidence = "; ".join(self.told(name, other, noise) for other in others)
        return self._claim(text, evidence, [self.gap(o, name, noise, CLOSE) for o in others])

    def comparable(self, text: str, name: str, other: str, noise: float) -> Claim:
        """Whether ε of two filters is within `CLOSE`, whichever is larger."""
        gaps = [self.gap(name, other, noise, CLOSE), self.gap(other, name, noise, CLOSE)]
        return self._claim(text, self.told(name, other, noise), gaps)

    def no_gain(self, text: str, noise: float) -> Claim:
        """Whether resampling does not lower the UKF's ε."""
        gaps = [self.gap(RESAMPLED, UKF, noise)]
        return self._claim(text, self.told(UKF, RESAMPLED, noise), gaps)

    def marginal_gain(self, text: str, noise: float) -> Claim:
        """Whether resampling lowers the UKF's ε, but by less than `CLOSE`."""
        gain = self.gap(UKF, RESAMPLED, noise)
        gaps = [gain, self.gap(RESAMPLED, UKF, noise, CLOSE)]
        why = "there is no gain: it is worse" if gain.high < 0 else "the gain is larger"
        return self._claim(text, self.told(UKF, RESAMPLED, noise), gaps, why)

    def less_spread(self, text: str, others: Sequence[str], noise: float) -> Claim:
        """Whether the particle filter has the lowest 𝒱."""
        found = [self.spreads[other, noise] for other in others]
        own = self.scores[PARTICLE, noise]
        parts = [
            f"{_short(other)} − particle filter {_signed(one['difference'])} "
            f"({_signed(one['low'])} to {_signed(one['high'])})"
            for other, one in zip(others, found, strict=True)
        ]
        evidence = f"𝒱 of the particle filter {own.spread:.3f}; differences: {'; '.join(parts)}"
        names = ("low", "high", "above", "below")
        gaps = [Gap(**{name: one[name] for name in names}) for one in found]
        if len(own.each) < FEWEST:
            gaps = [replace(gap, above=1.0, below=1.0) for gap in gaps]
        return self._claim(text, evidence, gaps)

    def smoothed(self, text: str) -> Claim:
        """Whether smoothing lowers the UKF's ε at every noise level."""
        levels = sorted({noise for _, noise in self.scores})
        evidence = "; ".join(self.told(SMOOTHED, UKF, noise) for noise in levels)
        return self._claim(text, evidence, [self.gap(UKF, SMOOTHED, noise) for noise in levels])

    def gap(self, a: str, b: str, noise: float, factor: float = 1.0) -> Gap:
        """The mean of factor · ε_a − ε_b."""
        mine, other = (np.array(self.scores[name, noise].each) for name in (a, b))
        each = factor * mine - other
        middle, error, rest = float(each.mean()), float(stats.sem(each)), len(each) - 1
        half = float(stats.t.ppf(0.975, rest)) * error
        with np.errstate(divide="ignore", invalid="ignore"):
            above = float(stats.t.sf(np.float64(middle) / error, rest))
        return Gap(middle - half, middle + half, above, 1 - above)

    def told(self, a: str, b: str, noise: float) -> str:
        """The difference in words."""
        gap = self.gap(a, b, noise)
        middle, half = (gap.low + gap.high) / 2, (gap.high - gap.low) / 2
        share = 100 * middle / self.scores[b, noise].error
        return (
            f"paired difference {_short(a)} − {_short(b)} {_signed(middle)} ± {half:.4f} "
            f"({_signed(share, '.1f')} %)"
        )

    def _claim(self, text: str, evidence: str, gaps: Sequence[Gap], why: str = "") -> Claim:
        count = len(next(iter(self.scores.values())).each)
        part = every([gap.part(count) for gap in gaps], evidence)
        verdict = part.verdict
        reason = {HOLDS: "", FAILS: why, UNDECIDED: MORE}[verdict]
        detail = part.detail if verdict == UNDECIDED else ""
        return Claim(text, verdict, evidence, reason, detail=detail)


def costs(scores: Sequence[Score]) -> tuple[Claim, ...]:
    """What the text says of computation, by the time per trajectory in every case."""
    cases = sorted({(s.truth, s.noise) for s in scores})
    found = {(s.method, s.truth, s.noise): s.seconds for s in scores}
    seconds = {n: [found[n, *case] for case in cases] for n in FILTERS}
    dear = np.array(seconds[PARTICLE]) / np.max([seconds[n] for n in FILTERS[:3]], axis=0)
    cheapest = np.min([seconds[n] for n in FILTERS], axis=0)
    light, extended = (np.array(seconds[n]) / cheapest for n in (UKF, EKF))
    again = np.array(seconds[RESAMPLED]) / np.array(seconds[UKF])
    told = ", ".join(f"{n} {1e3 * np.mean(values):.3g}" for n, values in seconds.items())

    def judged(text: str, words: str, high: np.ndarray, low: np.ndarray | None = None) -> Claim:
        fails = np.all(~high if low is None else low)
        verdict = HOLDS if np.all(high) else FAILS if fails else UNDECIDED
        open_ = verdict == UNDECIDED
        return Claim(
            text,
            verdict,
            f"ms per trajectory: {told}; {words}",
            "times vary with what else this machine does" if open_ else "",
            detail=f"so in {int(np.sum(high))} of {len(cases)} cases" if open_ else "",
        )

    return (
        judged(
            "the particle filter costs significantly more than the others",
            f"at least {dear.min():.3g} times the dearest of the others",
            dear > DEARER,
        ),
        judged(
            "the UKF is computationally efficient",
            f"the UKF at most {light.max():.3g} times the cheapest",
            light <= EFFICIENT,
        ),
        judged(
            "the extended filter is computationally efficient",
            f"the extended filter at most {extended.max():.3g} times the cheapest",
            extended <= EFFICIENT,
        ),
        judged(
            "resampling introduces extra computational overhead (Section III)",
            f"with resampling {again.min():.3g} to {again.max():.3g} times without",
            again > NOTICED,
            again < 1 / NOTICED,
        ),
    )


def estimator_claims(
    scores: Sequence[Score], spreads: Sequence[Mapping[str, Any]], extended: str
) -> tuple[Claim, ...]:
    """The statements of the paper's text, in its order, over all readings."""
    truths = dict.fromkeys(score.truth for score in scores)
    judged = {
        f"truth by {truth}": _under_one_reading(
            Judge(
                {(s.method, s.noise): s for s in scores if s.truth == truth},
                {(s["method"], s["noise"]): s for s in spreads if s["truth"] == truth},
                extended,
            )
        )
        for truth in truths
    }
    first, *rest = (
        by_reading(claims[0].text, dict(zip(judged, claims, strict=True)))
        for claims in zip(*judged.values(), strict=True)
    )
    dear, *light = costs(scores)
    place = 5  # where the text speaks of costs
    return (first, *rest[:place], dear, *rest[place:], *light)


def _under_one_reading(judge: Judge) -> tuple[Claim, ...]:
    others = FILTERS[:3]
    less = "the particle filter has the lowest spread 𝒱 at Σ ="
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
        judge.lowest("the extended filter is the worst at Σ = I", EKF, 1.0, -1),
        judge.lowest("UKF with resampling has the lowest error at Σ = 4I", RESAMPLED, 4.0),
        judge.marginal_gain("the gain of resampling over the UKF at Σ = 4I is marginal", 4.0),
        judge.at_most("the particle filter remains competitive at Σ = 4I", PARTICLE, others, 4.0),
        judge.lowest("the extended filter is the worst at Σ = 4I", EKF, 4.0, -1),
        judge.smoothed("the smoother improves the UKF's estimates (Section III)"),
    )


def readings() -> str:
    """How we read the words of the paper's text."""
    close = f"{100 * (CLOSE - 1):.0f} %"
    return (
        f"Readings: “comparably” is ε within {close}, “competitive” ε at most {close} above each "
        f"of the other three filters', a “marginal” gain one above 0 and below {close}; “no "
        f"additional benefit” that ε is not lower. “Significantly” more costly is above {DEARER:g} "
        f"times the dearest of the others, “efficient” up to {EFFICIENT:g} times the cheapest, "
        f"“overhead” {NOTICED:g} times, at "
        "both noise levels and under both readings. Differences of ε are of the same trajectories, "
        "with Student's intervals; those of 𝒱 have bootstrap intervals over trajectories "
        f"(percentiles). {RULE}"
    )


def _short(name: str) -> str:
    return SHORT.get(name, name)


def _signed(value: float, form: str = ".4f") -> str:
    return format(value, f"+{form}").replace("-", "−")
