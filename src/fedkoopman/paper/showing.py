"""How measured runs are shown: curves over slots, tails against a number, tables and CSV."""

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedkoopman.paper.arms import METRICS, Measured
from fedkoopman.paper.judging import number
from fedkoopman.paper.result import (
    FAILS,
    HOLDS,
    Claim,
    Findings,
    Numbers,
    Panel,
    Series,
    Table,
)

__all__ = [
    "NAMES",
    "against",
    "csv_of",
    "curves",
    "grows",
    "mean_and_spread",
    "seeds_note",
    "shown",
    "sources_of",
]

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


def mean_and_spread(values: NDArray[np.float64]) -> str:
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


def _mean_and_std(values: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Over the first axis."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0).tolist(), spread.tolist()


def _cell(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
