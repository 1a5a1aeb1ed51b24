"""Tables of results: in a terminal, and of a sweep as Markdown and CSV, a row per combination."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedkoopman.reports.wording import spread_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from fedkoopman.runs.sweep import Combination, Result

METRICS = ("l1", "l2", "l3", "loss", "E", "horizon")
SHOWN = ("loss", "E", "horizon")
"""What a narrow terminal has room for."""
WIDE = 140
"""Columns of a terminal that has room for all, and of output that goes into a file."""


def plain_console() -> "Console":
    """Standard output, which takes text as it is."""
    from rich.console import Console

    found = Console(markup=False, highlight=False, emoji=False)
    if not found.is_terminal:
        found.width = WIDE
    return found


def new_table(*columns: str, right: Sequence[str] = (), **style: Any) -> "Table":
    """An empty table for a terminal; numbers stand in the columns on the right."""
    from rich import box
    from rich.table import Table

    table = Table(*columns, box=box.SIMPLE, **style)
    for column in right:
        table.add_column(column, justify="right")
    return table


def site_errors(site: Mapping[str, Any]) -> list[str]:
    """Errors of a site's held-out observations, and its noise σ: a number per channel in each.

    They are one step ahead, several steps ahead, and as many for holding the last state.
    """

    def listed(values: Sequence[float | None] | None) -> str:
        return ", ".join("–" if v is None else f"{v:.3g}" for v in values or [None])

    errors, held = site["observation_error"], site["held_error"]
    noise = [value**0.5 for value in site["observation_noise"]]
    return [listed(values) for values in (errors[0], errors[-1], held[-1], noise)]


def show_sweep(keys: Sequence[str], results: Sequence["Result"]) -> None:
    """Print the table."""
    console = plain_console()
    metrics = METRICS if console.width >= WIDE else SHOWN
    grid = new_table()
    for column in sweep_columns(keys, metrics):
        grid.add_column(column, overflow="fold")
    for result in results:
        grid.add_row(*sweep_cells(result, metrics))
    console.print(grid)


def sweep_columns(keys: Sequence[str], metrics: Sequence[str] = METRICS) -> list[str]:
    """The head of a sweep's table."""
    return [*keys, *metrics, "seconds"]


def sweep_cells(result: "Result", metrics: Sequence[str] = METRICS) -> list[str]:
    """A row of it."""
    summary = result.summary
    several = len(summary["seeds"]) > 1
    spreads = [spread_text(summary[metric], several) for metric in metrics]
    return [*result.combination.values, *spreads, f"{summary['seconds']:.1f}"]


def sweep_words(results: Sequence["Result"]) -> str:
    """What the numbers of a sweep are."""
    tails = {result.summary["tail_slots"] for result in results}
    seeds = max((len(result.summary["seeds"]) for result in results), default=1)
    most = f"{min(tails)} to {max(tails)}" if len(tails) > 1 else "".join(map(str, tails))
    last = f"last {most} slots" if tails else "last slots"
    said = f"Means over the {last}"
    return said + (f"; ± standard deviation over {seeds} seeds." if seeds > 1 else " of one seed.")


def sweep_markdown(
    keys: Sequence[str], combinations: Sequence["Combination"], results: Sequence["Result"]
) -> str:
    """A sweep's table as Markdown."""
    columns = sweep_columns(keys)
    lines = [
        f"# Sweep of {combinations[0].study.name}",
        "",
        f"{len(results)} of {len(combinations)} combinations are finished. {sweep_words(results)}",
        "",
        _line(columns),
        _line(["---"] * len(columns)),
        *(_line(sweep_cells(result)) for result in results),
        "",
        "`study.toml` is the study that the grid varies, `sweep.toml` the grid. Each combination",
        "is a run in a directory named after its values; `fedkoopman run --resume --out` with that",
        "directory writes its report.",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def sweep_csv(keys: Sequence[str], results: Sequence["Result"]) -> str:
    """A sweep's table as CSV, with means and spreads apart."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    statistics = [f"{metric}_{name}" for metric in METRICS for name in ("mean", "std")]
    writer.writerow([*keys, *statistics, "seconds", "directory"])
    for result in results:
        summary = result.summary
        numbers = [(summary.get(m) or {}).get(name) for m in METRICS for name in ("mean", "std")]
        values, name = result.combination.values, result.combination.name
        writer.writerow([*values, *numbers, summary.get("seconds"), name])
    return text.getvalue()
