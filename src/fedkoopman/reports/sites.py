"""What sites see: a segment of each through its sensor, and how well it is predicted there."""

from typing import Any

import numpy as np

from fedkoopman.reports.blocks import (
    Block,
    Section,
    chart,
    frame,
    line,
    panel,
    section,
    table,
    text,
)
from fedkoopman.reports.run_files import RunFiles
from fedkoopman.reports.tables import site_errors
from fedkoopman.reports.wording import labelled

__all__ = ["sites_section"]

CAPTION = (
    "Root mean square errors on held-out segments. Predicted states are seen through the site's "
    "sensor and compared with what it recorded, so that errors contain the sensor's noise; "
    "“holding” keeps the last state."
)
MOST_PANELS = 3
"""Channels, and states, of a site that are drawn."""


def sites_section(run: RunFiles) -> Section | None:
    """A segment of each site, and the table of real ones; nothing where neither is known."""
    views = _views(run)
    if not views and not run.sites:
        return None
    caption = None if views is None else text(views["description"], "caption")
    return section(
        "sites", "What the sites see", caption, views, *(_table(run) if run.sites else ())
    )


def _views(run: RunFiles) -> Block | None:
    given = run.evidence.get("sites")
    if not isinstance(given, list) or not given:
        return None
    try:
        frames = [_frame(run, one) for one in given]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    known = all("truth" in one for one in given)
    words = (
        "What a client observed, what its estimator made of it with a band of two standard "
        "deviations, and the truth, which the client never sees."
        if known
        else "What a site's estimator made of a held-out segment, with a band of two standard "
        "deviations. What it observed stays with the site."
    )
    return chart(
        "views", "Through each site's sensor" if known else "Each site's estimates", words,
        frames[0]["panels"], frames=frames, control="tabs: site", height=170, columns=2,
    )  # fmt: skip


def _frame(run: RunFiles, one: dict[str, Any]) -> Block:
    mean = np.array(one["mean"], dtype=float)
    dt, names = run.evidence["dt"], run.evidence["names"]
    units = run.evidence["units"] or [""] * len(names)
    raw = run.study.get("scheme") == "observations"
    panels, lines = list[Block](), list[Block]()
    z, seen = (np.array(one.get(name, [[]]), dtype=float) for name in ("observed", "seen"))
    for i in range(min(z.shape[1], MOST_PANELS)):
        place = len(panels)
        panels.append(panel("time", f"observed {i + 1}"))
        if "true_seen" in one:
            true = np.array(one["true_seen"], dtype=float)[:, i]
            lines.append(line("truth", (dt, dt), true, "truth", panel=place))
        lines.append(line("observed", (dt, dt), z[:, i], "held", panel=place, style="dots"))
        lines.append(_smoothed(one, "seen", seen[:, i], i, dt, place))
    for i in range(0 if raw else min(mean.shape[1], MOST_PANELS)):
        place = len(panels)
        panels.append(
            panel("time", labelled(names[i], units[i]) if i < len(names) else f"x{i + 1}")
        )
        if "truth" in one:
            true = np.array(one["truth"], dtype=float)[:, i]
            lines.append(line("truth", (dt, dt), true, "truth", panel=place))
        lines.append(_smoothed(one, "", mean[:, i], i, dt, place))
    note = f"Held-out segment {one['segment']}." if "segment" in one else ""
    return frame(str(one["name"]), note, lines, panels)


def _smoothed(
    one: dict[str, Any], which: str, values: np.ndarray, i: int, dt: float, place: int
) -> Block:
    std = one.get(f"{which}_std" if which else "std")
    band: dict[str, Any] = {}
    if std is not None:
        wide = 2 * np.array(std, dtype=float)[:, i]
        band = {"low": values - wide, "high": values + wide}
    name = "smoothed ±2σ" if band else "smoothed"
    return line(name, (dt, dt), values, "a", panel=place, **band)


def _table(run: RunFiles) -> list[Block]:
    sites = run.sites
    first = next(iter(sites.values()))
    steps = len(first.get("observation_error") or [None])
    head = ["site", "segments to train on", "held out", "one step ahead"]
    head += [f"{steps} steps ahead", f"{steps} steps, holding", "noise σ"]
    rows = [
        [
            name,
            *((f"{site[f'{part}_segments']:,}", "number") for part in ("train", "held_out")),
            *((words, "number") for words in site_errors(site)),
        ]
        for name, site in sites.items()
    ]
    found = [text(CAPTION, "caption"), table("sites-errors", head, rows, stacked=True)]
    for key, words in (("dropped", "Segments"), ("left_out", "Samples")):
        reasons = [f"{name}, {reason}" for name, site in sites.items()
                   for reason in site.get(key, [])]  # fmt: skip
        if reasons:
            found.append(text(f"{words} that were not used: {'; '.join(reasons)}.", "notice"))
    return found
