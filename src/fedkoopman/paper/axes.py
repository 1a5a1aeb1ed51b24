"""One panel of a reproduced figure: its limits and ticks, then its lines, bands and bars."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogFormatterMathtext,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from fedkoopman.paper.items import Panel, Series
from fedkoopman.plot.style import COLOURS, TEXT

STEPS = (1, 2, 2.5, 5, 10)
TURN = 35
"""Degrees by which names are turned where they do not fit side by side."""

MOST = 9
"""Values on an axis that may each have a tick."""

APART = 0.07
"""Share of an axis that such ticks need between them."""


def widened(low: float, high: float, share: float, logarithmic: bool) -> tuple[float, float]:
    """Limits of an axis that leave a margin around the values."""
    if logarithmic:
        low, high = widened(math.log10(low), math.log10(high), share, False)
        return 10.0**low, 10.0**high
    margin = share * (high - low) or 0.1 * abs(low) or 1.0
    return low - margin, high + margin


def set_ticks(axis: Axis, logarithmic: bool, values: np.ndarray) -> None:
    """Choose the ticks of an axis whose limits are set; a few values well apart are the ticks."""
    low, high = axis.get_view_interval()
    places, ends = values, (low, high)
    if logarithmic:
        places, ends = np.log10(values), (math.log10(low), math.log10(high))
        axis.set_minor_formatter(NullFormatter())
    span = ends[1] - ends[0]
    few = 1 < len(values) <= MOST and bool(np.diff(places).min() > APART * span)
    if few and (not logarithmic or low > 1e-3):
        axis.set_major_locator(FixedLocator(values.tolist()))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(_PLAIN)
    elif not logarithmic:
        whole = bool(values.size) and bool(np.all(values == np.round(values)))
        axis.set_major_locator(MaxNLocator(6, steps=STEPS, integer=whole))
    elif span < 0.8:
        axis.set_major_locator(MaxNLocator(5, steps=STEPS))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(_PLAIN)
    elif span < 2 and low > 1e-4 and high < 1e5:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
        axis.set_minor_locator(LogLocator(subs=range(1, 10), numticks=12))
        axis.set_major_formatter(_PLAIN)
    else:
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_locator(LogLocator(subs=range(2, 10), numticks=7))
        axis.set_major_formatter(LogFormatterMathtext())


_PLAIN = FuncFormatter(lambda value, _: f"{value:.6g}".replace("-", "−"))


def names_height(panel: Panel, width: float) -> float:
    """Inches that names below a panel need beyond one line; 0 where they fit side by side."""
    widths = [text_width(name) for name in panel.names]
    if not widths or max(widths) + 0.08 < (width - 0.55) / len(widths):
        return 0.0
    return max(widths) * math.sin(math.radians(TURN))


def fitted(text: str, width: float) -> str:
    """The text on as many lines as it needs to be no wider than so many inches."""
    characters = max(8, int(len(text) * width / max(text_width(text), 1e-9)))
    return "\n".join(wrap(text, characters)) if characters < len(text) else text


def text_width(text: str) -> float:
    """Inches that a text takes in the size of a legend."""
    figure = Figure(dpi=100)
    drawn = figure.text(0, 0, text, size=7.5)
    return float(drawn.get_window_extent(FigureCanvasAgg(figure).get_renderer()).width) / 100


MARKERS = "osD^vPX<>h"
DASHES: dict[str, Any] = {
    "line": "solid", "points": "solid", "dashed": (0, (4, 1.6)), "dotted": (0, (1, 1.5)),
}  # fmt: skip
MUTED, GRID, AXIS = "#8d949b", "#e9ecef", "#b6bbc1"
FEW = 4
"""Up to this many lines are told apart by colour alone; more lines have markers too."""

FLOOR = 1 / 3
"""Share of a mean at which its band ends on a logarithmic axis, which has no zero to reach."""


@dataclass(frozen=True)
class Look:
    """How the lines of one label are drawn, in every panel."""

    colour: str
    dash: Any
    marker: str
    marked: bool
    """Whether lines have their marker now and then, and not only points."""
    muted: bool

    def handle(self) -> Line2D:
        """What stands for the lines in a legend."""
        return Line2D(
            [], [], color=self.colour, ls=self.dash, lw=1.3, ms=4, mew=0,
            marker=self.marker if self.marked else "",
        )  # fmt: skip


def looks_of(panels: Sequence[Panel]) -> dict[str, Look]:
    """A look for every label, in the order in which they come."""
    series = [series for panel in panels for series in panel.series]
    first = {each.label: each for each in reversed(series)}
    order = list(dict.fromkeys(each.label for each in series))
    coloured = [label for label in order if not first[label].muted]
    grey = [label for label in order if first[label].muted]
    dotted = {each.label for each in series if each.style == "points"}
    looks = {}
    for label in order:
        style, muted = first[label].style, first[label].muted
        i = (grey if muted else coloured).index(label)
        if muted and style == "line":  # several references differ by their dashes
            style = ("line", "dashed", "dotted")[i % 3]
        elif style == "line" and i >= len(COLOURS):
            style = "dashed"
        looks[label] = Look(
            colour=MUTED if muted else COLOURS[i % len(COLOURS)],
            dash=DASHES[style],
            marker=MARKERS[i % len(MARKERS)],
            marked=label in dotted or (len(coloured) > FEW and not muted),
            muted=muted,
        )
    return looks


def draw_plane(axes: Axes, panel: Panel, looks: dict[str, Look], turned: bool = False) -> None:
    """Draw a panel's series over two axes; names below may be `turned` upwards to save room."""
    lines = [_Line.of(series, panel) for series in panel.series]
    axes.set_xlabel(panel.x)
    axes.set_ylabel(fitted(panel.y, 1.6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(which="both", color=AXIS, labelcolor=TEXT, width=0.5, length=2.5, pad=2)
    axes.tick_params(which="minor", length=1.5)
    if not any(line.x.size for line in lines):
        axes.text(0.5, 0.5, "no finite value", transform=axes.transAxes, ha="center", va="center")
        axes.set(xticks=[], yticks=[])
        return
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    _set_scales(axes, lines, panel, turned)
    axes.grid(which="major", axis="y" if panel.names else "both")
    axes.set_axisbelow(True)
    crowd = sum(not look.muted for look in looks.values())
    apart = 0.5 / max(len(lines), 4) if panel.names else 0.0
    for i, (line, series) in enumerate(zip(lines, panel.series, strict=True)):
        aside = apart * (i - (len(lines) - 1) / 2)
        if series.style == "points":
            _draw_points(axes, line, aside, looks[series.label])
        else:
            _draw_line(axes, line, aside, looks[series.label], crowd, i)


@dataclass(frozen=True)
class _Line:
    """A series as arrays, without what an axis cannot show; NaN between the parts of a line."""

    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, series: Series, panel: Panel) -> "_Line":
        x, y = _array(series.x), _array(series.y)
        seen = np.isfinite(x) & np.isfinite(y)
        seen &= (x > 0) if panel.log_x else True
        seen &= (y > 0) if panel.log_y else True
        if not seen.any():
            return cls(*(np.empty(0) for _ in range(4)))
        spread = np.zeros_like(y) if series.spread is None else np.nan_to_num(_array(series.spread))
        y = np.where(seen, y, np.nan)
        low = y - spread
        if panel.log_y:
            low = np.maximum(low, FLOOR * y)
        elif np.nanmin(y) >= 0:  # what cannot be negative has no negative band either
            low = np.maximum(low, 0)
        return cls(np.where(seen, x, np.nan), y, low, y + spread)

    @property
    def lone(self) -> np.ndarray:
        """Where a value stands between two gaps and so is no line."""
        seen = np.concatenate([[False], np.isfinite(self.y), [False]])
        return seen[1:-1] & ~seen[:-2] & ~seen[2:]

    @property
    def spread(self) -> bool:
        return bool(np.any(self.high > self.low))


def _set_scales(axes: Axes, lines: Sequence[_Line], panel: Panel, turned: bool) -> None:
    x, low, high = (
        np.concatenate([getattr(line, name)[np.isfinite(line.y)] for line in lines])
        for name in ("x", "low", "high")
    )
    points = any(series.style == "points" for series in panel.series)
    bottom, top = widened(low.min(), high.max(), 0.05, panel.log_y)
    if not panel.log_y and 0 <= low.min() < 0.4 * high.max():
        bottom = 0.0  # errors and losses have no other origin
    axes.set_ylim(bottom, top)
    set_ticks(axes.yaxis, panel.log_y, np.empty(0))
    if not panel.names:
        axes.set_xlim(widened(x.min(), x.max(), 0.04 if points else 0.012, panel.log_x))
        set_ticks(axes.xaxis, panel.log_x, np.unique(x))
        return
    axes.set_xlim(-0.5, len(panel.names) - 0.5)
    axes.set_xticks(range(len(panel.names)), panel.names)
    axes.tick_params(axis="x", length=0)
    if turned:
        for text in axes.get_xticklabels():
            text.set(rotation=TURN, ha="right", rotation_mode="anchor")


def _array(values: Sequence[float | None]) -> np.ndarray:
    array = np.array([np.nan if value is None else value for value in values], float)
    return np.where(np.isfinite(array), array, np.nan)


def _draw_line(
    axes: Axes, line: _Line, aside: float, look: Look, crowd: int, place: int
) -> None:  # fmt: skip
    x, over = line.x + aside, 2.0 if look.muted else 2.5
    if line.spread:
        alpha = min(0.18, 0.9 / max(crowd, 1))
        axes.fill_between(x, line.low, line.high, color=look.colour, alpha=alpha, lw=0, zorder=1.5)
    axes.plot(x, line.y, color=look.colour, ls=look.dash, lw=1.1, zorder=over)
    axes.plot(x[line.lone], line.y[line.lone], ".", color=look.colour, ms=6, mew=0, zorder=over)
    if look.marked and crowd > FEW:
        step = max(1, len(x) // 6)  # at other places than those of the other lines
        at = slice(step * place // max(crowd, 1), None, step)
        _mark(axes, x[at], line.y[at], look, 3.8)


def _draw_points(axes: Axes, line: _Line, aside: float, look: Look) -> None:
    x = line.x + aside
    if line.spread:
        bars = np.stack([line.y - line.low, line.high - line.y])
        axes.errorbar(
            x, line.y, bars, fmt="none", ecolor=look.colour, elinewidth=0.8, capsize=2,
            capthick=0.8, zorder=2.5,
        )  # fmt: skip
    axes.plot(x, line.y, color=look.colour, ls=look.dash, lw=0.8, zorder=2.5)
    _mark(axes, x, line.y, look, 4.5)


def _mark(axes: Axes, x: np.ndarray, y: np.ndarray, look: Look, size: float) -> None:
    axes.plot(
        x, y, ls="none", marker=look.marker, color=look.colour, ms=size, mew=0.4, mec="white",
        zorder=3,
    )  # fmt: skip


def draw_space(axes: Any, panel: Panel, looks: dict[str, Look]) -> None:
    """Draw a panel's series as lines in space, over axes with the projection "3d"."""
    crowd = sum(not series.muted for series in panel.series)
    coloured = 0
    for series in panel.series:
        look = looks[series.label]
        x, y, z = (_array(values) for values in (series.x, series.y, series.z or ()))
        # each line is narrower than the one below it, so that both are seen where they meet
        width = 3.0 if look.muted else 1.8 - 1.1 * coloured / max(crowd - 1, 1)
        coloured += not look.muted
        axes.plot(
            x, y, z, color=look.colour, ls=look.dash, lw=width, alpha=0.45 if look.muted else 1,
            zorder=1 if look.muted else 2 + coloured,
        )  # fmt: skip
    axes.view_init(elev=18, azim=-62)
    axes.set_box_aspect((1, 1, 0.95), zoom=1.02)
    for axis, label in ((axes.xaxis, panel.x), (axes.yaxis, panel.y), (axes.zaxis, panel.z)):
        axis.set_label_text(label)
        axis.labelpad = -9
        axis.line.set(color=AXIS, linewidth=0.6)
        axis.set_major_locator(MaxNLocator(4, steps=STEPS))
        axis.set_tick_params(pad=-3.5, labelsize=6.5, labelcolor=TEXT, color=AXIS)
