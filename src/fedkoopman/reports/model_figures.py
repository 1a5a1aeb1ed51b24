"""Figures of what a run learnt: its predictions and its operator."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedkoopman.reports.figure_style import AXIS, GREY, GRID, RED, dress, faint, new_figure, plain
from fedkoopman.reports.plots import LINE, MOST_POINTS
from fedkoopman.reports.run_files import Rollout
from fedkoopman.reports.spectrum import Mode

MOST_STATES = 12
"""States with a panel of their own."""


def trajectory_figure(rollout: Rollout) -> go.Figure:
    """Truth and predictions over time, one panel per state."""
    d = min(rollout.truth.shape[1], MOST_STATES)
    figure = make_subplots(rows=d, cols=1, shared_xaxes=True, vertical_spacing=0.3 / (3 + d))
    dress(figure, 110 + 120 * d, hovermode="x unified")
    every = -(-len(rollout.truth) // MOST_POINTS)
    time = np.arange(len(rollout.truth)) * rollout.dt
    for i in range(d):
        for name, line, x, y in _lines_of(rollout, time):
            figure.add_scatter(
                x=plain(x[::every]), y=plain(y[::every, i]), name=name, legendgroup=name,
                line=line, mode="lines", hovertemplate="%{y:.4g}", showlegend=i == 0,
                row=i + 1, col=1,
            )  # fmt: skip
        figure.update_yaxes(
            title=escape(label(rollout.names[i], rollout.units[i]), quote=False), row=i + 1, col=1,
            range=_range_around(rollout.truth[:, i], rollout.one_step[:, i]),
        )  # fmt: skip
    figure.update_xaxes(title="time", row=d, col=1)
    return figure


def space_figure(rollout: Rollout, height: int) -> go.Figure:
    """The truth and its predictions in the space of the three states."""
    figure = new_figure(height)
    every = -(-len(rollout.truth) // MOST_POINTS)
    for name, line, _, y in _lines_of(rollout, np.arange(len(rollout.truth))):
        x1, x2, x3 = (plain(y[::every, i]) for i in range(3))
        figure.add_scatter3d(
            x=x1, y=x2, z=x3, name=name, mode="lines",
            line={"color": line["color"], "width": 2 + line["width"], "dash": line["dash"]},
            hovertemplate="%{x:.4g}, %{y:.4g}, %{z:.4g}",
        )  # fmt: skip
    axes = {}
    for i, axis in enumerate(("xaxis", "yaxis", "zaxis")):
        axes[axis] = {
            "title": {"text": label(rollout.names[i], rollout.units[i]), "font": {"size": 12}},
            "range": _range_around(rollout.truth[:, i], rollout.one_step[:, i]),
            "backgroundcolor": "#fff", "gridcolor": GRID, "linecolor": AXIS, "nticks": 5,
            "tickfont": {"size": 10}, "showspikes": False,
        }  # fmt: skip
    camera = {"eye": {"x": 1.5, "y": -1.5, "z": 0.6}, "center": {"x": 0, "y": 0, "z": -0.12}}
    figure.update_layout(scene={**axes, "aspectmode": "cube", "camera": camera})
    figure.update_layout(margin={"l": 0, "r": 0, "t": 36, "b": 0})
    return figure


def spectrum_figure(modes: Sequence[Mode]) -> go.Figure:
    """Eigenvalues of the operator in the complex plane, with the unit circle."""
    figure = new_figure(440)
    turn = np.linspace(0, 2 * np.pi, 181)
    figure.add_scatter(
        x=plain(np.cos(turn)), y=plain(np.sin(turn)), mode="lines", hoverinfo="skip",
        line={"color": GREY, "width": 1, "dash": "dot"}, name="unit circle",
    )  # fmt: skip
    kinds = (
        ("decaying", LINE, "circle", [m for m in modes if abs(m.eigenvalue) <= 1]),
        ("growing", RED, "diamond", [m for m in modes if abs(m.eigenvalue) > 1]),
    )
    for name, colour, symbol, members in kinds:
        if members:
            at = np.array([mode.eigenvalue for mode in members])
            figure.add_scatter(
                x=plain(at.real), y=plain(at.imag), mode="markers", name=name,
                marker={"color": faint(colour, 0.75), "size": 9, "symbol": symbol,
                        "line": {"color": "#fff", "width": 1}},
                text=[mode.text() for mode in members], hovertemplate="%{text}<extra></extra>",
            )  # fmt: skip
    reach = 1.08 * max([1.0, *(abs(mode.eigenvalue) for mode in modes)])
    figure.update_xaxes(title="real part", range=[-reach, reach], constrain="domain")
    figure.update_yaxes(
        title="imaginary part", range=[-reach, reach], constrain="domain", scaleanchor="x"
    )
    return figure


def label(name: str, unit: str) -> str:
    """A state's name with its unit."""
    return name if unit in ("", "1") else f"{name} [{unit}]"


def _lines_of(
    rollout: Rollout, time: np.ndarray
) -> tuple[tuple[str, dict[str, Any], np.ndarray, np.ndarray], ...]:
    free = np.concatenate([rollout.truth[:1], _until_lost(rollout)])
    reached = np.isfinite(free).all(axis=1)  # a depth of several samples leaves out those between
    return (
        ("truth", {"color": GREY, "width": 4, "dash": "solid"}, time, rollout.truth),
        (
            "one step ahead",
            {"color": LINE, "width": 1.4, "dash": "solid"},
            time[1:],
            rollout.one_step,
        ),
        ("free rollout", {"color": RED, "width": 1.6, "dash": "dot"}, time[reached], free[reached]),
    )


def _until_lost(rollout: Rollout) -> np.ndarray:
    """The free rollout up to where it is ten times the truth's extent away: then it is noise."""
    truth, free = rollout.truth, rollout.free
    low, high = np.fmin.reduce(truth, axis=0), np.fmax.reduce(truth, axis=0)
    reach = np.where(high > low, 10 * (high - low), np.inf)
    lost = (np.abs(free - (low + high) / 2) > reach).any(axis=1)
    return np.where(np.maximum.accumulate(lost)[:, None], np.nan, free)


def _range_around(truth: np.ndarray, one_step: np.ndarray) -> list[float] | None:
    """An axis for the truth with some room: a rollout that runs away leaves the picture."""
    both = np.concatenate([truth, one_step])
    seen, real = both[np.isfinite(both)], truth[np.isfinite(truth)]
    if not real.size:
        return None
    room = (np.ptp(real) or abs(real[0]) or 1.0) * 0.25
    low, high = max(seen.min(), real.min() - room), min(seen.max(), real.max() + room)
    return [float(low - 0.4 * room), float(high + 0.4 * room)]
