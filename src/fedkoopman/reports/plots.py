"""States in files, as tables and pictures; a model's forecast and spectrum as pictures."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.data.observations import SiteStates
from fedkoopman.plot.models import heat, spectrum
from fedkoopman.plot.states import MOST_POINTS, SHOWN_PAST, band, dots
from fedkoopman.plot.style import (
    AHEAD,
    AHEAD_BAND,
    AXIS,
    BAND,
    LINE,
    TEXT,
    dress,
    labelled,
    time_unit,
)

__all__ = [
    "BAND",
    "LINE",
    "MOST_POINTS",
    "TEXT",
    "columns",
    "dress",
    "plot_forecast",
    "plot_spectrum",
    "plot_states",
    "write_states",
]

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

PLOTS = (".png", ".svg", ".pdf")
MOST_COLUMNS = 4
"""Trajectories drawn side by side; more would leave no room to read them."""


def plot_states(path: Path, states: SiteStates) -> None:
    """Draw one panel per state: the mean, its ±2σ band, and the observations of that state.

    Of many trajectories the first few are drawn, side by side.
    """
    figure, grid = _panels(states, 1.0)
    stds = states.stds
    for column in range(grid.shape[1]):
        time = states.times[column]
        for i, axes in enumerate(grid[:, column]):
            dots(axes, time, states.observed[column][:, i], 4)
            band(axes, time, states.means[column][:, i], stds[column][:, i])
            dress(axes)
        if states.labels is not None:
            grid[0, column].set_title(f"segment {states.labels[column]}", size=10)
    _label_panels(figure, grid, states)
    figure.savefig(path, dpi=150)


def _panels(states: SiteStates, room: float) -> tuple["Figure", np.ndarray]:
    """A grid of axes with a row per state and a column per trajectory."""
    from matplotlib.figure import Figure

    d, shown = len(states.names), min(len(states.means), MOST_COLUMNS)
    figure = Figure(figsize=(max(8.0, 4.2 * shown), room + 1.8 * d), layout="constrained")
    return figure, figure.subplots(d, shown, sharex="col", sharey="row", squeeze=False)


def _label_panels(figure: "Figure", grid: np.ndarray, states: SiteStates) -> None:
    """Name the states beside their rows and the time below, and put one legend over all panels."""
    for axes, name, unit in zip(grid[:, 0], states.names, states.units, strict=True):
        axes.set_ylabel(labelled(name, unit))
    for axes in grid[-1]:
        axes.set_xlabel(labelled("time", time_unit(None, states.units)))
    count, shown = len(states.means), grid.shape[1]
    if count > shown:
        figure.suptitle(f"the first {shown} of {count} trajectories", size=10)
    entries: dict[str, Artist] = {}
    for axes in grid.flat:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    place: dict[str, Any] = {"loc": "outside upper right", "ncols": max(len(entries), 1)}
    look: dict[str, Any] = {"frameon": False, "markerscale": 2}
    figure.legend(list(entries.values()), list(entries), **place, **look)


def plot_forecast(path: Path, past: SiteStates, future: SiteStates) -> None:
    """Draw one panel per state: the last of the past, then the forecast with its ±2σ band."""
    figure, grid = _panels(past, 1.2)
    past_std, future_std = past.stds, future.stds
    for column in range(grid.shape[1]):
        t, ahead = past.times[column], future.times[column]
        recent = t >= t[-1] - SHOWN_PAST * (ahead[-1] - t[-1])
        for i, axes in enumerate(grid[:, column]):
            before, spread = past.means[column][recent, i], past_std[column][recent, i]
            dots(axes, t[recent], past.observed[column][recent, i], 3, 1)
            for time, mean, std, line, fill, label in (
                (t[recent], before, spread, LINE, BAND, "so far"),
                (
                    np.concatenate([t[-1:], ahead]),
                    np.concatenate([before[-1:], future.means[column][:, i]]),
                    np.concatenate([past_std[column][-1:, i], future_std[column][:, i]]),
                    AHEAD,
                    AHEAD_BAND,
                    "forecast",
                ),
            ):
                band(axes, time, mean, std, line, fill, label, f"{label} ±2σ")
            axes.axvline(t[-1], color=AXIS, lw=0.8, zorder=0)
            dress(axes)
        if past.labels is not None and len(past.means) > 1:
            grid[0, column].set_title(f"segment {past.labels[column]}", size=10)
    _label_panels(figure, grid, past)
    figure.savefig(path, dpi=150)


def plot_spectrum(path: Path, rows: list[dict[str, Any]]) -> None:
    """Draw the eigenvalues of K with the unit circle, and how far each state moves with each mode.

    The rows are the spectrum, as `fedkoopman.koopman.card` gives them.
    """
    from matplotlib.figure import Figure

    names = list(rows[0]["mode"])
    height = max(4.4, 1.4 + 0.26 * len(rows))
    figure = Figure(figsize=(10.0, height), layout="constrained")
    plane, table = figure.subplots(1, 2, width_ratios=[1.1, 1])
    values = np.array([complex(*row["eigenvalue"]) for row in rows])
    spectrum(np.concatenate([values, values[values.imag > 0].conj()]), ax=plane)
    figure.legend(loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    shares = np.array([[row["mode"][name] for name in names] for row in rows])
    heat(shares, names, [_title(row) for row in rows], table)
    figure.savefig(path, dpi=150)


def _title(row: dict[str, Any]) -> str:
    from fedkoopman.koopman.pace import pace

    turning = f"{row['frequency']:.3g} per unit of time, " if row["frequency"] else ""
    return f"{turning}{pace(row)}"


TABLES = (".csv", ".parquet", ".npz")


def columns(states: SiteStates) -> dict[str, np.ndarray]:
    """The table: [segment,] step, time, the states, and their standard deviations."""
    lengths = [len(t) for t in states.times]
    table: dict[str, np.ndarray] = {}
    if states.labels is not None:
        table["segment"] = np.repeat(np.array(states.labels), lengths)
    table["step"] = np.concatenate([np.arange(1, n + 1) for n in lengths])
    table["time"] = np.concatenate(states.times)
    mean, std = np.concatenate(states.means), np.concatenate(states.stds)
    table |= {name: mean[:, i] for i, name in enumerate(states.names)}
    table |= {f"{name}_std": std[:, i] for i, name in enumerate(states.names)}
    return table


def write_states(path: Path, states: SiteStates) -> int:
    """Write the table in the format of the path's suffix and return its number of rows.

    CSV and Parquet leave the cells of a trajectory that could not be estimated blank. NPZ holds one
    array per column and `cov` (rows, d, d), the whole covariances.
    """
    table = columns(states)
    if path.suffix.lower() == ".npz":
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, cov=np.concatenate(states.covs), **table)
    else:
        _write_arrow(path, table)
    return len(table["step"])


def _write_arrow(path: Path, table: dict[str, np.ndarray]) -> None:
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pa_parquet

    # from_pandas turns NaN into null, which a CSV file shows as a blank cell
    arrow = pa.table({name: pa.array(values, from_pandas=True) for name, values in table.items()})
    if path.suffix.lower() == ".parquet":
        pa_parquet.write_table(arrow, path)
        return
    # Arrow quotes every name of a header and every text, or none: the csv module writes the header,
    # and texts are quoted only where one of them needs it
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(arrow.column_names)
    plain = not any(c in label for label in set(table.get("segment", [])) for c in ',"\r\n')
    options = pa_csv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed")
    with path.open("wb") as file:
        file.write(header.getvalue().encode())
        pa_csv.write_csv(arrow, file, options)
