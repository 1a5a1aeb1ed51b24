"""States in files, as tables and pictures; a model's forecast and spectrum as pictures."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.data.observations import SiteStates

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PLOTS = (".png", ".svg", ".pdf")
MOST_COLUMNS = 4
"""Trajectories drawn side by side; more would leave no room to read them."""

MOST_POINTS = 4000
"""Samples drawn one by one; a longer trajectory is drawn as the envelope of its bins."""

LINE, BAND, DOTS, TEXT = "#1f4e79", "#8fb8de", "#7b8087", "#3c4043"


def plot_states(path: Path, states: SiteStates) -> None:
    """Draw one panel per state: the mean, its ±2σ band, and the observations of that state.

    Of many trajectories the first few are drawn, side by side.
    """
    figure, grid = _panels(states, 1.0)
    stds = states.stds
    for column in range(grid.shape[1]):
        time = states.times[column]
        for i, axes in enumerate(grid[:, column]):
            observed = states.observed[column][:, i]
            seen = np.flatnonzero(np.isfinite(observed))
            seen = seen[:: max(1, -(-len(seen) // MOST_POINTS))]
            _draw_dots(axes, time[seen], observed[seen], 4, 1.5)
            _draw_band(axes, time, states.means[column][:, i], stds[column][:, i])
            dress(axes)
        if states.labels is not None:
            grid[0, column].set_title(f"segment {states.labels[column]}", color=TEXT, size=10)
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
        axes.set_ylabel(f"{name} [{unit}]" if unit not in ("", "1") else name, color=TEXT)
    for axes in grid[-1]:
        axes.set_xlabel("time", color=TEXT)
    count, shown = len(states.means), grid.shape[1]
    if count > shown:
        figure.suptitle(f"the first {shown} of {count} trajectories", color=TEXT, size=10)
    entries: dict[str, Artist] = {}
    for axes in grid.flat:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    place: dict[str, Any] = {"loc": "outside upper right", "ncols": max(len(entries), 1)}
    look: dict[str, Any] = {"frameon": False, "labelcolor": TEXT, "markerscale": 2}
    figure.legend(list(entries.values()), list(entries), **place, **look)


def _draw_band(axes: "Axes", time: np.ndarray, mean: np.ndarray, std: np.ndarray) -> None:
    bins = _bins(len(time))
    if bins is None:
        _fill(axes, time, mean - 2 * std, mean + 2 * std, BAND, "±2σ")
        axes.plot(time, mean, color=LINE, lw=1.3, label="estimate")
        return
    low, high = np.fmin.reduceat(mean - 2 * std, bins), np.fmax.reduceat(mean + 2 * std, bins)
    _fill(axes, time[bins], low, high, BAND, "±2σ")
    # lowest and highest value of each bin in turn: what a line through every sample would cover
    extremes = np.column_stack([np.fmin.reduceat(mean, bins), np.fmax.reduceat(mean, bins)])
    axes.plot(np.repeat(time[bins], 2), extremes.ravel(), color=LINE, lw=0.8, label="estimate")


def _fill(
    axes: "Axes", time: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, label: str
) -> None:
    axes.fill_between(time, low, high, color=colour, alpha=0.55, lw=0, label=label)


def _draw_dots(
    axes: "Axes", time: np.ndarray, values: np.ndarray, size: float, order: float
) -> None:
    if np.isfinite(values).any():
        look: dict[str, Any] = {"ms": size, "mew": 0, "alpha": 0.8, "zorder": order}
        axes.plot(time, values, ".", color=DOTS, label="observed", **look)


def _bins(samples: int) -> np.ndarray | None:
    """First index of each bin of a trajectory too long to draw sample by sample."""
    if samples <= MOST_POINTS:
        return None
    return np.linspace(0, samples, MOST_POINTS // 2, endpoint=False).astype(int)


def dress(axes: "Axes") -> None:
    """The look of every panel."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#c4c7cb")
    axes.grid(color="#eceff1", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=TEXT, labelsize=9)
    axes.margins(x=0.01)


AHEAD, AHEAD_BAND, GROWING = "#b5541c", "#f0b98d", "#b5541c"
SHOWN_PAST = 2.0
"""How much of the past is drawn, in lengths of the forecast."""


def plot_forecast(path: Path, past: SiteStates, future: SiteStates) -> None:
    """Draw one panel per state: the last of the past, then the forecast with its ±2σ band."""
    figure, grid = _panels(past, 1.2)
    past_std, future_std = past.stds, future.stds
    for column in range(grid.shape[1]):
        t, ahead = past.times[column], future.times[column]
        recent = t >= t[-1] - SHOWN_PAST * (ahead[-1] - t[-1])
        for i, axes in enumerate(grid[:, column]):
            before, spread = past.means[column][recent, i], past_std[column][recent, i]
            _draw_dots(axes, t[recent], past.observed[column][recent, i], 3, 1)
            for time, mean, std, line, band, label in (
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
                if std.max() > 0:
                    _fill(axes, time, mean - 2 * std, mean + 2 * std, band, f"{label} ±2σ")
                axes.plot(time, mean, color=line, lw=1.3, label=label)
            axes.axvline(t[-1], color="#c4c7cb", lw=0.8, zorder=0)
            dress(axes)
        if past.labels is not None and len(past.means) > 1:
            grid[0, column].set_title(f"segment {past.labels[column]}", color=TEXT, size=10)
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
    turn = np.linspace(0, 2 * np.pi, 181)
    plane.plot(np.cos(turn), np.sin(turn), ":", color=DOTS, lw=1, label="unit circle")
    values = np.array([complex(*row["eigenvalue"]) for row in rows])
    for kind, colour, marker, chosen in (
        ("fades", LINE, "o", np.abs(values) <= 1),
        ("grows", GROWING, "D", np.abs(values) > 1),
    ):
        if chosen.any():
            mine = values[chosen]
            both = np.concatenate([mine, mine[mine.imag > 0].conj()])
            plane.plot(both.real, both.imag, marker, color=colour, ms=6, alpha=0.8, label=kind)
    reach = 1.1 * max(1.0, float(np.abs(values).max()))
    plane.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    plane.set_xlabel("real part", color=TEXT)
    plane.set_ylabel("imaginary part", color=TEXT)
    plane.set_title("eigenvalues of K", color=TEXT, size=10)
    plane.locator_params(nbins=6)
    dress(plane)
    figure.legend(loc="outside lower left", ncols=3, frameon=False, labelcolor=TEXT, fontsize=9)
    shares = np.array([[row["mode"][name] for name in names] for row in rows])
    table.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    table.set_xticks(range(len(names)), names, color=TEXT)
    table.set_yticks(range(len(rows)), [_title(row) for row in rows], color=TEXT, size=8)
    table.yaxis.tick_right()
    table.tick_params(length=0)
    for spine in table.spines.values():
        spine.set_visible(False)
    table.set_title("how far states move with each mode", color=TEXT, size=10)
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
