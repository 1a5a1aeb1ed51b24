"""How the comparison of Theorem 1's bound with both processes is shown: table, CSV, panels."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedkoopman.paper.judging import number
from fedkoopman.paper.result import Numbers, Panel, Series, Table
from fedkoopman.paper.theorem1_rows import PROCESSES, Row, all_steps

__all__ = ["csv_of", "panels_of", "table_of"]


def table_of(numbers: dict[str, Any]) -> Table:
    """A row per p: how likely empty rounds are, what they do to the drift, and the worst ratios."""
    columns = ["p", "empty rounds", "mean (rounds since alike)²", "drift / Lemma 1's, E = 1"]
    for steps in all_steps(numbers):
        columns += [f"E = {steps}: {name}" for name in PROCESSES.values()]
    rows = []
    for first in (row for row in numbers["grid"] if row["E"] == 1):
        since = first["rounds_square"]
        cells = [f"{first['p']:g}", f"{100 * first['empty']:.4g} %"]
        cells += ["–" if since is None else number(since), number(first["lemma1"])]
        for row in (row for row in numbers["grid"] if row["p"] == first["p"]):
            cells += [number(row[f"{process}_derived_worst"]) for process in PROCESSES]
        rows.append(tuple(cells))
    return Table(tuple(columns), tuple(rows))


def csv_of(numbers: dict[str, Any]) -> tuple[Numbers, ...]:
    """All comparisons, the curves over slots, and the draws."""
    base = [{"problem": "default", "empty_rounds": "kept", **row} for row in numbers["grid"]]
    base += [
        {"problem": "default", "empty_rounds": "drawn again", **row}
        for row in numbers["never_empty"]
    ]
    base += [{"empty_rounds": "kept", **row} for row in numbers["others"]]
    base += [{"problem": "large error", "empty_rounds": "kept", **row} for row in numbers["noisy"]]
    columns = tuple(base[0])
    lists = ("slots", "printed", "derived", *PROCESSES)
    curves = _flat(numbers["curves"], ("E", "p"), lists)
    drawn = ("slots", "mean", "uncertainty", "expected", "derived")
    draws = _flat(numbers["simulated"], ("E", "p", "process", "never_empty"), drawn)
    return (
        Numbers("", columns, tuple(tuple(row.get(name) for name in columns) for row in base)),
        Numbers("slots", ("E", "p", "slot", *lists[1:]), curves),
        Numbers("draws", ("E", "p", "process", "never_empty", "slot", *drawn[1:]), draws),
    )


def _flat(
    rows: Iterable[Row], single: Sequence[str], lists: Sequence[str]
) -> tuple[tuple[Any, ...], ...]:
    """Rows that hold lists, as one row per place in them."""
    return tuple(
        (*(row[name] for name in single), *values)
        for row in rows
        for values in zip(*(row[name] for name in lists), strict=True)
    )


def panels_of(numbers: dict[str, Any]) -> tuple[Panel, ...]:
    """Bounds and processes over slots at a large and a small p; worst ratios against p."""
    shown = [curve for curve in numbers["curves"] if curve["E"] == 1]
    return (*(_over_slots(curve, numbers) for curve in shown), _ratios(numbers))


def _over_slots(curve: Row, numbers: dict[str, Any]) -> Panel:
    def line(label: str, key: str, style: str = "line", muted: bool = False) -> Series:
        return Series(label, curve["slots"], curve[key], style=style, muted=muted)

    drawn = tuple(
        Series(
            f"mean over {numbers['sizes']['draws']:,} draws",
            row["slots"],
            row["mean"],
            style="points",
        )
        for row in numbers["simulated"]
        if (row["E"], row["p"], row["never_empty"]) == (1, curve["p"], False)
    )
    lines = (
        *(line(f"{name}, E = 1", process) for process, name in PROCESSES.items()),
        line("bound, derived", "derived", muted=True),
        line("bound, printed", "printed", style="dashed", muted=True),
    )
    title = f"p = {curve['p']:g}, E = 1"
    return Panel(title, "slot t", "E‖ω_t − ω*‖²", (*lines, *drawn), log_x=True, log_y=True)


def _ratios(numbers: dict[str, Any]) -> Panel:
    series = []
    for steps in all_steps(numbers)[:2]:
        rows = [row for row in numbers["grid"] if row["E"] == steps and row["p"] > 0]
        p = [row["p"] for row in rows]
        for process, name in PROCESSES.items():
            ratio = [row[f"{process}_derived_worst"] for row in rows]
            series.append(Series(f"{name}, E = {steps}", p, ratio))
    series.append(Series("bound, derived", [min(p), 1], [1, 1], muted=True))
    title = "worst slot, against p"
    return Panel(title, "p", "expected / bound", tuple(series), log_x=True, log_y=True)
