"""Who can be trusted: what a run's records say of its sites' updates, on a page."""

from fedkoopman.federation.guard.history import SiteHistory, histories, name_of, trust_sentences
from fedkoopman.reports.page import Cell, Page, number
from fedkoopman.reports.run_files import RunFiles

__all__ = ["trust_section", "trust_sentence"]

CAPTION = (
    "Before an update counts, the other sites judge it on data that they hold out. Harm is the "
    "factor by which it changes their loss: below 1 it helps, above 2 it does not count. Distance "
    "is how far it lies from the others' latest updates, in usual lengths of an update. Cosine is "
    "that of the angle between the two; honest sites often have values near 0. All are medians "
    "over the run. A site that is set aside goes on training and judging, and comes back after "
    "three good updates in a row."
)


def trust_sentence(page: Page, run: RunFiles) -> None:
    """Say who was set aside; nothing if nobody was."""
    lines = trust_sentences(run.seeds[0].trust, run.names)
    if len(lines) > 1:
        page.paragraph(" ".join(lines[:-1]), "notice")


def trust_section(page: Page, run: RunFiles) -> None:
    """Add the table of sites; nothing for a run without a guard."""
    seed = run.seeds[0]
    known = histories(seed.trust)
    if not known:
        return
    page.heading("Who can be trusted")
    several = f" Seed {seed.seed}, the first of {len(run.seeds)}." if len(run.seeds) > 1 else ""
    page.paragraph(f"{CAPTION}{several}", "caption")
    words = ["", "updates", "not counted", "shortened", "harm", "distance", "cosine", "set aside"]
    rows = [
        [
            Cell(name_of(n, run.names).removeprefix("site ")),
            *(Cell(f"{count:,}", "number") for count in (one.updates, one.refused, one.shortened)),
            *(Cell(_median(one, name), "number") for name in ("harm", "distance", "cosine")),
            Cell(_aside(one)),
        ]
        for n, one in known.items()
    ]
    page.table("trust", [Cell(word) for word in words], rows)
    page.paragraph(" ".join(trust_sentences(seed.trust, run.names)))


def _median(site: SiteHistory, name: str) -> str:
    table = site.table()
    return number(table[name], 3) if name in table else "–"


def _aside(site: SiteHistory) -> str:
    spans = [
        f"slots {slot} to {back}" if back else f"since slot {slot}" for slot, _, back in site.aside
    ]
    return ", ".join(spans) or "no"
