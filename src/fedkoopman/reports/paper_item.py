"""A reproduced item as its reports show it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fedkoopman.studies.paper.result import FAILS, HOLDS, OPEN, Findings

__all__ = ["VERDICTS", "Reproduced", "counts"]

VERDICTS = (HOLDS, FAILS, OPEN)

SPREAD = (
    "Bands and bars reach one standard deviation to either side; on a logarithmic axis they end at "
    "a third of the mean, if not before."
)
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
    """How many claims have each verdict."""
    found = Counter(claim.verdict for item in items for claim in item.findings.claims)
    return {verdict: found[verdict] for verdict in VERDICTS}
