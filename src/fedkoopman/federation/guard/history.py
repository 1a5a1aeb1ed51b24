"""What a run's records tell of the trust in its sites: numbers by site, and plain sentences."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["SiteHistory", "histories", "name_of", "trust_entry", "trust_sentences"]

MEASURES = ("harm", "distance", "cosine", "misfit")


@dataclass
class SiteHistory:
    """One site's updates so far.

    Attributes:
        updates, refused, shortened: how many were judged, did not count, and were shortened.
        measures: the values of each of `MEASURES`, where they are known.
        aside: when it was set aside, why, and when it came back (0: it has not).
        why: of the last update that did not count.
    """

    updates: int = 0
    refused: int = 0
    shortened: int = 0
    measures: dict[str, list[float]] = field(default_factory=lambda: {m: [] for m in MEASURES})
    aside: list[tuple[int, str, int]] = field(default_factory=list)
    why: str = ""

    @property
    def since(self) -> int:
        """The slot since which it is set aside; 0 if it is not."""
        return self.aside[-1][0] if self.aside and not self.aside[-1][2] else 0

    def add(self, slot: int, row: Mapping[str, Any]) -> None:
        """Take in what a slot's record says of the site."""
        self.updates += 1
        self.refused += row["became"] == "refused"
        self.shortened += row["became"] == "shortened"
        self.why = row.get("why", self.why)
        for name in MEASURES:
            if isinstance(value := row.get(name), int | float):
                self.measures[name].append(float(value))
        if row.get("set_aside"):
            self.aside.append((slot, str(row.get("why", "")), 0))
        if row.get("back") and self.aside:
            self.aside[-1] = (*self.aside[-1][:2], slot)

    def table(self) -> dict[str, Any]:
        """For JSON: counts, the median of every measure, and when it was set aside."""
        middle = {
            name: float(f"{statistics.median(values):.4g}")
            for name, values in self.measures.items()
            if values
        }
        return {
            "updates": self.updates,
            "refused": self.refused,
            "shortened": self.shortened,
            **middle,
            "set_aside": [{"slot": s, "why": why, "back": back} for s, why, back in self.aside],
        }


def histories(records: Iterable[Mapping[str, Any]]) -> dict[int, SiteHistory]:
    """By site, what the records say of it; a run without a guard says nothing."""
    found: dict[int, SiteHistory] = {}
    for record in records:
        for row in record.get("trust", ()):
            found.setdefault(int(row["site"]), SiteHistory()).add(record["slot"], row)
    return {n: found[n] for n in sorted(found)}


def name_of(place: int, names: Sequence[str]) -> str:
    """A site as people call it; simulated clients have no names."""
    return f"site {names[place]}" if place < len(names) else f"client {place}"


def trust_sentences(records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> list[str]:
    """Who is suspect and why, and what was undone; one sentence where nobody is."""
    known = histories(records)
    lines = []
    for n, site in known.items():
        who = _capital(name_of(n, names))
        for slot, why, back in site.aside:
            until = f" It came back in slot {back}." if back else ""
            lines.append(f"{who} was set aside in slot {slot}: it {why}.{until}")
    for record in records:
        if record.get("rolled_back"):
            lines.append(
                f"In slot {record['slot']} the model had become ten times worse for most sites, "
                "and the one before it was taken again."
            )
    judged, refused = (sum(getattr(s, k) for s in known.values()) for k in ("updates", "refused"))
    if known:
        count = f"{refused:,} of {judged:,} judged updates did not count"
        lines.append(f"{count}." if lines else f"Nobody was set aside; {count}.")
    return lines


def trust_entry(
    records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()
) -> dict[str, Any] | None:
    """The entry of a summary; None for a run without a guard."""
    known = histories(records)
    if not known:
        return None
    sites = {name_of(n, names).removeprefix("site "): site.table() for n, site in known.items()}
    return {"sentences": trust_sentences(records, names), "sites": sites}


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
