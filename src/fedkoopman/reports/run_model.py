"""The part of a run's report on the model it learnt: its predictions and the spectrum of K."""

import cmath
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedkoopman.reports.figures import AXIS, GREEN, GREY, GRID, RED, dress, faint, new_figure, plain
from fedkoopman.reports.page import Cell, Page
from fedkoopman.reports.plots import LINE, MOST_POINTS
from fedkoopman.reports.run_files import Rollout, RunFiles
from fedkoopman.reports.tables import counted


@dataclass(frozen=True)
class Mode:
    """An eigenvalue λ of the operator, which advances `step` units of time."""

    eigenvalue: complex
    step: float

    @property
    def rate(self) -> complex | None:
        """The continuous eigenvalue log(λ) / step; None for λ = 0, which forgets at once."""
        return cmath.log(self.eigenvalue) / self.step if self.eigenvalue else None

    @property
    def frequency(self) -> float:
        """Turns per unit of time."""
        return abs(self.rate.imag) / (2 * math.pi) if self.rate is not None else 0.0

    @property
    def decay_time(self) -> float:
        """Time in which the mode falls to 1/e; negative: in which it grows e-fold; else ∞."""
        if self.rate is None:
            return 0.0
        return -1 / self.rate.real if self.rate.real else math.inf

    def decay(self) -> str:
        """The decay time in words."""
        time = self.decay_time
        if time == 0:
            return "vanishes at once"
        if math.isinf(time):
            return "stays"
        return f"{'grows' if time < 0 else 'decays'} in {abs(time):.4g}"

    def name(self, paired: bool = False) -> str:
        """The eigenvalue as written; with `paired`, for itself and its conjugate."""
        real, imag = self.eigenvalue.real, self.eigenvalue.imag
        sign = "±" if paired else "−" if imag < 0 else "+"
        return f"{real:.4g} {sign} {abs(imag):.4g} i" if imag else f"{real:.4g}"

    def text(self) -> str:
        """The mode in a few lines, for a figure."""
        return (
            f"λ = {self.name()}<br>|λ| = {abs(self.eigenvalue):.4g}<br>"
            f"frequency {self.frequency:.4g}<br>{self.decay()}"
        )


def modes_of(eigenvalues: Iterable[complex], dt: float, depth: int) -> list[Mode]:
    """The modes of an operator that advances `depth` samples of `dt`, slowest to fade first."""
    finite = [complex(value) for value in eigenvalues if cmath.isfinite(complex(value))]
    finite.sort(key=lambda value: (-abs(value), abs(value.imag), value.imag))
    return [Mode(value, dt * depth) for value in finite]


MOST_STATES = 12
"""States with a panel of their own."""


def trajectory_figure(rollout: Rollout) -> go.Figure:
    """Truth and predictions over time, one panel per state; inputs share one below."""
    d = min(rollout.truth.shape[1], MOST_STATES)
    rows = d + (rollout.inputs is not None)
    figure = make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=0.3 / (3 + rows))
    dress(figure, 110 + 120 * rows, hovermode="x unified")
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
            range=range_around(rollout.truth[:, i], rollout.one_step[:, i]),
        )  # fmt: skip
    if rollout.inputs is not None:
        for row, u in zip(rollout.driven_by, rollout.inputs.T, strict=True):
            figure.add_scatter(
                x=plain(time[::every]), y=plain(u[::every]), name=escape(row["name"], quote=False),
                mode="lines", line={"shape": "hv", "width": 1.5}, hovertemplate="%{y:.4g}",
                row=rows, col=1,
            )  # fmt: skip
        figure.update_yaxes(title="inputs", row=rows, col=1)
    figure.update_xaxes(title="time", row=rows, col=1)
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
            "range": range_around(rollout.truth[:, i], rollout.one_step[:, i]),
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
    free, reached = _reached(rollout.truth, rollout.free)
    lines = [
        ("truth", {"color": GREY, "width": 4, "dash": "solid"}, time, rollout.truth),
        (
            "one step ahead",
            {"color": LINE, "width": 1.4, "dash": "solid"},
            time[1:],
            rollout.one_step,
        ),
        ("lifted once", {"color": RED, "width": 1.6, "dash": "dot"}, time[reached], free[reached]),
    ]
    if rollout.relifted is not None:
        free, reached = _reached(rollout.truth, rollout.relifted)
        line = {"color": GREEN, "width": 1.6, "dash": "dash"}
        lines.append((_anew(rollout.relift), line, time[reached], free[reached]))
    return tuple(lines)


def _anew(relift: int) -> str:
    return "lifted anew every step" if relift == 1 else f"lifted anew every {relift} steps"


