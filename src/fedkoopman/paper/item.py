"""A reproduced item as its reports show it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedkoopman.paper.result import FAILS, HOLDS, OPEN, Claim, Findings

__all__ = ["VERDICTS", "Reproduced", "commands", "counts", "worded"]

VERDICTS = (HOLDS, FAILS, OPEN)

SPREAD = (
    "Bands and bars reach one standard deviation to either side; on a logarithmic axis they end at "
    "a third of the mean, if not before."
)
OURS = "ours, not the paper's: "
FAST = (
    "Made with --fast: few seeds and slots. This shows that everything works; the numbers are not "
    "those of the full item and decide nothing."
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
    """

    name: str
    paper: str
    title: str
    command: str
    findings: Findings
    fast: bool = False

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
        """The figure in words, for who cannot see it."""
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
    return {verdict: found[verdict] for verdict in VERDICTS}


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
