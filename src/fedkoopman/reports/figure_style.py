"""How the figures of a report look, and how their numbers are written."""

import numpy as np
import plotly.graph_objects as go

from fedkoopman.reports.plots import TEXT

ORANGE, GREEN, RED = "#e69f00", "#009e73", "#d55e00"
"""Beside the blue of the other plots: told apart by colour-blind readers too."""

GRID, AXIS, GREY = "#eceff1", "#c4c7cb", "#9aa0a6"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def plain(values: np.ndarray) -> np.ndarray:
    """Single precision: more than an eye or a hover text shows, at half the size."""
    large = np.finfo(np.float32).max
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(values) < large, values, np.nan).astype(np.float32)


def faint(colour: str, opacity: float) -> str:
    """A colour that lets through what is under it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def new_figure(height: int, hovermode: str = "closest") -> go.Figure:
    """An empty figure in the report's dress."""
    figure = go.Figure()
    dress(figure, height, hovermode)
    return figure


def dress(figure: go.Figure, height: int, hovermode: str) -> None:
    """Give a figure the report's fonts, colours and margins."""
    figure.update_layout(
        template=go.layout.Template(), height=height, hovermode=hovermode, autosize=True,
        font={"family": FONT, "size": 12, "color": TEXT}, paper_bgcolor="#fff", plot_bgcolor="#fff",
        margin={"l": 64, "r": 20, "t": 36, "b": 48}, hoverlabel={"bgcolor": "#fff"},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"},
    )  # fmt: skip
    style = {"gridcolor": GRID, "linecolor": AXIS, "tickcolor": AXIS, "zeroline": False}
    figure.update_xaxes(showline=True, title_standoff=8, **style)
    figure.update_yaxes(showline=True, title_standoff=6, automargin=True, **style)
