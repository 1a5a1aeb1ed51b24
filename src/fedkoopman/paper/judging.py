"""Verdicts from paired seeds: ratios and trends with 95 % intervals.

All arms of an item share their seeds, and with them trajectories, noise and the first model, so
that they are compared in pairs. Scores are positive and spread over orders of magnitude: logarithms
are compared. Intervals are Student's, of as many values as there are seeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkoopman.paper.result import FAILS, HOLDS, OPEN, Claim

__all__ = [
    "Interval",
    "all_of",
    "compared",
    "dips",
    "number",
    "opposite",
    "or_infinity",
    "ratio",
    "trend",
    "within",
]

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; NaN where nothing can be said."""

    middle: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """As "×1.32 (1.10 to 1.58)"."""
        if np.isnan(self.middle):
            return "not finite"
        if np.isinf(self.middle):
            return "not finite, and so above all"
        if not np.isfinite(self.low):
            return f"×{number(self.middle)} (one seed: no interval)"
        return f"×{number(self.middle)} ({number(self.low)} to {number(self.high)})"

    def above(self, bound: float) -> str:
        """Whether it lies above a bound: a verdict."""
        if self.low > bound:
            return HOLDS
        return FAILS if self.high < bound else OPEN


def ratio(a: Values, b: Values) -> Interval:
    """a / b over paired seeds: the geometric mean of the ratios.

    A score that is not finite has diverged: where a has in any seed and b in none, the ratio is
    above all bounds; the other way round, below all.
    """
    gone, other = ~np.isfinite(a).all(), ~np.isfinite(b).all()
    if gone or other:
        middle = np.nan if gone and other else np.inf if gone else 0.0
        return Interval(middle, middle, middle)
    with np.errstate(divide="ignore"):
        return _interval(np.log(a) - np.log(b))


def trend(x: Sequence[float], values: Sequence[Values]) -> Interval:
    """The factor by which values grow when x grows tenfold, from a line through each seed's.

    Arguments:
        x: positive, one per setting.
        values: of each setting, by seed.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        y, places = np.log(np.stack(values)), np.log10(np.asarray(x, float))
    places = places - places.mean()
    return _interval(places @ y / (places @ places))


def all_of(
    text: str,
    parts: Sequence[tuple[str, str]],
    why: str = "",
    *,
    lead: str = "",
    ours: bool = False,
) -> Claim:
    """A claim that holds if all its parts do, and fails if one does.

    Arguments:
        parts: verdict and evidence of each.
        why: what explains a difference; told where the claim does not hold.
        lead: begins the evidence.
        ours: whether the claim is ours, not the paper's.
    """
    verdicts = [verdict for verdict, _ in parts]
    verdict = FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
    reason = why if verdict == FAILS else UNDECIDED if verdict == OPEN else ""
    evidence = lead + "; ".join(evidence for _, evidence in parts)
    return Claim(text, verdict, evidence, reason, ours)


UNDECIDED = (
    "the interval over these seeds leaves it open; more seeds, in another directory, may decide"
)


def within(name: str, interval: Interval, factor: float) -> tuple[str, str]:
    """Whether a ratio lies between 1/factor and factor, as a part of a claim."""
    evidence = f"{name} {interval.words}"
    if 1 / factor < interval.low and interval.high < factor:
        return HOLDS, evidence
    return (FAILS if interval.low > factor or interval.high < 1 / factor else OPEN), evidence


def dips(labels: Sequence[str], values: Sequence[Values]) -> tuple[tuple[str, str], ...]:
    """Whether values first fall and then rise along a list of settings: two parts of a claim.

    The lowest setting between both ends is compared with the ends. It is chosen by its mean, which
    favours the claim a little.
    """
    inner = min(range(1, len(values) - 1), key=lambda i: or_infinity(np.log(values[i]).mean()))
    return tuple(
        (found.above(1.0), f"{what}: {labels[end]} against {labels[inner]} {found.words}")
        for what, end in (("falls", 0), ("rises", len(values) - 1))
        for found in [ratio(values[end], values[inner])]
    )


def opposite(verdict: str) -> str:
    """The verdict on the opposite statement."""
    return {HOLDS: FAILS, FAILS: HOLDS}.get(verdict, OPEN)


def number(value: float) -> str:
    """A number as pages show it."""
    if not np.isfinite(value):
        return "not finite"
    if 1000 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def compared(
    pairs: Sequence[tuple[str, Values, Values]], bound: float = 1.0
) -> tuple[tuple[str, str], ...]:
    """Parts of a claim, one for each (name, a, b): that a / b is above a bound."""
    found = [(name, ratio(a, b)) for name, a, b in pairs]
    return tuple((one.above(bound), f"{name} {one.words}") for name, one in found)


def _interval(logs: Values) -> Interval:
    middle, count = float(np.mean(logs)), len(logs)
    if count < 2 or not np.isfinite(logs).all():
        return Interval(float(np.exp(middle)), np.nan, np.nan)
    half = float(stats.t.ppf(0.975, count - 1) * stats.sem(logs))
    return Interval(*(float(np.exp(v)) for v in (middle, middle - half, middle + half)))


def or_infinity(value: float) -> float:
    """The value, or infinity if it is not finite: a score that diverged is the worst."""
    return value if np.isfinite(value) else np.inf
