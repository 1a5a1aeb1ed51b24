"""Forecasts beside the truth: so many steps ahead, from one state on, and over all horizons."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from fedkoopman.reports.blocks import (
    MOST_POINTS,
    Block,
    Section,
    chart,
    frame,
    line,
    panel,
    section,
    text,
)
from fedkoopman.reports.learning import COLOURS
from fedkoopman.reports.quality import scale_free
from fedkoopman.reports.run_files import Rollout, RunFiles
from fedkoopman.reports.wording import counted, labelled, number

__all__ = ["accuracy_section", "forecast_section"]

MOST_STATES = 6
"""States with a panel of their own."""


def forecast_section(runs: Mapping[str, RunFiles]) -> Section:
    """A held-out trajectory, and what was forecast of it."""
    run = next(iter(runs.values()))
    rollout = run.rollout
    if rollout is None:
        words = "Written when the run ends."
    elif not len(rollout.truth):
        words = "Held-out states stay at their sites; what they say is told above."
    else:
        many = rollout.truth.shape[1]
        words = "A held-out trajectory, which nobody trained on." + _of_first_seed(run)
        if many > MOST_STATES:
            words += f" The first {MOST_STATES} of {many} states."
    found = [text(words, "caption")]
    if rollout is not None and len(rollout.truth):
        alike = {n: one for n, one in runs.items() if _same_truth(rollout, one.rollout)}
        found += [one for one in (_ahead(alike), *_from_one(alike)) if one is not None]
        if others := [name for name in runs if name not in alike]:
            found.append(
                text(f"Of other trajectories, and not drawn: {', '.join(others)}.", "caption")
            )
    return section("forecast", "Forecast against truth", *found)


def _same_truth(mine: Rollout, other: Rollout | None) -> bool:
    return other is not None and np.array_equal(mine.truth, other.truth, equal_nan=True)


def _of_first_seed(run: RunFiles) -> str:
    several = len(run.seeds) + len(run.waiting) > 1
    return f" Model of seed {run.seeds[0].seed}, the first." if several else ""


def _ahead(runs: Mapping[str, RunFiles]) -> Block | None:
    """Each sample as it was forecast so many steps before."""
    run = next(iter(runs.values()))
    shown = run.evidence.get("shown")
    if not shown or not shown.get("forecasts"):
        return None
    truth = _matrix(shown["truth"])
    d, dt, depth = truth.shape[1], run.evidence["dt"], run.evidence["depth"]
    names, units = run.evidence["names"], run.evidence["units"] or [""] * d
    frames = []
    for place, lead in enumerate(shown["leads"]):
        lines = []
        held = np.full_like(truth, np.nan)
        held[lead * depth :] = truth[: -lead * depth]
        where = run.evidence["leads"].index(lead)
        for i in range(d):
            std = run.evidence["std"][where][i]
            lines.append(line("holding the last value", (0, dt), held[:, i], "held", panel=i,
                              dash="1 4", unit=units[i]))  # fmt: skip
            if "edmd" in shown["forecasts"]:
                lines.append(
                    line(
                        _edmd(run), (0, dt), _matrix(shown["forecasts"]["edmd"][place])[:, i], "d",
                        panel=i, dash="5 3", unit=units[i],
                    )
                )  # fmt: skip
            for (name, one), colour in zip(runs.items(), COLOURS, strict=False):
                own = (one.evidence.get("shown") or {}).get("forecasts")
                if not own or lead not in one.evidence["shown"]["leads"]:
                    continue
                y = _matrix(own["model"][one.evidence["shown"]["leads"].index(lead)])[:, i]
                first = one is run
                lines.append(
                    line(
                        name if len(runs) > 1 else "model", (0, dt), y, colour, panel=i,
                        spread=None if std is None or not first else 2 * std,
                        dash="" if first else "7 3", unit=units[i],
                    )
                )  # fmt: skip
        time = number(lead * depth * dt)
        frames.append(
            frame(f"{counted(lead, 'step')} ({time} time units)", _ahead_note(run, where), lines)
        )
    commons = [
        line("truth", (0, dt), truth[:, i], "truth", panel=i, unit=units[i]) for i in range(d)
    ]
    wanted = int(run.study.get("evaluation", {}).get("horizon", 5))
    start = min(range(len(shown["leads"])), key=lambda i: abs(shown["leads"][i] - wanted))
    return chart(
        "ahead", "So many steps ahead",
        "Each sample of a held-out trajectory, as the model forecast it so many steps before, with "
        "a band of two standard deviations.",
        [panel("time", labelled(names[i], units[i]), yrange=_around(truth[:, i]))
         for i in range(d)],
        commons, frames=frames, control="slider: steps ahead", start=start,
        height=150 if d > 1 else 240,
    )  # fmt: skip


def _ahead_note(run: RunFiles, place: int) -> str:
    words = []
    names = {"model": "the model", "edmd": _edmd(run), "holding": "holding the last value"}
    for key, name in names.items():
        if key in run.evidence["errors"]:
            wrong = _share(run, key, place)
            told = "not finite" if wrong is None else f"{number(100 * wrong, 2)} %"
            words.append(f"{name} {told}")
    return f"Off by, in units of the states' spread, over all held-out data: {', '.join(words)}."


def _share(run: RunFiles, key: str, place: int) -> float | None:
    errors = np.array(run.evidence["errors"][key][place], dtype=float)
    return scale_free(run, errors) if np.isfinite(errors).all() else None


def _edmd(run: RunFiles) -> str:
    return f"EDMD of degree {run.evidence.get('edmd', {}).get('degree', 3)}"


def _from_one(runs: Mapping[str, RunFiles]) -> list[Block]:
    """One forecast from the first state on, over time and as projections of the state space."""
    run = next(iter(runs.values()))
    rollout = run.rollout
    assert rollout is not None
    d = min(rollout.truth.shape[1], MOST_STATES)
    every = -(-len(rollout.truth) // MOST_POINTS)
    time = np.arange(len(rollout.truth)) * rollout.dt
    ways = _ways(runs)
    lines = [
        line("truth", (0, rollout.dt * every), rollout.truth[::every, i], "truth", panel=i,
             unit=_unit(rollout, i))
        for i in range(d)
    ]  # fmt: skip
    std = _std_over_time(run, len(time), d)
    for name, colour, dash, states, own in ways:
        reached = np.isfinite(states).all(axis=1)
        for i in range(d):
            band = {}
            if own and std is not None:
                wide = 2 * std[reached, i]
                band = {"low": states[reached, i] - wide, "high": states[reached, i] + wide}
                band = {n: values[::every] for n, values in band.items()}
            lines.append(
                line(name, time[reached][::every], states[reached, i][::every], colour, panel=i,
                     dash=dash, unit=_unit(rollout, i), **band)
            )  # fmt: skip
    panels = [
        panel("time", labelled(rollout.names[i], rollout.units[i]),
              yrange=_around(rollout.truth[:, i]))
        for i in range(d)
    ]  # fmt: skip
    found = [
        chart(
            "states", "One forecast, from the first state on",
            "A held-out trajectory and forecasts of it from its first state alone. A forecast that "
            "runs far from the truth leaves the picture.",
            panels, lines, height=150 if d > 1 else 240,
        )
    ]  # fmt: skip
    if d > 1:
        found.append(_projections(rollout, ways, d, every))
    if rollout.inputs is not None:
        found.append(_inputs(rollout, every))
    return found


def _unit(rollout: Rollout, i: int) -> str:
    return "" if rollout.units[i] == "1" else rollout.units[i]


Way = tuple[str, str, str, np.ndarray, bool]
"""Name, colour, dash, states from the first on, and whether it is the first run's own way."""


