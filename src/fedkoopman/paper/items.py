"""The paper's tables and figures: which there are, and what reproducing one yields.

An item computes numbers, which are kept in a file. What they say (claims, table, figure) is made
from that file alone, so a verdict always belongs to the numbers beside it. `Reproduced` is an item
with its findings, as pages, figures and terminal show it. Nothing heavy is loaded here.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from fedkoopman.runs.run import Progress


@dataclass(frozen=True)
class About:
    """A table or figure.

    Attributes:
        name: by which it is asked for; its module is called alike.
        paper: where it stands.
        title: what it shows.
        needs_data: whether it needs the measured double pendulum.
        runs: whether it runs studies.
    """

    name: str
    paper: str
    title: str
    needs_data: bool = False
    runs: bool = True

    @property
    def module(self) -> str:
        """Where its `ITEM` is."""
        return f"fedkoopman.paper.{self.name.replace('-', '_')}"


CATALOGUE = {
    about.name: about
    for about in (
        About("fig-systems", "Fig. 5a", "three canonical systems, perfect data"),
        About("fig-yni", "Fig. 5b", "YNI heart cell, seven states"),
        About("fig-double-pendulum", "Fig. 5c", "measured double pendulum", needs_data=True),
        About("fig-comparison", "Fig. 6", "KF-FedKL beside three benchmark schemes"),
        About("table-estimators", "Table III", "state estimators on Lorenz63", runs=False),
        About("table-ablation", "Table IV", "weights of the three losses"),
        About("fig-noise", "Fig. 7a", "noisy clients"),
        About("fig-probability", "Fig. 7b", "probability of a successful observation"),
        About("fig-clients", "Fig. 7c", "number of clients"),
        About("fig-policy", "Fig. 7d", "who trains when"),
        About("fig-epochs", "Fig. 7e", "epochs of local training"),
        About("fig-restart", "Fig. 7f", "slots between restarts of the system"),
        About("theorem1", "Theorem 1", "the convergence bound, and what it bounds", runs=False),
        About("text", "Sections I–IV", "what the text claims beside figures and tables"),
    )
}
"""By name, in the paper's order."""

ROMAN = dict(zip("12345", ("i", "ii", "iii", "iv", "v"), strict=True))


def _plain(name: str) -> str:
    """A name as "fig5a" or "tableiv", however it is written."""
    plain = re.sub(r"[^a-z0-9]", "", name.casefold()).replace("figure", "fig")
    number = plain.removeprefix("table")
    return f"table{ROMAN[number]}" if number != plain and number in ROMAN else plain


def item_named(name: str) -> About | None:
    """The item of a name, or of a place in the paper: as "fig-6", "Fig. 7b" or "table-iv"."""
    plain = _plain(name)
    for about in CATALOGUE.values():
        if plain in (_plain(about.name), _plain(about.paper)):
            return about
    parts = [a for a in CATALOGUE.values() if plain and _plain(a.paper)[:-1] == plain]
    if len(parts) > 1 and plain[-1].isdigit():
        told = ", ".join(f"{about.name} ({about.paper})" for about in parts)
        raise InputError(f"{name} has several parts: name one or more of {told}")
    return None


HOLDS, FAILS = "holds", "does not hold"
DEPENDS = "depends on the reading"
"""It holds under one reading of the paper and is not shown to hold under another."""
UNDECIDED = "undecided"
"""More seeds or trajectories could tell, or the difference is too small to count."""
OPEN = "cannot be compared"
"""No number of ours could tell: the paper leaves out what one must know."""
AUDITED = "measured by fedkoopman audit"
AGREES, HIGHER, LOWER = "agrees", "higher", "lower"
"""Of our number beside a printed one."""

FEW, SOME, MANY = 5, 10, 20
"""Seeds of an item: the paper's number, and more the less a seed takes."""

