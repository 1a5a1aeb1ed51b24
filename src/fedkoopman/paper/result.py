"""What reproducing a table or figure yields: plain data that a report can draw and print.

An item computes numbers, which are kept in a file; what is found in them (claims, table, figure)
is made from that file alone, so a verdict always belongs to the numbers beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fedkoopman.runs.run import Progress

__all__ = [
    "FAILS",
    "HOLDS",
    "OPEN",
    "Claim",
    "Findings",
    "Item",
    "Numbers",
    "Options",
    "Panel",
    "Series",
    "Table",
    "Tell",
]

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be compared"

Cell = str | float | int | None


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and what our numbers say about it.

    Attributes:
        text: what the paper says.
        verdict: `HOLDS`, `FAILS` or `OPEN`.
        evidence: our numbers.
        why: what explains a difference, or why nothing can be said.
        ours: whether it is a statement of ours, put beside the paper's.
    """

    text: str
    verdict: str
    evidence: str
    why: str = ""
    ours: bool = False


@dataclass(frozen=True)
class Series:
    """One line of a figure.

    Attributes:
        label: for the legend.
        x, y: equally long; NaN or None where there is nothing.
        spread: the standard deviation of each y over seeds, drawn as a band or as bars.
        z: of a line in space.
        style: "line", "dashed", "dotted" or "points" (markers joined by a thin line).
        muted: drawn in grey, behind: a reference such as the truth or persistence.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None
    z: Sequence[float] | None = None
    style: str = "line"
    muted: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes, or a box in space where its series have z.

    Attributes:
        title: above it.
        x, y, z: what stands at the axes.
        series: what is drawn.
        log_x, log_y: whether an axis is logarithmic.
        names: at the places 0, 1, … of the x axis, where it stands for names instead of numbers.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    z: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Our result in figures, as printed."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Numbers:
    """Unrounded numbers for a CSV file.

    Attributes:
        name: of the file, after the item's own; may be empty.
        columns, rows: its content; None is a blank cell.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Findings:
    """What an item's numbers say.

    Attributes:
        claims: the paper's, judged.
        table: our result, beside the paper's where it prints any.
        numbers: what stands in CSV files.
        panels: the figure, from left to right; none for a table.
        notes: what a reader must know to compare.
        sources: for every row of the table or line of the figure, the study as TOML or the command
            that it comes from, by label.
    """

    claims: tuple[Claim, ...]
    table: Table
    numbers: tuple[Numbers, ...]
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()

    def left_open(self, why: str) -> "Findings":
        """The same numbers without a verdict."""
        claims = tuple(replace(claim, verdict=OPEN, why=why) for claim in self.claims)
        return replace(self, claims=claims)


@dataclass(frozen=True)
class Options:
    """How an item is computed.

    Attributes:
        runs: directory of the runs, which items share.
        seeds: how many.
        seed: the first.
        fast: with few seeds and slots, to see that everything works.
        data: the measured double pendulum, a folder or the authors' zip.
        trajectories: of the estimator table.
    """

    runs: Path
    seeds: int = 5
    seed: int = 0
    fast: bool = False
    data: Path | None = None
    trajectories: int = 200


class Tell(Protocol):
    """How an item tells its progress: what it is at, or a finished slot of a run."""

    def __call__(self, what: "str | Progress", /) -> None: ...


class Item(Protocol):
    """A table or figure of the paper."""

    def slots(self, options: Options) -> int:
        """Slots of all seeds that its runs have together; 0 if it has none."""

    def settings(self, options: Options) -> dict[str, Any]:
        """All that decides its numbers, as JSON can hold it; raises if they cannot be computed."""

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Its numbers, as JSON can hold them."""

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """What they say, of numbers as they are read from JSON."""