def _ways(runs: Mapping[str, RunFiles]) -> list[Way]:
    found: list[Way] = []
    for place, (name, run) in enumerate(runs.items()):
        rollout = run.rollout
        assert rollout is not None
        own = rollout.free if rollout.relifted is None else rollout.relifted
        prefix = f"{name}: " if len(runs) > 1 else ""
        how = _anew(rollout.relift) if rollout.relift else "lifted once"
        if rollout.relifted is not None and place == 0:
            found.append(
                (f"{prefix}lifted once", "e", "2 3", _reached(rollout, rollout.free), False)
            )
        found.append(
            (prefix + how, COLOURS[place % 6], "" if place == 0 else "7 3",
             _reached(rollout, own), place == 0)
        )  # fmt: skip
    return found


def _anew(relift: int) -> str:
    return "lifted anew every step" if relift == 1 else f"lifted anew every {relift} steps"


def _std_over_time(run: RunFiles, samples: int, d: int) -> np.ndarray | None:
    """Standard deviations by sample; between the steps that were measured, on straight lines."""
    if not run.evidence.get("std"):
        return None
    known = np.array(run.evidence["std"], dtype=float)[:, :d]
    at = np.array([0, *run.evidence["leads"]]) * run.evidence["depth"]
    rows = np.vstack([np.zeros(d), known])
    good = np.isfinite(rows).all(axis=1)
    if good.sum() < 2:
        return None
    steps = np.arange(samples)
    found = np.column_stack([np.interp(steps, at[good], rows[good, i]) for i in range(d)])
    found[steps > at[good].max()] = np.nan
    return found


