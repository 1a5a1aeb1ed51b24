"""Figures of how a run went (learning curves, who trained when), and the style of all figures."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from fedkoopman.reports.plots import BAND, LINE, TEXT
from fedkoopman.reports.records import SeedRecords
from fedkoopman.reports.run_files import Curve

ORANGE, GREEN, RED = "#e69f00", "#009e73", "#d55e00"
"""Used beside the blue of the other plots; colour-blind readers can tell them apart."""

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


ARRIVED = "#bcd5ec"
MOST_CLIENTS = 60
"""Clients with a row of their own; of more, each slot's count is drawn."""

MOST_SLOTS = 400
"""Slots with a cell of their own; of more, consecutive ones are counted together."""


def curves_figure(curves: dict[str, Curve], title: str, tail_from: float | None) -> go.Figure:
    """Curves by name, at most four, with bands on a logarithmic axis; `tail_from` is shaded on."""
    figure = new_figure(360, hovermode="x unified")
    for (name, curve), colour in zip(curves.items(), (LINE, ORANGE, GREEN, RED), strict=False):
        x, y = _outline(curve)
        if x.size:
            figure.add_scatter(
                x=x, y=y, fill="toself", fillcolor=faint(colour, 0.2), mode="lines",
                line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=name,
            )  # fmt: skip
        lone, width = len(curve.slots) == 1, 1.8 if len(curve.slots) <= 500 else 1.1
        figure.add_scatter(
            x=curve.slots, y=plain(curve.mean), name=name, legendgroup=name,
            mode="markers" if lone else "lines", line={"color": colour, "width": width},
            showlegend=True, hovertemplate="%{y:.4g}",
        )  # fmt: skip
    last = max(curve.slots[-1] for curve in curves.values())
    if tail_from is not None:
        figure.add_vrect(tail_from, last, fillcolor=TEXT, opacity=0.05, line_width=0, layer="below")
    figure.update_xaxes(title="time slot", **_whole_ticks(last))
    figure.update_yaxes(title=title, type="log", exponentformat="power", tickfont_size=10)
    return figure


def clients_figure(seed: SeedRecords, clients: int, names: Sequence[str] = ()) -> go.Figure:
    """Whose observations arrived and who trained, in every slot from the first.

    Few clients have a row each, with their names if they have any; long runs count consecutive
    slots together; of many clients the number in each slot is drawn.
    """
    if clients > MOST_CLIENTS:
        return _counts_figure(seed)
    begun = int(seed.slots[0] == 0)  # nothing happens in slot 0
    slots = seed.slots[begun:]
    arrived, active, dropped = (
        _incidence(lists[begun:], clients) for lists in (seed.arrived, seed.active, seed.dropped)
    )
    figure = new_figure(118 + max(60, min(26 * clients, 8 * clients + 130)))
    rows = np.arange(clients)
    if len(slots) <= MOST_SLOTS:
        marks = (
            ("arrived", ARRIVED, arrived),
            ("dropped", RED, dropped),
            ("trained", LINE, active),
        )
        for name, colour, incidence in marks:
            if name != "dropped" or incidence.any():
                _add_marks(figure, slots, rows, incidence, name, colour)
    else:
        width = bin_width(len(slots))
        first = np.arange(0, len(slots), width)
        rounds, seen = (np.add.reduceat(a, first, axis=1) for a in (active, arrived))
        figure.add_heatmap(
            x=slots[first] + (width - 1) / 2, y=rows, z=rounds.astype(np.float32),
            customdata=seen.astype(np.float32), colorscale=[[0, "#f4f7fa"], [0.5, BAND], [1, LINE]],
            zmin=0, zmax=max(1, int(rounds.max())), ygap=1,
            colorbar={
                "title": {"text": f"trainings in {width} slots", "side": "right"},
                "thickness": 10, "outlinewidth": 0, "tickformat": "d", "nticks": 5,
            },
            hovertemplate=f"{width} slots around %{{x:.0f}}<br>client %{{y}}<br>"
            "%{z:.0f} trainings, %{customdata:.0f} arrivals<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="time slot", showgrid=False, **_whole_ticks(slots[-1]))
    named = {"tickvals": rows, "ticktext": names} if names else _whole_ticks(clients)
    title = None if names else "client"
    figure.update_yaxes(title=title, autorange="reversed", showgrid=False, **named)
    return figure


def bin_width(slots: int) -> int:
    """How many consecutive slots are counted together; 1 draws each."""
    if slots <= MOST_SLOTS:
        return 1
    return next(w for w in (5, 10, 20, 50, 100, 200, 500, 10**3, 10**4, 10**6) if slots <= 150 * w)


def _counts_figure(seed: SeedRecords) -> go.Figure:
    figure = new_figure(300, hovermode="x unified")
    kinds = [("arrived", ARRIVED, seed.arrived), ("trained", LINE, seed.active)]
    if any(ids.size for ids in seed.dropped):
        kinds.append(("dropped", RED, seed.dropped))
    for name, colour, lists in kinds:
        figure.add_scatter(
            x=seed.slots, y=np.array([ids.size for ids in lists]), name=name, mode="lines",
            line={"color": colour, "width": 1.3, "shape": "hvh"}, hovertemplate="%{y:d}",
            fill="tozeroy" if name == "arrived" else None, fillcolor=faint(ARRIVED, 0.4),
        )  # fmt: skip
    figure.update_xaxes(title="time slot", **_whole_ticks(seed.slots[-1]))
    figure.update_yaxes(title="clients", rangemode="tozero", tickformat="d")
    return figure


def _whole_ticks(last: int) -> dict[str, object]:
    """Ticks at whole numbers only."""
    return {"dtick": 1, "tickformat": "d"} if last <= 12 else {"tickformat": "d"}


def _add_marks(
    figure: go.Figure,
    slots: np.ndarray,
    rows: np.ndarray,
    incidence: np.ndarray,
    name: str,
    colour: str,
) -> None:
    figure.add_heatmap(
        x=slots, y=rows, z=np.where(incidence > 0, 1, np.nan).astype(np.float32), name=name,
        colorscale=[[0, colour], [1, colour]], showscale=False, hoverongaps=False,
        xgap=1 if len(slots) <= 100 else 0, ygap=3 if len(rows) <= 25 else 1,
        hovertemplate=f"slot %{{x}}<br>client %{{y}}<br>{name}<extra></extra>",
    )  # fmt: skip
    # a heat map has no legend entry of its own
    figure.add_scatter(
        x=[None], y=[None], mode="markers", name=name, hoverinfo="skip",
        marker={"color": colour, "size": 11, "symbol": "square"},
    )  # fmt: skip


def _incidence(lists: Sequence[np.ndarray], clients: int) -> np.ndarray:
    """(clients, slots): 1 where a client is in a slot's list."""
    incidence = np.zeros((clients, len(lists)), np.int32)
    for column, ids in enumerate(lists):
        incidence[ids, column] = 1
    return incidence


def _outline(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """The band as closed outlines, one per stretch without a gap."""
    drawn = np.isfinite(curve.low) & np.isfinite(curve.high) & (curve.low > 0)
    if not (drawn & (curve.high > curve.low)).any():
        return np.empty(0), np.empty(0)
    xs: list[np.ndarray] = []
    ys: list[np.ndarray] = []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], drawn.astype(int), [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        slots, low, high = (a[start:stop] for a in (curve.slots, curve.low, curve.high))
        xs += [slots, slots[::-1], np.array([np.nan])]
        ys += [high, low[::-1], np.array([np.nan])]
    return plain(np.concatenate(xs)), plain(np.concatenate(ys))
