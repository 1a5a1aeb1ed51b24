"""Axes of reproduced figures: limits, and ticks that can be read."""

import math
from textwrap import wrap

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogFormatterMathtext,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from fedkoopman.paper.result import Panel

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
    """Choose the ticks of an axis whose limits are set.

    Arguments:
        values: all that stand on the axis; a few of them, well apart, are the ticks themselves.
    """
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