def _reached(rollout: Rollout, free: np.ndarray) -> np.ndarray:
    """A forecast with the first state before it, up to where it is ten times the truth's extent
    away: then it is noise."""
    truth = rollout.truth
    low, high = np.fmin.reduce(truth, axis=0), np.fmax.reduce(truth, axis=0)
    reach = np.where(high > low, 10 * (high - low), np.inf)
    lost = (np.abs(free - (low + high) / 2) > reach).any(axis=1)
    return np.concatenate([truth[:1], np.where(np.maximum.accumulate(lost)[:, None], np.nan, free)])


def _around(truth: np.ndarray) -> list[float] | None:
    """An axis for the truth with some room: a forecast that runs away leaves the picture."""
    real = truth[np.isfinite(truth)]
    if not real.size:
        return None
    room = (np.ptp(real) or abs(real[0]) or 1.0) * 0.25
    return [float(real.min() - room), float(real.max() + room)]


def _projections(rollout: Rollout, ways: list[Way], d: int, every: int) -> Block:
    frames = []
    for i, j in combinations(range(min(d, 4)), 2):
        lines = [line("truth", rollout.truth[::every, i], rollout.truth[::every, j], "truth")]
        lines += [
            line(name, states[::every, i], states[::every, j], colour, dash=dash)
            for name, colour, dash, states, _ in ways
        ]
        axes = [
            panel(labelled(rollout.names[i], rollout.units[i]),
                  labelled(rollout.names[j], rollout.units[j]), nearest=True,
                  xrange=_around(rollout.truth[:, i]), yrange=_around(rollout.truth[:, j]))
        ]  # fmt: skip
        frames.append(frame(f"{rollout.names[i]}, {rollout.names[j]}", "", lines, axes))
    return chart(
        "space", "The same in the state space",
        "Projections of the trajectory and of its forecasts on two states.",
        frames[0]["panels"], frames=frames, control="tabs: states", height=420,
    )  # fmt: skip


def _inputs(rollout: Rollout, every: int) -> Block:
    assert rollout.inputs is not None
    lines = [
        line(row["name"], (0, rollout.dt * every), u[::every], COLOURS[k % 6], style="steps")
        for k, (row, u) in enumerate(zip(rollout.driven_by, rollout.inputs.T, strict=True))
    ]
    return chart("driving", "What drove it", "Inputs over time.", [panel("time", "inputs")], lines)


