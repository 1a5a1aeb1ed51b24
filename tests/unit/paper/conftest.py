"""A reproduced item whose texts are full of characters that mean something in HTML or Markdown."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fedkoopman.paper.items import (
    AGREES,
    FAILS,
    HOLDS,
    LOWER,
    OPEN,
    Claim,
    Findings,
    Numbers,
    Panel,
    Printed,
    Reproduced,
    Series,
    Table,
    worded,
)
from fedkoopman.paper.pages import _markdown

LABEL = "p < 0.3 & [1, 0, 0] | *a* _b_ `c` <b>d</b> $e$ [f](g)"


@pytest.fixture
def item() -> Reproduced:
    slots = (1, 2, 3)
    return Reproduced(
        name="fig-probability",
        paper="Fig. 7b",
        title="probability of a successful observation",
        command="fedkoopman reproduce fig-probability --seeds 5",
        findings=Findings(
            claims=(
                Claim("E falls with p", HOLDS, "ratio 0.61 (0.52 to 0.71)"),
                Claim(f"E rises again: {LABEL}", FAILS, "ratio 0.98 < 1 & falling", "overfitting?"),
                Claim("p = 0.7 is best", OPEN, "1.52 ± 0.21", "two seeds\ndo not tell"),
            ),
            table=Table(
                ("p", "E | paper"), ((f"a cell {LABEL}", "1.52 ± 0.21"), ("0.9", "1.49 ± 0.18"))
            ),
            numbers=(
                Numbers("", ("p", "seed", "E"), ((LABEL, 0, 0.1 + 0.2), ("0.9", 1, float("nan")))),
                Numbers("slots", ("slot", "E"), ((1, 2.5), (2, None))),
            ),
            panels=(
                Panel("over slots", "slot", "E", (Series("0.9", slots, (3.0, 2.0, 1.0)),)),
                Panel("tail", "p", "E", (Series("0.9", slots, slots, (0.1, 0.1, 0.1)),)),
            ),
            notes=("Means over seeds 0 to 4.", f"> A note on {LABEL}"),
            printed=(
                Printed("E of p < 0.3 & *a* | b", 1.25, 1.5, 1.125, 1.875, AGREES),
                Printed("E at 0.9", 3.25, 1.5, 1.125, 1.875, LOWER),
                Printed("E at 0.7", 1.75, 1.5, 1.125, 1.875, AGREES, fitted=True),
                Printed("E at 0.5", 4.5, None, None, None, OPEN),
            ),
            tables=((f"A further table of {LABEL}", Table(("q", "F"), ((LABEL, "0.625"),))),),
            sources=((LABEL, 'name = "a"\nslots = 200'), ("0.9", 'name = "</code>"')),
        ),
    )


@pytest.fixture(scope="session")
def as_on_the_page() -> Callable[[str, Findings], None]:
    """Checks that docs/paper.md has an item's claims in the words that the code has."""
    page = Path(__file__).parents[3] / "docs" / "paper.md"
    row = re.compile(r"^\| \[[^]]*\]\(#([\w-]+)\) \| (.*?) \| \*\*", re.MULTILINE)
    rows = row.findall(page.read_text("utf-8"))

    def check(name: str, findings: Findings) -> None:
        on_page = [text for item, text in rows if item == name]
        in_code = [_markdown(worded(claim)) for claim in findings.claims]
        assert on_page == in_code, "docs/paper.md is older than the code: make paper DATA=…"

    return check
