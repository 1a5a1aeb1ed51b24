"""Verdicts from paired seeds.

All arms of an item share their seeds, and with them trajectories, noise and the first model, so
that they are compared in pairs. Scores are positive and spread over orders of magnitude: logarithms
are compared, by Student's t.

Intervals are shown at 95 %. A verdict needs more, 99 %: results near a line move over it from one
kind of processor to another, and are told as undecided instead.

A claim of several parts holds if every part does at that level, which needs no correction (an
intersection-union test: Berger, Technometrics 24, 1982). That one part of several fails, or that
some part holds, is what chance offers more often the more parts there are: Holm's correction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkoopman.paper.items import DEPENDS, FAILS, HOLDS, UNDECIDED, Claim

Values = NDArray[np.float64]

LEVEL = 0.005
"""Largest p-value, to one side, that decides: both sides together leave 99 %."""
SHOWN = 0.95
"""Level of the intervals that are shown."""

RULE = (
    "Intervals are 95 %; a verdict needs 99 %, so that what is near a line is undecided on every "
    "machine. A claim of several parts holds if every part does; that one of them fails is tested "
    "with Holm's correction for their number."
)


@dataclass(frozen=True)
class Interval:
    """A ratio with its 95 % interval; NaN where nothing can be said.

    Attributes:
        middle, low, high: of the ratio.
        count: seeds that it comes from.
    """

    middle: float
    low: float
    high: float
    count: int

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

    @property
    def detail(self) -> str:
        """What stands beside "undecided"."""
        if not (np.isfinite(self.low) and np.isfinite(self.high)):
            return "not finite" if self.count > 1 else "one seed: no interval"
        return f"{self.count} seeds: interval {number(self.low)} to {number(self.high)}"

    def above(self, bound: float, name: str = "") -> "Part":
        """That the ratio lies above a bound; `name` begins the evidence."""
        holds, fails = self._chances(bound)
        return Part(f"{name} {self.words}".strip(), holds, fails, self.detail)

    def within(self, factor: float, name: str = "") -> "Part":
        """That the ratio lies between 1/factor and factor."""
        above_low, below_low = self._chances(1 / factor)
        above_high, below_high = self._chances(factor)
        return Part(
            f"{name} {self.words}".strip(),
            max(above_low, below_high),
            min(1.0, 2 * min(below_low, above_high)),  # either side may be left
            self.detail,
        )

    def _chances(self, bound: float) -> tuple[float, float]:
        """p-values of lying above and below a bound."""
        if np.isnan(self.middle):
            return 1.0, 1.0
        if self.middle in (0.0, np.inf):
            return (1.0, 0.0) if self.middle == 0 else (0.0, 1.0)
        if not np.isfinite(self.low) or self.count < 2:
            return 1.0, 1.0
        gap = np.log(self.middle) - np.log(bound)
        half = (np.log(self.high) - np.log(self.low)) / 2
        if half == 0:
            return float(gap <= 0), float(gap >= 0)
        t = gap / half * stats.t.ppf((1 + SHOWN) / 2, self.count - 1)
        above = float(stats.t.sf(t, self.count - 1))
        return above, 1 - above


@dataclass(frozen=True)
class Part:
    """A statement that numbers can decide: a claim, or one of several that make one.

    Attributes:
        evidence: our numbers.
        holds: the p-value of its opposite: small where the statement holds.
        fails: the p-value of the statement: small where it fails.
        detail: what is said of it where neither is small.
    """

    evidence: str
    holds: float
    fails: float
    detail: str = ""

    @property
    def verdict(self) -> str:
        """What the p-values say."""
        if self.holds <= LEVEL:
            return HOLDS
        return FAILS if self.fails <= LEVEL else UNDECIDED

    @property
    def opposite(self) -> "Part":
        """The opposite statement, with the same evidence."""
        return replace(self, holds=self.fails, fails=self.holds)


def fact(true: bool, evidence: str) -> Part:
    """A statement that needs no statistics."""
    return Part(evidence, float(not true), float(true))


def every(parts: Sequence[Part], evidence: str | None = None) -> Part:
    """That all parts hold; their own evidence, unless another is given."""
    weakest = max(parts, key=lambda part: part.holds)
    told = "; ".join(part.evidence for part in parts) if evidence is None else evidence
    return Part(
        told,
        weakest.holds,
        min(1.0, len(parts) * min(part.fails for part in parts)),
        weakest.detail,
    )


def some(parts: Sequence[Part], evidence: str | None = None) -> Part:
    """That at least one part holds."""
    return every([part.opposite for part in parts], evidence).opposite


def surely(parts: Sequence[Part]) -> list[bool]:
    """Which of several parts hold, by Holm's correction for their number."""
    order = sorted(range(len(parts)), key=lambda i: parts[i].holds)
    found = [False] * len(parts)
    for place, i in enumerate(order):
        if parts[i].holds * (len(parts) - place) > LEVEL:
            break
        found[i] = True
    return found


