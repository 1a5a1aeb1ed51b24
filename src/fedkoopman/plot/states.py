"""Pictures of states: over time with bands, ahead of time, and against each other."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.plot.reading import Matrix, chosen, model_of, paths_of, state_names, words_of
from fedkoopman.plot.style import (
    AXIS,
    BAND,
    COLOURS,
    DOTS,
    LINE,
    dress,
    labelled,
    new_axes,
    panels,
    plain_text,
    result,
)
from fedkoopman.plot.style import time_unit as unit_of_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 4000
"""Samples drawn one by one; a longer trajectory is drawn as the envelope of its bins."""
SHOWN_PAST = 2.0
"""How much of the past is drawn, in lengths of the forecast."""
MOST_PATHS = 50
"""Trajectories in a phase plane; of more, every so many are drawn."""


def estimates(
    found: Any,
    *,
    truth: Any = None,
    observed: Any = None,
    states: Any = None,
    trajectory: int = 0,
    dt: float | None = None,
    time_unit: str | None = None,
    ax: Any = None,
) -> Any:
    """Estimated states with their ±2σ band, a panel per state.

    Arguments:
        found: what `fk.estimate` gave.
        truth: the true states (T, d), for comparison.
        observed: observations of the states themselves (T, d), NaN where there are none.
        states: which ones, by index or name; all by default.
        trajectory: which one of a batch.
        dt: the sampling interval, instead of the system's.
        time_unit: at the time axis; by default that of the states' rates, as s of rad/s.
        ax: axes for each state, or one for all.
    """
    if not hasattr(found, "mean") or not hasattr(found, "std"):
        raise InputError("found is no result of fk.estimate: give what it returned")
    mean, std = _one(found.mean, trajectory), _one(found.std, trajectory)
    dim = mean.shape[1]
    names = state_names(getattr(found, "names", None), dim)
    units = getattr(found, "units", ()) or ("",) * dim
    places = chosen(states, dim, names)
    time = np.arange(1, len(mean) + 1) * (getattr(found, "dt", 1.0) if dt is None else dt)
    axes = panels(ax, len(places))
    shared = len(set(map(id, axes))) == 1 and len(places) > 1
    for place, (i, panel) in enumerate(zip(places, axes, strict=True)):
        colour = COLOURS[place % len(COLOURS) if shared else 0]
        if observed is not None:
            dots(panel, time, _same(observed, mean, "observed")[:, i], 3)
        label = names[i] if shared else "estimate"
        within = None if shared else "±2σ"
        band(panel, time, mean[:, i], std[:, i], colour, colour, label, within)
        if truth is not None:
            true = _same(truth, mean, "truth")[:, i]
            look: dict[str, Any] = {"label": None if shared and place else "truth"}
            panel.plot(time, true, "--", color=DOTS, lw=1.2, zorder=2.6, **look)
        panel.set_ylabel("states" if shared else labelled(names[i], units[i]))
        dress(panel)
    return _finished(axes, labelled("time", unit_of_time(time_unit, units)))


def forecast(
    model: Any,
    X: Any = None,
    n_steps: int = 50,
    *,
    truth: Any = None,
    states: Any = None,
    trajectory: int = 0,
    time_unit: str | None = None,
    ax: Any = None,
    **options: Any,
) -> Any:
    """What comes next with its ±2σ band, after the last of what was, a panel per state.

    Arguments:
        model: a fitted model or a run, with X; or a forecast that a model made.
        X: trajectories of states, as for `model.forecast`; beside a forecast only drawn.
        n_steps: how many applications of K.
        truth: the states that came, (H, d), the first one step after the last of X.
        states: which ones, by index or name; all by default.
        trajectory: which one, where there are several.
        time_unit: at the time axis; by default that of the states' rates, as s of rad/s.
        ax: axes for each state, or one for all.
        options: of `model.forecast`, as `std`, `relift`, `U`.
    """
    found = model_of(model)
    if found is not None:
        if X is None:
            raise InputError("X is missing: give the states after which to forecast")
        ahead = found.forecast(X, n_steps, **options)
    else:
        ahead = model
        if not (hasattr(ahead, "time") and hasattr(ahead, "cov")):
            raise InputError("model is no model, run or forecast: give one of them")
    mean, std = _one(ahead.mean, trajectory), _one(ahead.std, trajectory)
    dim, time = mean.shape[1], np.asarray(ahead.time, float)
    past = None if X is None else paths_of(X)
    before = None if past is None else past.parts[min(trajectory, len(past.parts) - 1)]
    names = state_names(ahead.names or (past.names if past else None), dim)
    units = tuple(ahead.units or ("",) * dim)
    if found is not None:
        names, units = words_of(found)
    step = found.dt_ if found is not None else time[0]
    places = chosen(states, dim, names)
    axes = panels(ax, len(places))
    shared = len(set(map(id, axes))) == 1 and len(places) > 1
    for place, (i, panel) in enumerate(zip(places, axes, strict=True)):
        colour, line = COLOURS[:2]
        if shared:
            line = colour = COLOURS[place % len(COLOURS)]
        if before is not None:
            shown = before[-max(2, int(SHOWN_PAST * time[-1] / step)) :]
            since = (np.arange(len(shown)) - len(shown) + 1) * step
            panel.plot(since, shown[:, i], color=colour, lw=1.3, label=None if shared else "so far")
        label, within = (names[i], None) if shared else ("forecast", "±2σ")
        band(panel, time, mean[:, i], std[:, i], line, line, label, within)
        if truth is not None:
            true = paths_of(truth, "truth").parts[0]
            at = (1 + np.arange(len(true))) * step
            look: dict[str, Any] = {"label": None if shared and place else "what came"}
            panel.plot(at, true[:, i], "--", color=DOTS, lw=1.2, zorder=2.6, **look)
        panel.axvline(0, color=AXIS, lw=0.8, zorder=0)
        panel.set_ylabel("states" if shared else labelled(names[i], units[i]))
        dress(panel)
    return _finished(axes, labelled("time from the last sample", unit_of_time(time_unit, units)))


def phase_plane(
    X: Any,
    *,
    states: Any = (0, 1),
    model: Any = None,
    n_steps: int | None = None,
    names: Any = None,
    ax: Any = None,
) -> "Axes":
    """One state against another, a line per trajectory; a dot is where it starts.

    Arguments:
        X: states (T, d), (B, T, d), a list of such, a DataFrame, or estimates.
        states: the two, by index or name.
        model: a fitted model or a run, whose simulations from the same starts are drawn dashed.
        n_steps: of these; by default as long as the trajectories.
        names: of the states, where X has none.
    """
    paths, found = paths_of(X), model_of(model)
    dim, units = paths.parts[0].shape[1], getattr(X, "units", ())
    known = names or paths.names
    if found is not None:
        known, units = names or words_of(found)[0], words_of(found)[1]
    known = state_names(known or None, dim)
    places = chosen(states, dim, known)
    if len(places) != 2:
        raise InputError(f"states names {len(places)} states: a plane has two, as (0, 1)")
    i, j = places
    axes = new_axes(ax, 4.8, 4.4)
    drawn = paths.parts[:: -(-len(paths.parts) // MOST_PATHS)]
    alpha = 1.0 if len(drawn) < 5 else 0.5
    for k, part in enumerate(drawn):
        name = "states" if k == 0 and found is not None else None
        axes.plot(part[:, i], part[:, j], color=COLOURS[0], lw=1.1, alpha=alpha, label=name)
        axes.plot(part[:1, i], part[:1, j], "o", color=COLOURS[0], ms=4, mew=0)
        if found is not None:
            window = found.architecture_.window
            start = part[:window] if window > 1 else part[0]
            steps = n_steps or max(1, (len(part) - window) // found.architecture_.depth)
            ahead = np.vstack([part[window - 1][None], found.simulate(start, steps)])
            name = "model" if k == 0 else None
            axes.plot(
                ahead[:, i], ahead[:, j], "--", color=COLOURS[1], lw=1.1, alpha=alpha, label=name
            )
    axes.set_xlabel(labelled(known[i], units[i] if units else ""))
    axes.set_ylabel(labelled(known[j], units[j] if units else ""))
    dress(axes)
    axes.margins(0.05)
    if found is not None:
        axes.legend(frameon=False, fontsize=9)
    return axes


def band(
    axes: "Axes",
    time: Matrix,
    mean: Matrix,
    std: Matrix,
    line: str = LINE,
    fill: str = BAND,
    label: str = "estimate",
    within: str | None = "±2σ",
) -> None:
    """A line with its ±2σ band; a long one as the envelope of its bins.

    Arguments:
        label, within: of the line and of its band, in the legend.
    """
    alpha = 0.55 if fill != line else 0.25
    label = plain_text(label)
    look: dict[str, Any] = {"color": fill, "alpha": alpha, "lw": 0}
    bins = _bins(len(time))
    spread = bool(np.nanmax(std, initial=0) > 0)
    if bins is None:
        if spread:
            axes.fill_between(time, mean - 2 * std, mean + 2 * std, label=within, **look)
        axes.plot(time, mean, color=line, lw=1.3, label=label)
        return
    low, high = np.fmin.reduceat(mean - 2 * std, bins), np.fmax.reduceat(mean + 2 * std, bins)
    if spread:
        axes.fill_between(time[bins], low, high, label=within, **look)
    # lowest and highest value of each bin in turn: what a line through every sample would cover
    extremes = np.column_stack([np.fmin.reduceat(mean, bins), np.fmax.reduceat(mean, bins)])
    axes.plot(np.repeat(time[bins], 2), extremes.ravel(), color=line, lw=0.8, label=label)


def dots(axes: "Axes", time: Matrix, values: Matrix, size: float, order: float = 1.5) -> None:
    """Observations, where there are any; of many, every so many."""
    seen = np.flatnonzero(np.isfinite(values))
    seen = seen[:: max(1, -(-len(seen) // MOST_POINTS))]
    if len(seen):
        look: dict[str, Any] = {"ms": size, "mew": 0, "alpha": 0.8, "zorder": order}
        axes.plot(time[seen], values[seen], ".", color=DOTS, label="observed", **look)


def _bins(samples: int) -> Any:
    """First index of each bin of a trajectory too long to draw sample by sample."""
    if samples <= MOST_POINTS:
        return None
    return np.linspace(0, samples, MOST_POINTS // 2, endpoint=False).astype(int)


def _one(values: Any, trajectory: int) -> Matrix:
    """One trajectory of an array or a list of several."""
    if isinstance(values, list) or np.ndim(values) == 3:
        if not -len(values) <= trajectory < len(values):
            raise InputError(f"trajectory is {trajectory}: there are {len(values)}, counted from 0")
        return np.asarray(values[trajectory], float)
    return np.asarray(values, float)


def _same(given: Any, mean: Matrix, title: str) -> Matrix:
    """States beside estimates, row by row; one row more begins with the state at time 0."""
    part = paths_of(given, title).parts[0]
    part = part[1:] if len(part) == len(mean) + 1 else part
    if part.shape != mean.shape:
        raise InputError(f"{title} has shape {part.shape} and the estimates {mean.shape}")
    return part


def _finished(axes: list["Axes"], time: str) -> Any:
    """The axes with the time below the last and a legend over the first."""
    axes[-1].set_xlabel(time)
    handles, labels = axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    if by_label:
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
        look: dict[str, Any] = {"frameon": False, "fontsize": 9, "markerscale": 2}
        place |= {"ncols": min(4, len(by_label)), "borderaxespad": 0.1}
        axes[0].legend(list(by_label.values()), list(by_label), **place, **look)
    return result(axes)
