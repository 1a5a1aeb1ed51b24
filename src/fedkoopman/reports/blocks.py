"""What a page is made of, as plain data: texts, tables, charts, in sections.

A page is a JSON-able dictionary (`Story`) of sections, each with blocks that are made here.
`document.py` renders it as HTML, and the page's own script (`assets/page.js`, `assets/charts.js`)
draws the charts, and in a live page all of it, from the same data. Numbers that are not finite are
None.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

Block = dict[str, Any]


class Section(TypedDict):
    """A part of a page under a heading; `id` is unique on the page."""

    id: str
    title: str
    blocks: list[Block]


class Story(TypedDict):
    """A whole page."""

    title: str
    lede: str
    finished: bool
    """Whether nothing more will come."""
    sections: list[Section]


MOST_POINTS = 2000
"""Points of a line in a chart; there are no more pixels."""


def section(name: str, title: str, *blocks: Block | None) -> Section:
    """A section of those blocks that there are."""
    return {"id": name, "title": title, "blocks": [one for one in blocks if one is not None]}


def text(words: str, style: str = "") -> Block:
    """A paragraph; `style` is caption, notice, warning, verdict or nothing."""
    return {"kind": "text", "text": words, "style": style}


def facts(given: Mapping[str, str]) -> Block:
    """Single numbers with their names."""
    return {"kind": "facts", "facts": [[name, value] for name, value in given.items()]}


def code(words: str, folded: str = "") -> Block:
    """Text in a fixed-width font; `folded` is the line that opens it, or nothing."""
    return {"kind": "code", "text": words, "folded": folded}


def table(
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    folded: str = "",
    stacked: bool = False,
) -> Block:
    """A table whose rows begin with their heading.

    Arguments:
        name: unique on the page.
        head: the columns' headings.
        rows: cells as texts, or as (text, style), where the style is number, strong, meaning or
            several of them.
        folded: the line that opens the table; without it, the table stands open.
        stacked: whether cells stand below each other on a phone.
    """
    cells = [[list(cell(one)) for one in row] for row in rows]
    return {
        "kind": "table", "id": name, "head": list(head), "rows": cells, "folded": folded,
        "style": "stacked" if stacked else "",
    }  # fmt: skip


def cell(given: str | tuple[str, str]) -> tuple[str, str]:
    """A cell's text and style."""
    return (given, "") if isinstance(given, str) else given


def chart(
    name: str,
    title: str,
    description: str,
    panels: Sequence[Block],
    lines: Sequence[Block] = (),
    *,
    frames: Sequence[Block] = (),
    control: str = "",
    start: int = 0,
    height: int = 240,
    columns: int = 1,
) -> Block:
    """A chart of one or more panels; what differs between its frames is chosen by the reader.

    Arguments:
        name: unique on the page.
        description: for readers who cannot see it.
        panels: of `panel`.
        lines: of `line`, `dots`, …, in every frame.
        frames: of `frame`.
        control: what the frames are; "slider: …" or "tabs: …" with the control's label.
        start: the frame that is shown first.
        height: of a panel, in pixels.
        columns: how many panels stand side by side, where there is room.
    """
    return {
        "kind": "chart", "id": name, "title": title, "description": description,
        "panels": list(panels), "series": list(lines), "frames": list(frames),
        "control": control, "start": start, "height": height, "columns": columns,
    }  # fmt: skip


def panel(
    x: str,
    y: str,
    *,
    log: bool = False,
    xlog: bool = False,
    whole: bool = False,
    xrange: Sequence[float] | None = None,
    yrange: Sequence[float] | None = None,
    rows: Sequence[str] = (),
    equal: bool = False,
    nearest: bool = False,
    circle: bool = False,
    diagonal: bool = False,
    shade: Sequence[float] = (),
    mark: float | None = None,
) -> Block:
    """Axes with their names.

    Arguments:
        log, xlog: whether the axis is logarithmic.
        whole: whether x is counted.
        xrange, yrange: limits; otherwise as the data have them.
        rows: names of the rows, where y is not a number.
        equal: whether both axes have the same scale.
        nearest: whether hovering finds the nearest point, not the nearest x.
        circle, diagonal: whether the unit circle, or y = x, is drawn.
        shade: a span of x in grey.
        mark: an x where a line stands.
    """
    return {
        "x": x, "y": y, "log": log, "xlog": xlog, "whole": whole, "equal": equal,
        "nearest": nearest or equal,
        "xrange": None if xrange is None else [float(v) for v in xrange],
        "yrange": None if yrange is None else [float(v) for v in yrange],
        "rows": list(rows), "circle": circle, "diagonal": diagonal,
        "shade": [float(v) for v in shade], "mark": mark,
    }  # fmt: skip


def frame(
    name: str, note: str, lines: Sequence[Block], panels: Sequence[Block] | None = None
) -> Block:
    """One choice of a chart: its name on the control, a sentence, and what is drawn.

    Arguments:
        panels: if they are others than the chart's.
    """
    found: Block = {"name": name, "note": note, "series": list(lines)}
    return found if panels is None else found | {"panels": list(panels)}


def line(
    name: str,
    x: Any,
    y: Any,
    colour: str,
    *,
    panel: int = 0,
    low: Any = None,
    high: Any = None,
    spread: float | None = None,
    style: str = "line",
    dash: str = "",
    words: Sequence[str] = (),
    unit: str = "",
) -> Block:
    """A line with a name, and a band about it: from `low` to `high`, or `spread` to either side.

    Arguments:
        x: numbers, or (first, step) of evenly spaced ones.
        colour: a name in `assets/page.css`: truth, held, a, b, c, d, e, f.
        style: line, dots, steps, bars (y is a row), marks (y is a row, at whole x), heat (as
            marks, with `z` and `size` set).
        dash: as SVG has it.
        words: what hovering says of each point; otherwise its numbers.
    """
    found = {
        "name": name, "colour": colour, "panel": panel, "style": style, "dash": dash,
        "x": [float(v) for v in x] if isinstance(x, tuple) else numbers(x), "y": numbers(y),
        "even": isinstance(x, tuple), "unit": unit,
    }  # fmt: skip
    if low is not None and high is not None:
        found |= {"low": numbers(low), "high": numbers(high)}
    if spread is not None and np.isfinite(spread):
        found["spread"] = float(f"{spread:.4g}")
    return found | ({"words": list(words)} if words else {})


def numbers(values: Any, digits: int = 5) -> list[float | int | None]:
    """Numbers with as many digits as an eye sees; None where one is not finite."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return [int(v) for v in array.ravel()]
    return [
        float(f"{v:.{digits}g}") if -1e300 < v < 1e300 else None
        for v in array.astype(float).ravel()
    ]