def all_of(
    text: str,
    parts: Sequence[Part],
    why: str = "",
    *,
    lead: str = "",
    ours: bool = False,
) -> Claim:
    """A claim that holds if all its parts do, and fails if one does.

    Arguments:
        why: what explains a difference; told where the claim does not hold.
        lead: begins the evidence.
        ours: whether the claim is ours, not the paper's.
    """
    part = every(parts)
    verdict = part.verdict
    return Claim(
        text,
        verdict,
        lead + part.evidence,
        why if verdict == FAILS else "",
        ours,
        part.detail if verdict == UNDECIDED else "",
    )


def by_reading(text: str, claims: Mapping[str, Claim]) -> Claim:
    """One claim from the same one under several readings of the paper, by the reading's name.

    It has their verdict if that is the same; else it depends on the reading if it holds under one,
    and is undecided if it holds under none.
    """
    verdicts = {claim.verdict for claim in claims.values()}
    whys = dict.fromkeys(claim.why for claim in claims.values() if claim.why)
    first = next(iter(claims.values()))
    evidence = "; ".join(f"{name}: {c.told}, {c.evidence}" for name, c in claims.items())
    if len(verdicts) == 1:
        verdict, detail = first.verdict, first.detail
        evidence = "; ".join(f"{name}: {claim.evidence}" for name, claim in claims.items())
    elif HOLDS in verdicts:
        verdict, detail = DEPENDS, ""
    else:
        verdict = UNDECIDED
        detail = next((c.detail for c in claims.values() if c.verdict == UNDECIDED), "")
    return Claim(text, verdict, evidence, "; ".join(whys), first.ours, detail)


def ratio(a: Values, b: Values) -> Interval:
    """a / b over paired seeds: the geometric mean of the ratios.

    A score that is not finite has diverged: where a has in any seed and b in none, the ratio is
    above all bounds; the other way round, below all.
    """
    gone, other = ~np.isfinite(a).all(), ~np.isfinite(b).all()
    if gone or other:
        middle = np.nan if gone and other else np.inf if gone else 0.0
        return Interval(middle, middle, middle, len(a))
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


def compared(pairs: Sequence[tuple[str, Values, Values]], bound: float = 1.0) -> tuple[Part, ...]:
    """Parts of a claim, one for each (name, a, b): that a / b is above a bound."""
    return tuple(ratio(a, b).above(bound, name) for name, a, b in pairs)


def dips(labels: Sequence[str], values: Sequence[Values]) -> Part:
    """That values first fall and then rise along a list of settings.

    It holds if some setting between both ends is below both of them, with Holm's correction for the
    choice among these settings. It fails if one end is below all settings between.
    """
    inner = range(1, len(values) - 1)
    ends = (0, len(values) - 1)
    gaps = {(end, i): ratio(values[end], values[i]) for end in ends for i in inner}
    lowest = min(inner, key=lambda i: or_infinity(np.log(values[i]).mean()))
    told = [
        f"{what}: {labels[end]} against {labels[lowest]} {gaps[end, lowest].words}"
        for what, end in zip(("falls", "rises"), ends, strict=True)
    ]
    lower = some([every([gaps[end, i].above(1.0) for end in ends]) for i in inner])
    slope = some([every([gaps[end, i].above(1.0).opposite for i in inner]) for end in ends])
    weakest = max((gaps[end, lowest] for end in ends), key=lambda gap: gap.above(1.0).holds)
    return Part("; ".join(told), lower.holds, slope.holds, weakest.detail)


def number(value: float) -> str:
    """A number as pages show it."""
    if not np.isfinite(value):
        return "not finite"
    if 1000 <= abs(value) < 1e6:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def or_infinity(value: float) -> float:
    """The value, or infinity if it is not finite: a score that diverged is the worst."""
    return value if np.isfinite(value) else np.inf


def _interval(logs: Values) -> Interval:
    middle, count = float(np.mean(logs)), len(logs)
    if count < 2 or not np.isfinite(logs).all():
        return Interval(float(np.exp(middle)), np.nan, np.nan, count)
    half = float(stats.t.ppf((1 + SHOWN) / 2, count - 1) * stats.sem(logs))
    low, high = np.exp(middle - half), np.exp(middle + half)
    return Interval(float(np.exp(middle)), float(low), float(high), count)