def accuracy_section(runs: Mapping[str, RunFiles]) -> Section | None:
    """Errors by steps ahead, beside those of simple rivals, and how true the bands are."""
    run = next(iter(runs.values()))
    if not run.evidence.get("errors"):
        return None
    segments = run.evidence.get("edmd", {}).get("segments", 0)
    words = (
        "Root mean square errors over held-out data by steps ahead. Holding keeps the last state."
    )
    if "edmd" in run.evidence["errors"]:
        words += (
            f" {_edmd(run)} is least squares over {counted(segments, 'segment')} that sites train "
            "on, forecast in the same way."
        )
    return section(
        "accuracy", "How far ahead?", text(words + _of_first_seed(run), "caption"),
        _by_horizon(runs), _calibration(run),
    )  # fmt: skip


def _by_horizon(runs: Mapping[str, RunFiles]) -> Block:
    run = next(iter(runs.values()))
    names, units = run.evidence["names"], run.evidence["units"] or [""] * len(run.evidence["names"])
    shown: list[tuple[str, str, int | None]] = [("all states", "error / spread", None)]
    if len(names) > 1:
        shown += [(n, labelled(n, u), i) for i, (n, u) in enumerate(zip(names, units, strict=True))]
    frames = []
    for name, label, i in shown[: 1 + MOST_STATES]:
        lines = []
        rivals = (
            ("holding", "holding the last value", "held", "1 4"),
            ("edmd", _edmd(run), "d", "5 3"),
            ("once", "lifted once", "e", "2 3"),
        )
        for key, words, colour, dash in rivals:
            if key in run.evidence["errors"]:
                lines.append(_error_line(run, key, i, words, colour, dash))
        for (title, one), colour in zip(runs.items(), COLOURS, strict=False):
            if one.evidence.get("errors") and one.evidence["names"] == names:
                words = title if len(runs) > 1 else "model"
                lines.append(
                    _error_line(one, "model", i, words, colour, "" if one is run else "7 3")
                )
        axes = [
            panel("steps ahead", label if i is None else f"error of {label}", log=True, xlog=True)
        ]
        frames.append(frame(name, "", lines, axes))
    return chart(
        "horizons", "Error by steps ahead",
        "Errors of the model, of holding the last value and of EDMD by steps ahead, logarithmic.",
        frames[0]["panels"], frames=frames, control="tabs: state", height=300,
    )  # fmt: skip


def _error_line(run: RunFiles, key: str, i: int | None, name: str, colour: str, dash: str) -> Block:
    rows = np.array(run.evidence["errors"][key], dtype=float)
    values = [_share(run, key, k) for k in range(len(rows))] if i is None else rows[:, i]
    unit = "" if i is None or not run.evidence["units"] else run.evidence["units"][i]
    return line(
        name, np.array(run.evidence["leads"]), np.array(values, dtype=float), colour, dash=dash,
        unit="" if unit == "1" else unit,
    )  # fmt: skip


def _calibration(run: RunFiles) -> Block | None:
    rows, levels = run.evidence.get("calibration"), run.evidence.get("levels")
    if not rows or not levels:
        return None
    chosen = [rows[i] for i in sorted({round(k) for k in np.linspace(0, len(rows) - 1, 4)})]
    lines = [
        line(counted(row["lead"], "step"), 100 * np.array(levels), 100 * np.array(row["covered"]),
             colour, dash=dash)
        for row, colour, dash in zip(chosen, "abcd", ("", "7 3", "5 3", "2 3"), strict=False)
    ]  # fmt: skip
    return chart(
        "calibration", "Are the bands as wide as they should be?",
        "How often the truth was within bands that promise to hold it so often, by steps ahead. "
        "Bands were measured on one half of the held-out trajectories and judged by the other. On "
        "the dotted line they keep their word; above it they are too wide, below too narrow.",
        [panel("what the band promises, %", "how often it was true, %", diagonal=True,
               xrange=(45, 100), yrange=(0, 102))],
        lines, height=300,
    )  # fmt: skip


def _matrix(rows: Any) -> np.ndarray:
    return np.array(rows, dtype=float)
