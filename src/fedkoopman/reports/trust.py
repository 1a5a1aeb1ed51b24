"""Who contributed, and who hurt: what a run's records say of each site, on a page."""

import numpy as np

from fedkoopman.federation.guard.history import SiteHistory, histories, trust_sentences
from fedkoopman.reports.blocks import Block, Section, chart, line, panel, section, table, text
from fedkoopman.reports.learning import rows_of
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.wording import counted, listed, number

__all__ = ["contribution_section"]

CAPTION = (
    "Before an update counts, the other sites judge it on data that they hold out. Harm is the "
    "factor by which it changes their loss: below 1 it helps, above 2 it does not count. Distance "
    "is how far it lies from the others' latest updates, in usual lengths of an update. Cosine is "
    "that of the angle between the two; honest sites often have values near 0. All are medians "
    "over the run. A site that is set aside goes on training and judging, and comes back after "
    "three good updates in a row."
)
MOST_ROWS = 40


def contribution_section(run: RunFiles) -> Section:
    """Trainings by site, and what was judged of their updates."""
    seed, names = run.seeds[0], rows_of(run)
    arrived, trained, dropped = (
        np.bincount(np.concatenate([*lists, np.zeros(0, int)]).astype(int), minlength=run.clients)
        for lists in (seed.arrived, seed.active, seed.dropped)
    )
    silent = [names[n] for n in range(run.clients) if not trained[n]]
    count = counted(run.clients - len(silent), "site")
    words = f"{counted(int(trained.sum()), 'training')} by {count}."
    if silent and run.seeds[0].slots[-1]:
        shown = listed(silent) if len(silent) <= 5 else f"{len(silent)} sites"
        words += f" Never trained: {shown}."
    several = f" Seed {seed.seed}, the first of {len(run.seeds)}." if len(run.seeds) > 1 else ""
    blocks: list[Block] = []
    told = trust_sentences(seed.trust, run.names)
    if len(told) > 1:
        blocks.append(text(" ".join(told[:-1]), "warning"))
    blocks.append(text(words + (f" {told[-1]}" if told else "") + several))
    if run.clients <= MOST_ROWS:
        blocks.append(_bars(names, arrived, trained, dropped))
    return section("contributions", "Who contributed, and who hurt?", *blocks, *_guard(run))


def _bars(names: list[str], arrived: np.ndarray, trained: np.ndarray, dropped: np.ndarray) -> Block:
    rows = np.arange(len(names))
    words = [f"{t:,} trainings, {a:,} segments arrived" + (f", {d:,} dropped" if d else "")
             for t, a, d in zip(trained, arrived, dropped, strict=True)]  # fmt: skip
    return chart(
        "shares", "Trainings and arrivals by site",
        "How often each site's observations arrived and how often it trained.",
        [panel("count", "", rows=names)],
        [
            line("segments arrived", arrived, rows, "light", style="bars", words=words),
            line("trainings", trained, rows, "a", style="bars", words=words),
        ],
    )  # fmt: skip


def _guard(run: RunFiles) -> list[Block]:
    """The table of judged updates; nothing for a run without a guard."""
    known = histories(run.seeds[0].trust)
    if not known:
        return []
    names = rows_of(run)
    words = [
        "site",
        "updates",
        "not counted",
        "shortened",
        "harm",
        "distance",
        "cosine",
        "set aside",
    ]
    rows = [
        [
            names[n] if n < len(names) else f"client {n}",
            *((f"{count:,}", "number") for count in (one.updates, one.refused, one.shortened)),
            *((_median(one, name), "number") for name in ("harm", "distance", "cosine")),
            _aside(one),
        ]
        for n, one in known.items()
    ]
    return [text(CAPTION, "caption"), table("trust", words, rows, stacked=True)]


def _median(site: SiteHistory, name: str) -> str:
    found = site.table()
    return number(found[name], 3) if name in found else "–"


def _aside(site: SiteHistory) -> str:
    spans = [
        f"slots {slot} to {back}" if back else f"since slot {slot}" for slot, _, back in site.aside
    ]
    return ", ".join(spans) or "no"
