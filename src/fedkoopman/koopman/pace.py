"""How modes fade or grow, in the same words wherever they are told."""

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["growth_warning", "pace"]


def pace(row: Mapping[str, Any]) -> str:
    """How a mode fades or grows; `row` is one of `koopman.card.spectrum_rows`."""
    if row["decay_rate"] is None:
        return "vanishes at once"
    if row["half_life"] is None:
        return "stays"
    verb = "halves" if row["half_life"] >= 0 else "doubles"
    return f"{verb} in {abs(row['half_life']):.4g}"


def growth_warning(rows: Sequence[Mapping[str, Any]]) -> str:
    """What a forecast has to fear of modes that grow; nothing where none does."""
    growing = [row for row in rows if row["half_life"] is not None and row["half_life"] < 0]
    if not growing:
        return ""
    fastest = max(growing, key=lambda row: row["half_life"])
    one = len(growing) == 1
    which = "1 mode grows and" if one else f"{len(growing)} modes grow, the fastest"
    return f"{which} {pace(fastest)}: forecasts that are lifted once run away in the end."
