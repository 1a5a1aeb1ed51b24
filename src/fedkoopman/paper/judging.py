"""What measured runs say, and how they are shown: parts of claims, figures, tables and CSV."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from fedkoopman.paper.arms import METRICS, Measured
from fedkoopman.paper.items import Claim, Findings, Numbers, Panel, Series, Table
from fedkoopman.paper.verdicts import RULE, Part, Values, compared, fact, number, ratio

FALL = 100.0
"""A score has converged if it is at the end so many times below the untrained model's, …"""
STAYS = 2.0
"""… and at most so many times the best it was before."""
CONVERGES = (
    f"“Converges” has one meaning on all pages: the mean over the last slots is at least {FALL:g} "
    f"times below the untrained model's, and at most {STAYS:g} times the best mean over as many "
    "slots before, which is chosen for each seed after the fact."
)


def converges(arm: Measured, metric: str = "loss") -> tuple[Part, Part]:
    """That a score has fallen, and is at the end about as low as it has ever been."""
    length, values = arm.table["tail_slots"], arm.curves(metric)
    windows = np.lib.stride_tricks.sliding_window_view(values, length, axis=1).mean(axis=-1)
    before = windows[:, : max(arm.slots - 2 * length + 1, 1)]
    ends = before.argmin(axis=1) + length
    where = (
        f"slot {ends.min()}" if ends.min() == ends.max() else f"slots {ends.min()} to {ends.max()}"
    )
    risen = ratio(arm.tail(metric), before.min(axis=1))
    fallen = ratio(arm.untrained(metric), arm.tail(metric))
    stays = risen.above(STAYS, f"final to the best {length} slots before")
    return (
        fallen.above(FALL, f"{arm.label}, untrained to final {NAMES[metric]}"),
        replace(stays.opposite, evidence=f"{stays.evidence}, which ended at {where}"),
    )


def settled(arm: Measured, metric: str = "loss") -> int:
    """The slot from which on the median over seeds of a score stays within `STAYS` of its end.

    The slot after the last one, if it never does.
    """
    values = arm.curves(metric) / arm.tail(metric)[:, None]
    above = np.flatnonzero(~(np.median(values, axis=0) <= STAYS))
    return int(above[-1]) + 2 if len(above) else 1


def higher(metric: str, pairs: Iterable[tuple[Measured, Measured]]) -> tuple[Part, ...]:
    """Parts of a claim, one for each pair: that a score of the first arm is above the second's."""
    return compared([(f"{a.label} to {b.label}", a.tail(metric), b.tail(metric)) for a, b in pairs])


def close(
    metric: str, pairs: Iterable[tuple[Measured, Measured]], factor: float
) -> tuple[Part, ...]:
    """Parts of a claim, one for each pair: that both arms' scores are within a factor."""
    return tuple(
        ratio(a.tail(metric), b.tail(metric)).within(factor, f"{a.label} to {b.label}")
        for a, b in pairs
    )


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
    panels: tuple[Panel, ...] = (),
    notes: tuple[str, ...],
    table: Table | None = None,
    numbers: tuple[Numbers, ...] = (),
    shared: bool = True,
) -> Findings:
    """Claims and figure with what every item of runs has beside them: table, CSV, studies, seeds.

    Arguments:
        arms: all that were measured, in the order in which they are listed.
        claims, panels: as `Findings` has them.
        notes: what a reader must know; over what was averaged is added.
        table: instead of every arm's tail means.
        numbers: beside those of the runs.
        shared: whether a seed's trajectories, noise and first model are the same in all settings.
    """
    arms = tuple(arms)
    return Findings(
        claims=claims,
        table=table or _tails(arms),
        numbers=(*_csv_of(arms), *numbers),
        panels=panels,
        notes=(*notes, _seeds_note(arms[0], shared)),
        sources=tuple((arm.label, arm.table["study"]) for arm in arms),
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


def _tails(arms: Iterable[Measured], metrics: Sequence[str] = ("loss", "l3", "E")) -> Table:
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


def grows(name: str, arms: Sequence[Measured], count: Callable[[Measured], float]) -> Part:
    """Whether a count grows from arm to arm; its spread over seeds is not shown."""
    values = [count(arm) for arm in arms]
    listed = ", ".join(f"{arm.label}: {number(v)}" for arm, v in zip(arms, values, strict=True))
    rising = all(a < b for a, b in itertools.pairwise(values))
    return fact(rising, f"{name}: {listed}")


def _csv_of(arms: Iterable[Measured]) -> tuple[Numbers, ...]:
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


def _seeds_note(arm: Measured, shared: bool) -> str:
    """A note on the seeds and slots over which means are taken."""
    seeds = arm.table["seeds"]
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return (
        f"Means ± standard deviations over {which}; a seed's number is its mean over the last "
        f"{arm.table['tail_slots']} slots. E averages its errors l steps ahead over the starts "
        "k = 0 … ζ − l, so a test trajectory has ζ + 1 states. Ratios (×) are of paired seeds"
        + (
            "; a seed's trajectories, noise and first model are the same in all settings. "
            if shared
            else "; settings share seeds, but not what is drawn from them. "
        )
        + RULE
    )


def _mean_and_std(values: Values) -> tuple[list[float], list[float]]:
    """Over the first axis."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return values.mean(axis=0).tolist(), spread.tolist()


def _cell(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