Cell = str | float | int | None


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and what our numbers say about it.

    Attributes:
        text: what the paper says.
        verdict: one of `VERDICTS`.
        evidence: our numbers.
        why: what explains a difference, or why nothing can be said.
        ours: whether it is a statement of ours, put beside the paper's.
        detail: what belongs to the verdict, as "20 seeds: interval 0.9 to 1.2" where it is open.
    """

    text: str
    verdict: str
    evidence: str
    why: str = ""
    ours: bool = False
    detail: str = ""

    @property
    def told(self) -> str:
        """The verdict as it is shown."""
        return f"{self.verdict} ({self.detail})" if self.detail else self.verdict


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
    """Our result as a table of printed cells."""

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
class Printed:
    """A number that the paper prints, beside ours; `printed` computes the range and the verdict.

    Attributes:
        what: which number it is.
        paper: as printed.
        ours: the same quantity of ours, over all of our runs.
        low, high: the 95 % range of what samples as small as the paper's give of ours.
        verdict: of ours beside the paper's: `AGREES`, `HIGHER`, `LOWER`, or `OPEN` without a range.
        fitted: whether a setting of ours was chosen by this number, so that agreement proves
            nothing; it is not counted.
    """

    what: str
    paper: float
    ours: float | None
    low: float | None
    high: float | None
    verdict: str
    fitted: bool = False


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
        printed: the paper's numbers beside ours.
        tables: further ones, by title.
    """

    claims: tuple[Claim, ...]
    table: Table
    numbers: tuple[Numbers, ...]
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    printed: tuple[Printed, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()

    def left_open(self, why: str) -> "Findings":
        """The same numbers without a verdict."""
        claims = tuple(
            claim
            if claim.verdict in (OPEN, AUDITED)
            else replace(claim, verdict=UNDECIDED, why=why, detail="")
            for claim in self.claims
        )
        printed = tuple(replace(one, verdict=OPEN) for one in self.printed)
        return replace(self, claims=claims, printed=printed)

    @property
    def all_tables(self) -> tuple[tuple[str, Table], ...]:
        """The further tables by title, that of printed numbers first."""
        return (*([(PRINTED, printed_table(self.printed))] if self.printed else []), *self.tables)


@dataclass(frozen=True)
class Options:
    """How an item is computed.

    Attributes:
        runs: directory of the runs, which items share.
        seeds: how many; None means as many as the item takes.
        seed: the first.
        fast: with few seeds and slots, to see that everything works.
        data: the measured double pendulum, a folder or the authors' zip.
        trajectories: of the estimator table.
        changes: keys of every study with what replaces the paper's values, as TOML texts.
    """

    runs: Path
    seeds: int | None = None
    seed: int = 0
    fast: bool = False
    data: Path | None = None
    trajectories: int = 800
    changes: tuple[tuple[str, str], ...] = ()

    @property
    def told_changes(self) -> str:
        """The changes as they are given, "slots=50, training.epochs=5"; empty if there are none."""
        return ", ".join(f"{key}={value}" for key, value in self.changes)

    def all_seeds(self, usual: int) -> list[int]:
        """The seeds of a run, of which an item usually takes so many."""
        return list(range(self.seed, self.seed + (self.seeds or usual)))


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


VERDICTS = (HOLDS, DEPENDS, FAILS, UNDECIDED, OPEN, AUDITED)

SPREAD = (
    "Bands and bars reach one standard deviation to either side; on a logarithmic axis they end at "
    "a third of the mean, if not before."
)
OURS = "ours, not the paper's: "
PRINTED = "Printed numbers: ours beside the paper's"
FAST = (
    "Made with --fast: few seeds and slots. This shows that everything works; the numbers are not "
    "those of the full item and decide nothing."
)


def changed(changes: str) -> str:
    """That an item is of another setting.

    Arguments:
        changes: as `Reproduced.changes`.
    """
    return (
        f"Made with --set {changes}: this is not the paper's setting, so its claims and printed "
        "numbers are not judged by these numbers."
    )


@dataclass(frozen=True)
class Reproduced:
    """A table or figure of the paper, made again.

    Attributes:
        name: by which it is asked for; its files are called alike.
        paper: where it stands in the paper, such as "Fig. 7b".
        title: what it shows.
        command: that makes it again.
        findings: what its numbers say.
        fast: whether it was made with few seeds and slots.
        changes: what is set otherwise than in the paper, as "slots=50"; empty if nothing is.
    """

    name: str
    paper: str
    title: str
    command: str
    findings: Findings
    fast: bool = False
    changes: str = ""

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader must know before all else: why nothing follows from the numbers."""
        return (*([FAST] if self.fast else []), *([changed(self.changes)] if self.changes else []))

    @property
    def heading(self) -> str:
        """The title as it stands at the head of a page."""
        return self.title[:1].upper() + self.title[1:]

    @property
    def caption(self) -> str:
        """What stands below the figure; empty if there is nothing to explain."""
        series = [series for panel in self.findings.panels for series in panel.series]
        return SPREAD if any(one.spread is not None and any(one.spread) for one in series) else ""

    @property
    def description(self) -> str:
        """The figure in words, for readers who cannot see it."""
        panels = [
            f"{panel.title or self.heading}: {panel.y} against {panel.x or 'settings'}, "
            f"{len(panel.series)} {'line' if len(panel.series) == 1 else 'lines'}"
            for panel in self.findings.panels
        ]
        return f"{self.paper}. {'; '.join(panels)}."

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its CSV files."""
        names = (numbers.name for numbers in self.findings.numbers)
        return tuple(f"{self.name}{f'-{name}' if name else ''}.csv" for name in names)


def counts(items: Iterable[Reproduced]) -> dict[str, int]:
    """How many of the paper's claims have each verdict; those of our own do not count."""
    found = Counter(c.verdict for item in items for c in item.findings.claims if not c.ours)
    return {verdict: found[verdict] for verdict in VERDICTS if found[verdict]}


def printed_table(printed: Iterable[Printed]) -> Table:
    """A row for each of the paper's numbers."""
    rows = []
    for one in printed:
        low, high = (_shown(value) for value in (one.low, one.high))
        between = "–" if one.verdict == OPEN else f"{low} to {high}"
        verdict = f"{one.verdict} (our setting was chosen by it)" if one.fitted else one.verdict
        rows.append((one.what, _shown(one.paper), _shown(one.ours), between, verdict))
    columns = ("number", "paper", "ours", "95 % range of as few of ours", "ours is")
    return Table(columns, tuple(rows))


def printed_counts(items: Iterable[Reproduced]) -> str:
    """How many printed numbers agree with ours, in words; empty if there are none.

    Those by which a setting of ours was chosen are told apart.
    """
    every = [one for item in items for one in item.findings.printed]
    if not every:
        return ""
    found = Counter(one.verdict for one in every if not one.fitted)
    chosen = sum(one.fitted for one in every)
    words = [f"{found[AGREES]} agree", f"{found[HIGHER]} higher", f"{found[LOWER]} lower"]
    words += [f"{found[OPEN]} {OPEN}"] if found[OPEN] else []
    also = f"; {chosen} more by which a setting of ours was chosen" if chosen else ""
    return (
        f"printed numbers: {', '.join(words)} (ours beside the paper's; under two readings a "
        f"number counts twice{also})"
    )


def _shown(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "not finite"
    return f"{value:.4g}"


def worded(claim: Claim) -> str:
    """A claim's text; one of our own says so."""
    return f"{OURS}{claim.text}" if claim.ours else claim.text


def commands(items: Iterable[Reproduced]) -> str:
    """How the items were made: by one command with all their names, or by several."""
    found: dict[str, list[str]] = {}
    for item in items:
        found.setdefault(item.command.replace(item.name, "ITEM", 1), []).append(item.name)
    return "\n".join(
        command.replace("ITEM", " ".join(names), 1) for command, names in found.items()
    )
