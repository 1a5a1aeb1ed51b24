"""The part of a run's report that real sites have: what each held, and how well it is predicted."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedkoopman.reports.page import Cell, Page, number
from fedkoopman.reports.run_files import RunFiles

CAPTION = (
    "Root mean square errors on held-out segments. Predicted states are seen through the site's "
    "sensor and compared with what it recorded, so that errors contain the sensor's noise; "
    "“holding” keeps the last state."
)


def sites_section(page: Page, run: RunFiles) -> None:
    """Add it, if the run was of real sites."""
    sites = run.sites
    if not sites:
        return
    page.heading("Sites")
    page.paragraph(CAPTION, "caption")
    first = next(iter(sites.values()))
    steps = len(first.get("observation_error") or [None])
    head = ["", "segments to train on", "held out", "one step ahead"]
    head += [f"{steps} steps ahead", f"{steps} steps, holding", "noise σ"]
    rows = [
        [Cell(name), *(Cell(text, "number") for text in _cells(site))]
        for name, site in sites.items()
    ]
    page.table("sites", [Cell(text) for text in head], rows)
    dropped = [f"{name}, {reason}" for name, site in sites.items() for reason in site["dropped"]]
    if dropped:
        page.paragraph(f"Segments that were not used: {'; '.join(dropped)}.", "notice")
    found = (run.summary or {}).get("parameters") or {}
    if found:
        page.facts({n: f"{number(v['mean'])} ± {number(v['std'], 2)}" for n, v in found.items()})


def _cells(site: Mapping[str, Any]) -> list[str]:
    errors, held = site["observation_error"], site["held_error"]
    noise = [value**0.5 for value in site["observation_noise"]]
    counts = [f"{site[key]:,}" for key in ("train_segments", "held_out_segments")]
    return [*counts, *map(_listed, (errors[0], errors[-1], held[-1], noise))]


def _listed(values: Sequence[float | None] | None) -> str:
    return ", ".join("–" if v is None else number(v, 3) for v in values or [None])
