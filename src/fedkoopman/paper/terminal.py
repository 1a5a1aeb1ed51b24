"""Reproduced items in a terminal: the table and the verdicts of one, a line for each of many."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedkoopman.paper.result import FAILS, FAST, HOLDS, OPEN, VERDICTS, Reproduced, counts, worded
from fedkoopman.paper.result import Table as ItemTable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show", "show_counts"]

COLOURS = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}
WIDE = 140
"""Columns where the output goes into a file."""

LABEL = 24
"""Columns for a row's label; a longer one takes several lines where there is no room."""

GAP = 3
"""Width of the gap between two columns of a table."""


def show(item: Reproduced) -> None:
    """Print the item's table and what it says about each of the paper's claims."""
    from rich import box
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = _console()
    console.print()
    console.print(Text(f"{item.paper}: {item.heading}", style="bold"))
    if item.fast:
        console.print(Text(FAST, style="yellow"))
    table = item.findings.table
    for group, widths in _groups(table, console.width):
        grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
        for i, width in zip(group, widths, strict=True):
            grid.add_column(Text(table.columns[i]), overflow="fold", width=width)
        for row in table.rows:
            grid.add_row(*(Text(row[i]) for i in group))
        console.print(grid)
    for claim in item.findings.claims:
        style = COLOURS[claim.verdict]
        console.print(Text.assemble((claim.verdict, f"bold {style}"), ": ", worded(claim)))
        for line in filter(None, (claim.evidence, claim.why)):
            console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4), expand=False))


def show_counts(items: Sequence[Reproduced]) -> None:
    """Print how many claims of each item, and of all, have each verdict."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    console = _console()
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_footer=True)
    grid.add_column("item", footer="all")
    grid.add_column("paper")
    for verdict, count in counts(items).items():
        style = COLOURS[verdict]
        grid.add_column(Text(verdict, style=style), Text(str(count)), justify="right", style=style)
    for item in items:
        found = counts([item])
        cells = [str(found[verdict] or "") for verdict in VERDICTS]
        grid.add_row(*map(Text, (item.name, item.paper, *cells)))
    console.print(grid)
    if any(item.fast for item in items):
        console.print(Text(FAST, style="yellow"))


def _console() -> "Console":
    """Standard output, as plain text."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(markup=False, highlight=False, emoji=False, width=WIDE)


def _groups(table: ItemTable, width: int) -> list[tuple[list[int], list[int]]]:
    """The columns and their widths, in groups that fit, each with the first column before it.

    If all columns do not fit as they are, headings are broken between words, and so are long
    labels.
    """
    from rich.cells import cell_len

    natural, broken = [], []
    for i, heading in enumerate(table.columns):
        cells = [row[i] for row in table.rows]
        longest = max((cell_len(cell) for cell in cells), default=0)
        word = max(cell_len(word) for cell in (heading, *cells) for word in cell.split() or [""])
        natural.append(max(longest, cell_len(heading)))
        broken.append(max(word, min(longest, LABEL) if i == 0 else longest))
    widths = natural if sum(natural) + GAP * len(natural) <= width else broken
    groups = [[0]]
    for i in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(GAP + widths[j] for j in [*groups[-1], i]) > width:
            groups.append([0])
        groups[-1].append(i)
    return [(group, [widths[i] for i in group]) for group in groups]
