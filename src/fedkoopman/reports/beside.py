"""The part of a run's report that shows another run beside it: numbers, and a forecast of both."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from fedkoopman.reports.figures import GREEN, GREY, RED, dress, plain
from fedkoopman.reports.page import Cell, Page
from fedkoopman.reports.plots import MOST_POINTS
from fedkoopman.reports.run_files import Rollout, RunFiles, tail_spread
from fedkoopman.reports.run_model import label, range_around, until_lost
from fedkoopman.reports.tables import spread_text

ROWS = {
    "l3": ("ℓ3", "mean square error of the next state"),
    "E1": ("E₁", "the same, mean over several steps ahead, lifted once"),
    "horizon": ("horizon", "steps for which a forecast that is lifted once stays valid"),
}
MOST_STATES = 6
"""States with a panel of their own."""


def beside_section(page: Page, run: RunFiles, other: RunFiles) -> None:
    """Add a table of both runs' scores, and forecasts of both where the truth is the same."""
    if run.summary is None or other.summary is None:
        page.paragraph("The other run is shown beside this one when both are finished.", "notice")
        return
    names = [str(one.study.get("name", "unnamed")) for one in (run, other)]
    page.heading(f"{names[0]} beside {names[1]}")
    page.paragraph(_sentence(run, other, names), "caption")
    head = [Cell(""), *(Cell(name) for name in names), Cell("", "meaning")]
    rows = [
        [
            Cell(symbol),
            *(
                Cell(spread_text(tail_spread(one, metric), len(one.seeds) > 1), "number strong")
                for one in (run, other)
            ),
            Cell(meaning, "meaning"),
        ]
        for metric, (symbol, meaning) in ROWS.items()
    ]
    page.table("beside", head, rows)
    ours, theirs = run.rollout, other.rollout
    if ours is None or theirs is None or not len(ours.truth):
        return
    if ours.truth.shape != theirs.truth.shape or not np.array_equal(ours.truth, theirs.truth):
        return
    page.paragraph(
        "A held-out trajectory, and both models' forecasts of it from its first state alone.",
        "caption",
    )
    page.chart("beside-forecast", _figure(ours, theirs, names), "Forecasts of both")


def _sentence(run: RunFiles, other: RunFiles, names: list[str]) -> str:
    """How much better the next steps are, in words."""
    ours, theirs = run.rollout, other.rollout
    if ours is not None and theirs is not None and ours.names != theirs.names:
        first, second = (", ".join(one.names[:MOST_STATES]) for one in (ours, theirs))
        return (
            f"Means over the last slots of each run. {names[0]} predicts {first} and {names[1]} "
            f"{second}: errors of different quantities say nothing about which is better."
        )
    mine, its = (tail_spread(one, "E1")["mean"] for one in (run, other))
    text = "Means over the last slots of each run, on the same kind of held-out data."
    if mine and its:
        ratio = np.sqrt(max(mine, its) / min(mine, its))
        better, worse = (names[0], names[1]) if mine <= its else (names[1], names[0])
        text += (
            f" Over the next steps the states that {better} predicts are {ratio:.3g} times closer "
            f"to the truth than those of {worse}."
        )
    return text


def _figure(ours: Rollout, theirs: Rollout, names: list[str]) -> go.Figure:
    dims = min(ours.truth.shape[1], MOST_STATES)
    figure = make_subplots(rows=dims, cols=1, shared_xaxes=True, vertical_spacing=0.3 / (3 + dims))
    dress(figure, 110 + 120 * dims, hovermode="x unified")
    time = np.arange(len(ours.truth)) * ours.dt
    every = -(-len(time) // MOST_POINTS)
    lines = [("truth", {"color": GREY, "width": 4, "dash": "solid"}, ours.truth)]
    for one, name, colour, dash in (
        (theirs, names[1], RED, "dot"),
        (ours, names[0], GREEN, "solid"),
    ):
        ahead = one.free if one.relifted is None else one.relifted
        known = np.concatenate([one.truth[:1], until_lost(one.truth, ahead)])
        lines.append((name, {"color": colour, "width": 1.6, "dash": dash}, known))
    for i in range(dims):
        for name, line, states in lines:
            reached = np.isfinite(states).all(axis=1)
            figure.add_scatter(
                x=plain(time[reached][::every]), y=plain(states[reached, i][::every]), name=name,
                legendgroup=name, line=line, mode="lines", hovertemplate="%{y:.4g}",
                showlegend=i == 0, row=i + 1, col=1,
            )  # fmt: skip
        title = label(ours.names[i], ours.units[i])
        axis = range_around(ours.truth[:, i], ours.truth[:, i])
        figure.update_yaxes(title=title, row=i + 1, col=1, range=axis)
    figure.update_xaxes(title="time", row=dims, col=1)
    return figure
