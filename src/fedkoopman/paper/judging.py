"""Verdicts from paired seeds, and how measured runs are shown: figures, tables and CSV.

All arms of an item share their seeds, and with them trajectories, noise and the first model, so
that they are compared in pairs. Scores are positive and spread over orders of magnitude: logarithms
are compared. Intervals are Student's, of as many values as there are seeds.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkoopman.paper.arms import METRICS, Measured
from fedkoopman.paper.items import (
    FAILS,
    HOLDS,
    OPEN,
    Claim,
    Findings,
    Numbers,
    Panel,
    Series,
    Table,
)

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


NAMES = {
    "loss": "test loss",
    "l1": "test ℓ₁",
    "l2": "test ℓ₂",
    "l3": "test ℓ₃",
    "E": "prediction error E",
}


def shown(
    arms: Iterable[Measured],
    *,
    claims: tuple[Claim, ...],
    panels: tuple[Panel, ...],
    notes: tuple[str, ...],
    shared: bool = True,
) -> Findings:
    """Claims and figure with what every item of runs has beside them: table, CSV, studies, seeds.

    Arguments:
        arms: all that were measured, in the order in which they are listed.
        claims, panels: as `Findings` has them.
        notes: what a reader must know; over what was averaged is added.
        shared: as for `seeds_note`.
    """
    arms = tuple(arms)
    return Findings(
        claims=claims,
        table=tails(arms),
        numbers=csv_of(arms),
        panels=panels,
        notes=(*notes, seeds_note(arms, shared)),
        sources=sources_of(arms),
    )


def curves(
    title: str, arms: Iterable[Measured], metric: str, references: Sequence[Series] = ()
) -> Panel:
    """A metric over slots: means over seeds with their standard deviation as a band."""
    series = []
    for arm in arms:
        values = arm.curves(metric)
        slots = list(range(1, arm.slots + 1))
        mean, spread = _mean_and_std(values)
        series.append(Series(arm.label, slots, mean, spread))
    return Panel(title, "time slot", NAMES[metric], (*series, *references), log_y=True)


def against(
    title: str, x: str, arms: Sequence[Measured], metric: str, log_x: bool = False
) -> Panel:
    """The tail mean of a metric against the number that the arms vary, or against their labels."""
    mean, spread = _mean_and_std(np.stack([arm.tail(metric) for arm in arms]).T)
    named = any(arm.value is None for arm in arms)
    places = [float(i if arm.value is None else arm.value) for i, arm in enumerate(arms)]
    line = Series("mean over seeds", places, mean, spread, style="points")
    labels = tuple(arm.label for arm in arms) if named else ()
    return Panel(title, x, NAMES[metric], (line,), log_x, names=labels)


def tails(arms: Iterable[Measured], metrics: Sequence[str] = ("loss", "l3", "E")) -> Table:
    """A row per arm: tail means ± standard deviation over seeds."""
    rows = []
    for arm in arms:
        cells = [mean_and_spread(arm.tail(metric)) for metric in metrics]
        counts = [f"{arm.table[name]:.0f}" for name in ("rounds", "renewals")]
        rows.append((arm.label, *cells, *counts))
    counted = ("trainings", "slots with training")
    return Table(("setting", *(NAMES[m] for m in metrics), *counted), tuple(rows))


def mean_and_spread(values: Values) -> str:
    """Mean and standard deviation over seeds, as pages show them."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(values.mean())} ± {number(values.std(ddof=1))}"


def grows(
    name: str, arms: Sequence[Measured], count: Callable[[Measured], float]
) -> tuple[str, str]:
    """Whether a count grows from arm to arm; its spread over seeds is not shown."""
    values = [count(arm) for arm in arms]
    listed = ", ".join(f"{arm.label}: {number(v)}" for arm, v in zip(arms, values, strict=True))
    rising = all(a < b for a, b in itertools.pairwise(values))
    return (HOLDS if rising else FAILS), f"{name}: {listed}"


def csv_of(arms: Iterable[Measured]) -> tuple[Numbers, ...]:
    """Every seed's tail, and every slot's mean and standard deviation over seeds."""
    per_seed, per_slot = [], []
    for arm in arms:
        scores = {m: arm.tail(m) for m in METRICS}
        for place, seed in enumerate(arm.table["seeds"]):
            row = [_cell(scores[m][place]) for m in METRICS]
            before = [_cell(arm.untrained(m)[place]) for m in ("loss", "E")]
            held = [_cell(arm.persistence(m)[place]) for m in ("l3", "E")]
            per_seed.append((arm.label, arm.value, seed, *row, *before, *held, arm.table["folder"]))
        columns = [_mean_and_std(arm.curves(m)) for m in METRICS]
        for slot in range(arm.slots):
            pairs = [_cell(part[slot]) for pair in columns for part in pair]
            per_slot.append((arm.label, slot + 1, *pairs))
    baselines = ("untrained_loss", "untrained_E", "persistence_l3", "persistence_E")
    spreads = tuple(f"{m}_{part}" for m in METRICS for part in ("mean", "std"))
    return (
        Numbers("", ("setting", "value", "seed", *METRICS, *baselines, "run"), tuple(per_seed)),
        Numbers("slots", ("setting", "slot", *spreads), tuple(per_slot)),
    )


def sources_of(arms: Iterable[Measured]) -> tuple[tuple[str, str], ...]:
    """The study of every arm."""
    return tuple((arm.label, arm.table["study"]) for arm in arms)


def seeds_note(arms: Iterable[Measured], shared: bool = True) -> str:
    """A note on the seeds and slots over which means are taken.

    Arguments:
        shared: whether a seed's trajectories, noise and first model are the same in all settings.
    """
    arm = next(iter(arms))
    seeds = arm.table["seeds"]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return (
        f"Means ± standard deviations over {which}; a seed's number is its mean over the last "
        f"{arm.table['tail_slots']} slots. Ratios (×) are of paired seeds, with 95 % intervals"
        + (
            "; a seed's trajectories, noise and first model are the same in all settings."
            if shared
            else "; settings share seeds, but not what is drawn from them."
        )
    )


def _mean_and_std(values: Values) -> tuple[list[float], list[float]]:
    """Over the first axis."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0).tolist(), spread.tolist()


def _cell(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
