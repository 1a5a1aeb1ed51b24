"""A sweep as one self-contained page without scripts: a chart of what each combination reaches, and
the table.

Where a key has numbers, they are the horizontal axis and all other keys' values are lines; where
none has, every combination has a row of its own.
"""

import io
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.durable import written_whole
from fedkoopman.plot.style import COLOURS, dress, plain_text
from fedkoopman.reports.tables import (
    METRICS,
    sweep_cells,
    sweep_columns,
    sweep_csv,
    sweep_markdown,
    sweep_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedkoopman.runs.sweep import Combination, Result

SHOWN = {"E": "E, prediction error", "l3": "ℓ3, prediction", "horizon": "horizon, valid steps"}
MOST_LINES = 8
"""Lines in a panel; of more combinations, each has a row."""
MOST_TICKS = 6
MARKERS = "osD^vP*X"
INK = "#010203"
"""Stands for the colour of the page's text, which is light on dark and dark on light."""

STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --paper: #fff; --line: #d0d7de; --quiet: #57606a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --line: #3d444d; --quiet: #9aa4b0 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.5rem; line-height: 1.2; overflow-wrap: anywhere }
p { color: var(--quiet); overflow-wrap: anywhere }
.scroll { overflow-x: auto }
svg { display: block; max-width: 100%; height: auto; margin: 1rem 0; color: var(--ink) }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; max-width: 24rem; overflow: hidden; text-overflow: ellipsis }
.best { font-weight: 700 }
@media print { :root { --ink: #000; --paper: #fff; --quiet: #333 } }
"""


def write_sweep(
    directory: Path,
    keys: Sequence[str],
    combinations: Sequence["Combination"],
    results: Sequence["Result"],
) -> list[Path]:
    """Write `sweep.html`, `sweep.md` and `sweep.csv`, of a finished sweep or of one going on."""
    targets = [directory / f"sweep.{kind}" for kind in ("html", "md", "csv")]
    with written_whole(*targets) as [page, text, table]:
        page.write_text(sweep_page(keys, combinations, results), encoding="utf-8")
        text.write_text(sweep_markdown(keys, combinations, results), encoding="utf-8")
        table.write_text(sweep_csv(keys, results), encoding="utf-8", newline="")
    return targets


def sweep_page(
    keys: Sequence[str], combinations: Sequence["Combination"], results: Sequence["Result"]
) -> str:
    """The page of a sweep, finished or still going on.

    Arguments:
        keys: of the grid.
    """
    title = f"Sweep of {combinations[0].study.name}"
    done = f"{len(results)} of {len(combinations)} combinations are finished."
    chart = ""
    if results:
        words = f"{' and '.join(SHOWN)} by {', '.join(keys)}; the numbers stand in the table below."
        chart = f'<div class="scroll">{_svg(_figure(keys, results), words)}</div>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{escape(title)}</h1><p>{escape(f'{done} {sweep_words(results)}')}</p>"
        f"{chart}{_table(keys, results)}"
        "<p>Each combination is a run in a directory named after its values; "
        "<code>fedkoopman run --resume --out</code> with that directory writes its report.</p>"
        "</main></body></html>\n"
    )


def _table(keys: Sequence[str], results: Sequence["Result"]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in sweep_columns(keys))
    best = min(results, key=lambda one: _number(one, "E")[0], default=None)
    rows = []
    for one in results:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in sweep_cells(one))
        mark = ' class="best"' if one is best and len(results) > 1 else ""
        rows.append(f"<tr{mark}>{cells}</tr>")
    note = "<p>In bold, the lowest E.</p>" if len(results) > 1 else ""
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{note}"
    )


def _figure(keys: Sequence[str], results: Sequence["Result"]) -> "Figure":
    import matplotlib as mpl
    from matplotlib.figure import Figure

    inked: Any = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
    with mpl.rc_context(dict.fromkeys(inked, INK)):
        x = _axis(keys, results)
        if x is None:
            height = 1.2 + 0.26 * len(results)
            figure = Figure(figsize=(11, height), layout="constrained")
            panels = figure.subplots(1, len(SHOWN), sharey=True)
            for panel, metric in zip(panels, SHOWN, strict=True):
                _draw_rows(panel, metric, results)
            names = [plain_text(", ".join(one.combination.values), 40) for one in results]
            panels[0].set_yticks(range(len(results)), names)
            panels[0].set_ylim(len(results) - 0.5, -0.5)
        else:
            figure = Figure(figsize=(11, 3.6), layout="constrained")
            panels = figure.subplots(1, len(SHOWN))
            for panel, metric in zip(panels, SHOWN, strict=True):
                _draw_lines(panel, metric, keys, results, x)
                panel.set_xlabel(plain_text(keys[x]))
            handles, labels = panels[0].get_legend_handles_labels()
            if labels != [""]:
                place: dict[str, Any] = {"loc": "outside upper left", "ncols": 3}
                figure.legend(handles, labels, frameon=False, fontsize=9, **place)
        for panel, words in zip(panels, SHOWN.values(), strict=True):
            panel.set_title(words, size=10, loc="left")
            dress(panel)
            panel.margins(0.06)
    return figure


def _axis(keys: Sequence[str], results: Sequence["Result"]) -> int | None:
    """The place of the key with most numbers; None where lines would be none or too many."""
    found: dict[int, int] = {}
    for place in range(len(keys)):
        texts = {one.combination.values[place] for one in results}
        if len(texts) > 1 and all(_float(text) is not None for text in texts):
            found[place] = len(texts)
    if not found:
        return None
    place = max(found, key=lambda p: found[p])
    return place if len(_lines(keys, results, place)) <= MOST_LINES else None


def _lines(keys: Sequence[str], results: Sequence["Result"], x: int) -> dict[str, list["Result"]]:
    """Combinations by the values of all keys but one."""
    found: dict[str, list[Result]] = {}
    for one in results:
        pairs = enumerate(zip(keys, one.combination.values, strict=True))
        rest = ", ".join(f"{key} = {value}" for place, (key, value) in pairs if place != x)
        found.setdefault(rest, []).append(one)
    return found


def _draw_lines(
    panel: "Axes", metric: str, keys: Sequence[str], results: Sequence["Result"], x: int
) -> None:
    every = [_float(one.combination.values[x]) or 0.0 for one in results]
    for i, (label, mine) in enumerate(_lines(keys, results, x).items()):
        places = np.array([_float(one.combination.values[x]) for one in mine], float)
        order = np.argsort(places)
        means, stds = np.array([_number(one, metric) for one in mine]).T
        look: dict[str, Any] = {"color": COLOURS[i], "marker": MARKERS[i], "ms": 5, "lw": 1.2}
        means = np.where(np.isfinite(means), means, np.nan)[order]
        bars = _bars(means, stds[order])
        panel.errorbar(places[order], means, bars, capsize=3, label=plain_text(label), **look)
    if min(every) > 0 and max(every) / min(every) > 20:
        panel.set_xscale("log")
    if len(ticks := sorted(set(every))) <= MOST_TICKS:
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.set_xticks([], minor=True)
    _scale(panel.set_yscale, metric, results)


def _draw_rows(panel: "Axes", metric: str, results: Sequence["Result"]) -> None:
    means, stds = np.array([_number(one, metric) for one in results]).T
    means = np.where(np.isfinite(means), means, np.nan)
    look: dict[str, Any] = {"fmt": "o", "color": COLOURS[0], "ms": 5, "capsize": 3}
    panel.errorbar(means, np.arange(len(results)), xerr=_bars(means, stds), **look)
    _scale(panel.set_xscale, metric, results)


def _bars(means: Any, stds: Any) -> Any:
    """Below and above; nothing shown here can be negative."""
    return np.stack([np.fmin(stds, np.abs(means)), stds])


def _scale(set_scale: Any, metric: str, results: Sequence["Result"]) -> None:
    """Logarithmic for errors that differ by more than a factor of five."""
    means = [mean for one in results if math.isfinite(mean := _number(one, metric)[0])]
    if metric != "horizon" and means and min(means) > 0 and max(means) > 5 * min(means):
        set_scale("log")


def _number(result: "Result", metric: str) -> tuple[float, float]:
    """Mean and standard deviation over seeds; infinite where not finite."""
    assert metric in METRICS
    spread = result.summary.get(metric) or {}
    mean, std = spread.get("mean"), spread.get("std")
    return (math.inf if mean is None else float(mean)), (0.0 if std is None else float(std))


def _float(text: str) -> float | None:
    try:
        return float(text.replace("_", ""))
    except ValueError:
        return None


def _svg(figure: "Figure", words: str) -> str:
    """The picture as part of a page, in the page's own text colour."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "fedkoopman"}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    svg = text.getvalue()
    label = f'<svg role="img" aria-label="{escape(words)}" '
    return svg[svg.index("<svg ") :].replace("<svg ", label, 1).replace(INK, "currentColor")
