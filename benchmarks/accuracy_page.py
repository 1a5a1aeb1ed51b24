"""What a part of `accuracy.py` hands back, and how its numbers are written."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What the command line says to every part."""

    validation: bool = False
    data: Path | None = None
    quick: bool = False


@dataclass
class Section:
    """A part's numbers, for machines (`rows`) and for readers (`lines`)."""

    rows: list[dict] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def table(self, head: Sequence[str], body: Sequence[Sequence[object]]) -> None:
        self.lines += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        self.lines += ["| " + " | ".join(map(str, cells)) + " |" for cells in body]

    def say(self, *paragraphs: str) -> None:
        for paragraph in paragraphs:
            self.lines += ["", paragraph]


def short(value: float | None) -> str:
    """Two digits: .0042, 3.1, 4.8e-7; a dash where there is none."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    if abs(value) < 1e-3 or abs(value) >= 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    digits = max(0, 1 - math.floor(math.log10(abs(value))))
    return f"{value:.{digits}f}"


def against(value: float, asked: float, most: bool = True) -> str:
    """A value with a verdict, asked to be at most (or at least) something."""
    met = value <= asked if most else value >= asked
    return f"{short(value)} ({'met' if met else 'missed'}: {'≤' if most else '≥'} {short(asked)})"
