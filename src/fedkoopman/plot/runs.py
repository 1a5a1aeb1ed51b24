"""Pictures of how a run went: errors by slot, and who trained when."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.errors import InputError, short
from fedkoopman.plot.reading import Matrix
from fedkoopman.plot.style import COLOURS, LINE, dress, new_axes, plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORDS = {
    "l1": "ℓ1, linear dynamics",
    "l2": "ℓ2, reconstruction",
    "l3": "ℓ3, prediction",
    "loss": "loss",
    "E": "E, prediction error",
    "E1": "E₁",
    "E2": "E₂",
    "horizon": "horizon, valid steps",
}
ARRIVED, DROPPED = "#bcd5ec", "#d55e00"
LOWEST = 1e-12
"""Share of the largest error below which nothing is shown."""
MOST_SLOTS = 400
"""Slots with a cell of their own; of more, consecutive ones are counted together."""


def learning_curves(
    runs: Any, metrics: str | Sequence[str] | None = None, *, ax: Any = None
) -> "Axes":
    """Errors by slot, as means over seeds with a band of one standard deviation.

    Arguments:
        runs: a run, several as a list or by label in a dict; the table of `run.to_frame()`; or
            values (slots,) or (seeds, slots).
        metrics: keys of records, as "E" or ("l1", "l2", "l3"); by default ℓ1, ℓ2, ℓ3 and E of one
            run, and E of several.
    """
    tables = _by_label(runs)
    if metrics is None:
        metrics = ("l1", "l2", "l3", "E") if len(tables) == 1 else ("E",)
    from matplotlib.ticker import MaxNLocator

    wanted = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    axes = new_axes(ax)
    curves = [
        (label, metric, *_curve(seeds, metric))
        for label, seeds in tables.items()
        for metric in (wanted if isinstance(seeds, list) else ("",))
    ]
    for (label, metric, slots, values), colour in zip(curves, _colours(len(curves)), strict=True):
        mean, low, high = mean_band(values)
        words = WORDS.get(metric, metric)
        name = ", ".join(word for word in (label, words if len(wanted) > 1 else "") if word)
        if (high > low).any():
            axes.fill_between(slots, low, high, color=colour, alpha=0.2, lw=0)
        mark = "o" if len(slots) == 1 else None
        axes.plot(slots, mean, color=colour, lw=1.4, marker=mark, label=plain_text(name) or None)
    drawn = np.concatenate([mean_band(values)[0] for *_, values in curves])
    if (drawn[np.isfinite(drawn)] > 0).all() and np.isfinite(drawn).any():
        axes.set_yscale("log")
        top = float(np.nanmax(drawn))
        axes.set_ylim(bottom=max(axes.get_ylim()[0], top * LOWEST))  # ℓ2 may be exact
    axes.set_xlabel("time slot")
    axes.set_ylabel(WORDS.get(wanted[0], wanted[0]) if len(wanted) == 1 else "errors and losses")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    dress(axes)
    if len(curves) > 1:
        axes.legend(frameon=False, fontsize=9)
    return axes


def _colours(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _by_label(given: Any) -> dict[str, Any]:
    """By label: records by seed, or an array."""
    if isinstance(given, Mapping):
        return {str(label): _records(one) for label, one in given.items()}
    if isinstance(given, list | tuple) and given and hasattr(given[0], "all_records"):
        names = [one.study.name for one in given]
        twice = len(set(names)) < len(names)
        labels = [f"{i + 1}: {name}" if twice else name for i, name in enumerate(names)]
        return {label: _records(one) for label, one in zip(labels, given, strict=True)}
    return {"": _records(given)}


def _records(given: Any) -> Any:
    """The records of every seed as a list, or an array (seeds, slots)."""
    if hasattr(given, "all_records"):
        return [mine for mine in given.all_records.values() if mine]
    if hasattr(given, "columns") and hasattr(given, "groupby"):
        if "slot" not in given.columns:
            raise InputError("the table has no column slot: give that of run.to_frame()")
        parts = [p for _, p in given.groupby("seed")] if "seed" in given.columns else [given]
        return [part.to_dict("records") for part in parts]
    if isinstance(given, list | tuple) and given and isinstance(given[0], Mapping):
        return [list(given)]
    try:
        values = np.atleast_2d(np.asarray(given, float))
    except (TypeError, ValueError) as error:
        raise InputError(f"runs is {short(given)}: give runs, records or values") from error
    if values.ndim != 2 or not values.size:
        raise InputError(f"values have shape {values.shape}: give (slots,) or (seeds, slots)")
    return values


def _curve(seeds: Any, metric: str) -> tuple[Matrix, Matrix]:
    """Slots, and values (seeds, slots): NaN where not finite, −inf where not reached yet."""
    if isinstance(seeds, np.ndarray):
        return np.arange(1, seeds.shape[1] + 1), seeds
    slots = sorted({record["slot"] for mine in seeds for record in mine})
    if not slots:
        raise InputError("the run has no finished slot yet: wait for its first")
    values = np.full((len(seeds), len(slots)), -np.inf)
    at = {slot: place for place, slot in enumerate(slots)}
    for row, mine in zip(values, seeds, strict=True):
        for record in mine:
            if metric not in record:
                known = sorted(k for k, v in record.items() if isinstance(v, int | float))
                raise InputError(f"records have no {metric!r}: give one of {', '.join(known)}")
            value = record[metric]
            row[at[record["slot"]]] = np.nan if value is None else value
    return np.array(slots), values


def mean_band(values: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """The mean over seeds, and one standard deviation to either side.

    A mean is NaN where any seed's value is, as one of the rest would hide it; of a seed that has
    not come so far (−inf) nothing is known. The band is not let fall below the lowest seed: errors
    are drawn on a logarithmic axis, where mean − std can be anywhere down to below zero.
    """
    reached = ~np.isneginf(values)
    count = reached.sum(axis=0)
    mean = np.where(reached, values, 0).sum(axis=0) / count
    squares = np.where(reached, (np.where(reached, values, 0) - mean) ** 2, 0).sum(axis=0)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    lowest = np.where(reached, values, np.inf).min(axis=0)
    return mean, np.maximum(mean - std, lowest), mean + std


def raster(run: Any, *, seed: int | None = None, names: Any = None, ax: Any = None) -> "Axes":
    """Whose observations arrived and who trained, a row per client and a column per slot.

    Of long runs consecutive slots are counted together.

    Arguments:
        run: a run, or the records of one seed.
        seed: which one; the first by default.
        names: of the clients, instead of the sites' own or their numbers.
    """
    records, known = _one_seed(run, seed)
    slots = np.array([record["slot"] for record in records])
    seen = [n for record in records for key in ("arrived", "active") for n in record.get(key, ())]
    count = max([len(known), *(n + 1 for n in seen), 1])
    grids = {key: _grid(records, key, count) for key in ("arrived", "dropped", "active")}
    labels = [plain_text(str(name), 24) for name in (names or known)]
    axes = new_axes(ax, 6.4, min(1.4 + 0.3 * count, 7.0))
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    edges = np.append(slots, slots[-1] + 1) - 0.5
    rows = np.arange(count + 1) - 0.5
    if len(slots) <= MOST_SLOTS:
        kinds = [("arrived", ARRIVED), ("dropped", DROPPED), ("active", LINE)]
        code = np.zeros((count, len(slots)))
        for number, (key, _) in enumerate(kinds, 1):
            code[grids[key] > 0] = number
        colours = ListedColormap(["#ffffff00", *(colour for _, colour in kinds)])
        lines: dict[str, Any] = {"edgecolors": "#ffffff55", "lw": 0.4} if len(slots) <= 120 else {}
        axes.pcolormesh(edges, rows, code, cmap=colours, vmin=0, vmax=3, **lines)
        words = {"arrived": "data arrived", "dropped": "dropped", "active": "trained"}
        patches = [Patch(color=c, label=words[k]) for k, c in kinds if grids[k].any()]
        place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 3}
        axes.legend(handles=patches, frameon=False, fontsize=9, borderaxespad=0.1, **place)
    else:
        width = -(-len(slots) // 150)
        first = np.arange(0, len(slots), width)
        rounds = np.add.reduceat(grids["active"], first, axis=1)
        columns = np.append(slots[first], slots[-1] + 1) - 0.5
        drawn = axes.pcolormesh(columns, rows, rounds, cmap="Blues", vmin=0)
        axes.figure.colorbar(drawn, ax=axes, label=f"trainings in {width} slots", pad=0.02)
    axes.set_xlabel("time slot")
    axes.set_ylim(count - 0.5, -0.5)
    if len(labels) == count and count <= 60:
        axes.set_yticks(range(count), labels)
    else:
        axes.set_ylabel("client")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    dress(axes)
    axes.grid(False)
    return axes


def _one_seed(run: Any, seed: int | None) -> tuple[Sequence[Mapping[str, Any]], Sequence[Any]]:
    """The records of a seed, and the names of clients."""
    if hasattr(run, "all_records"):
        chosen = run.seeds[0] if seed is None else seed
        if chosen not in run.all_records:
            raise InputError(f"seed is {seed}: the run has {', '.join(map(str, run.seeds))}")
        count = run.study.clients.count
        found = run.all_records[chosen], run.sites or [f"client {n}" for n in range(count)]
    else:
        found = run, []
    records = found[0]
    if not isinstance(records, Sequence) or not records or not isinstance(records[0], Mapping):
        raise InputError(f"run has no records ({short(records)}): give a run with finished slots")
    return found


def _grid(records: Sequence[Mapping[str, Any]], key: str, count: int) -> Matrix:
    """(clients, slots): 1 where a client is in a slot's list."""
    grid = np.zeros((count, len(records)))
    for column, record in enumerate(records):
        grid[[int(n) for n in record.get(key) or ()], column] = 1
    return grid