def _reached(truth: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A forecast from the first state, that state before it, and the places where it is known."""
    found = np.concatenate([truth[:1], until_lost(truth, free)])
    # A depth of several samples leaves out those between.
    return found, np.isfinite(found).all(axis=1)


def until_lost(truth: np.ndarray, free: np.ndarray) -> np.ndarray:
    """A forecast up to where it is ten times the truth's extent away: then it is noise."""
    low, high = np.fmin.reduce(truth, axis=0), np.fmax.reduce(truth, axis=0)
    reach = np.where(high > low, 10 * (high - low), np.inf)
    lost = (np.abs(free - (low + high) / 2) > reach).any(axis=1)
    return np.where(np.maximum.accumulate(lost)[:, None], np.nan, free)


def range_around(truth: np.ndarray, one_step: np.ndarray) -> list[float] | None:
    """An axis for the truth with some room: a rollout that runs away leaves the picture."""
    both = np.concatenate([truth, one_step])
    seen, real = both[np.isfinite(both)], truth[np.isfinite(truth)]
    if not real.size:
        return None
    room = (np.ptp(real) or abs(real[0]) or 1.0) * 0.25
    low, high = max(seen.min(), real.min() - room), min(seen.max(), real.max() + room)
    return [float(low - 0.4 * room), float(high + 0.4 * room)]


LISTED_MODES = 200


def trajectory_section(page: Page, run: RunFiles) -> None:
    """A held-out trajectory and its predictions, over time and in space."""
    page.heading("True against predicted trajectory")
    rollout = run.rollout
    if rollout is None:
        page.paragraph("Written when the run ends.", "caption")
        return
    if not len(rollout.truth):
        page.paragraph("Held-out states stay at their sites; what they say is told above.")
        return
    states = rollout.truth.shape[1]
    caption = (
        "A held-out trajectory. One step ahead: each state predicted from the true one before it. "
        "Lifted once: the first state lifted, then advanced by K alone. Where a forecast runs far "
        "from the truth it leaves the picture."
    )
    if rollout.relift:
        caption += (
            f" {_anew(rollout.relift).capitalize()}: the state is decoded and lifted again, which "
            "was the better way on held-out data and is how this model forecasts by default."
        )
    if states > MOST_STATES:
        caption += f" The first {MOST_STATES} of {states} states."
    page.paragraph(caption + _of_first_seed(run), "caption")
    panels = trajectory_figure(rollout)
    if states != 3:
        page.chart("states", panels, "States over time")
        return
    with page.beside():
        page.chart("states", panels, "States over time")
        page.chart("space", space_figure(rollout, panels.layout.height), "State space")


def inputs_section(page: Page, run: RunFiles) -> None:
    """What drives the model, and what one unit of each input does in one step."""
    rollout = run.rollout
    if rollout is None or not rollout.driven_by:
        return
    page.heading("What the inputs do")
    page.paragraph(
        "By how much one unit of an input, held from one sample to the next, moves each state in "
        "that step, at the mean of the training states." + _of_first_seed(run),
        "caption",
    )
    names = list(rollout.driven_by[0]["moves"])[:MOST_STATES]
    rows = [
        [Cell(row["name"]), *(Cell(f"{row['moves'][n]:+.3g}", "number") for n in names)]
        for row in rollout.driven_by
    ]
    page.table("inputs", [Cell("input"), *map(Cell, names)], rows)


def spectrum_section(page: Page, run: RunFiles) -> None:
    """The eigenvalues of the operator, drawn and listed."""
    page.heading("Spectrum of K")
    rollout = run.rollout
    if rollout is None:
        page.paragraph("Written when the run ends.", "caption")
        return
    depth = int(run.study.get("network", {}).get("depth", 1))
    modes = modes_of(rollout.eigenvalues, rollout.dt, depth)
    steps = f"{depth} × {rollout.dt:.4g}" if depth > 1 else f"{rollout.dt:.4g}"
    page.paragraph(
        f"The operator's {counted(len(modes), 'eigenvalue')} λ; one application advances {steps} in"
        " time. Inside the unit circle a mode decays, outside it grows; its angle is its frequency."
        " Times are to 1/e or e-fold; they and the frequencies are in the sampling interval's unit."
        + _of_first_seed(run),
        "caption",
    )
    rows = [
        [
            Cell(mode.name(paired=True)),
            Cell(f"{abs(mode.eigenvalue):.4g}", "number"),
            Cell(f"{mode.frequency:.4g}", "number"),
            Cell(mode.decay(), "number"),
        ]
        for mode in [mode for mode in modes if mode.eigenvalue.imag >= 0][:LISTED_MODES]
    ]
    head = [Cell("eigenvalue λ"), Cell("|λ|"), Cell("frequency"), Cell("in time")]
    with page.beside():
        page.chart("spectrum", spectrum_figure(modes), "Eigenvalues in the complex plane")
        page.table("modes", head, rows, low=True)


def _of_first_seed(run: RunFiles) -> str:
    several = len(run.seeds) + len(run.waiting) > 1
    return f" Model of seed {run.seeds[0].seed}, the first." if several else ""
