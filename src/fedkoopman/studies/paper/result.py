"""What reproducing a table yields: plain data that a report can render."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and what our numbers say about it."""

    text: str
    verdict: str
    """"holds", "does not hold" or "cannot be decided"."""
    evidence: str


@dataclass(frozen=True)
class PaperTable:
    """Ours beside the paper's."""

    name: str
    title: str
    command: str
    """The command that makes this table again."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """As printed."""
    claims: tuple[Claim, ...]
    notes: tuple[str, ...]
    data: dict[str, Any]
    """The numbers, unrounded."""
