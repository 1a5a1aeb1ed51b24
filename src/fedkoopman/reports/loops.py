"""A closed loop in words, and as a picture: states with what they should be, inputs, bounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.card import input_names
from fedkoopman.reports.plots import LINE, TEXT, dress
from fedkoopman.runs.steering import Steered

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["loop_data", "loop_sentences", "plot_loop"]

Array = NDArray[np.float64]

GOAL, EDGE, PUSH = "#2e7d32", "#c62828", "#b5541c"
NEAR = 0.6
"""A bound farther off than so many times the range of the values is not drawn: it would press them
into a line."""


def loop_sentences(found: Steered) -> list[str]:
    """What is known of the model, then what happened."""
    return [*found.known, *_ending(found), *_edges(found)]


def loop_data(found: Steered) -> dict[str, Any]:
    """All of it for other programs."""
    return {
        "time": found.loop.time.tolist(),
        "states": found.loop.states.tolist(),
        "inputs": found.loop.inputs.tolist(),
        "seen": found.loop.seen.tolist(),
        "reference": found.wanted.tolist(),
        "sentences": loop_sentences(found),
    }


def _ending(found: Steered) -> list[str]:
    last = max(len(found.visible) // 10, 1)
    apart = np.abs(found.visible - found.wanted)[-last:].max(axis=0)
    worst = int(apart.argmax())
    pairs = zip(found.system.names, found.loop.states[-1], strict=True)
    state = ", ".join(f"{name} {value:.4g}" for name, value in pairs)
    samples = "sample" if last == 1 else f"{last} samples"
    return [
        f"After {found.loop.time[-1]:.4g} ({len(found.loop.inputs)} samples): {state}.",
        f"In the last {samples} no state was farther than {apart[worst]:.3g} from the reference "
        f"({found.names[worst]}).",
    ]


def _edges(found: Steered) -> list[str]:
    u, limits = found.loop.inputs, found.limits
    at = (np.isclose(u, limits["u_min"]) | np.isclose(u, limits["u_max"])).any(axis=1).sum()
    said = f"Inputs were between {u.min():.4g} and {u.max():.4g}"
    told = [f"{said}, at a bound in {at} of {len(u)} samples." if at else f"{said}."]
    # The first state is nobody's choice.
    after = found.visible[1:]
    beyond = np.maximum(limits["x_min"] - after, after - limits["x_max"]).max(axis=0)
    if np.isfinite(beyond).any():
        pairs = zip(found.names, beyond, strict=True)
        left = [f"{name} by {far:.3g}" for name, far in pairs if far > 1e-6]
        told.append(
            f"States left their bounds: {', '.join(left)} at most."
            if left
            else "States stayed within their bounds."
        )
    return told


@dataclass(frozen=True, eq=False)
class Panel:
    """One quantity over time.

    Attributes:
        name, unit: of it; a unit may be empty.
        values: at every sample, (T + 1,); of an input, from every sample on, (T,).
        goal: what it should be at the same samples; None: it is free.
        low, high: its bounds, which may be infinite.
        held: between samples, as inputs are.
    """

    name: str
    unit: str
    values: Array
    goal: Array | None = None
    low: float = -np.inf
    high: float = np.inf
    held: bool = False


def _panels(found: Steered) -> list[Panel]:
    """The system's states, the model's where they differ, and the inputs."""
    units, limits, panels = tuple(found.system.units), found.limits, []
    if not found.same:
        true = zip(found.system.names, units, found.loop.states.T, strict=True)
        panels = [Panel(*one) for one in true]
        units = found.model.learned_.units or ("",) * len(found.names)
    panels += [
        Panel(name, units[i], found.visible[:, i], found.wanted[:, i],
              limits["x_min"][i], limits["x_max"][i])
        for i, name in enumerate(found.names)
    ]  # fmt: skip
    return panels + [
        Panel(name, "", found.loop.inputs[:, i], None,
              limits["u_min"][i], limits["u_max"][i], held=True)
        for i, name in enumerate(input_names(found.model))
    ]  # fmt: skip


def plot_loop(path: Path, found: Steered) -> None:
    """Draw panels over each other, with one legend above all."""
    from matplotlib.figure import Figure

    panels, dt = _panels(found), found.loop.dt
    figure = Figure(figsize=(8.0, 0.9 + 1.5 * len(panels)), layout="constrained")
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    entries: dict[str, Any] = {}
    for axes, panel in zip(rows, panels, strict=True):
        _draw(axes, panel, dt)
        dress(axes)
        unit = f" [{panel.unit}]" if panel.unit not in ("", "1") else ""
        axes.set_ylabel(panel.name + unit, color=TEXT)
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.align_ylabels(list(rows))
    rows[-1].set_xlabel("time", color=TEXT)
    rows[-1].set_xlim(0, dt * len(found.loop.inputs))
    look: dict[str, Any] = {"frameon": False, "labelcolor": TEXT, "ncols": len(entries)}
    figure.legend(list(entries.values()), list(entries), loc="outside upper right", **look)
    figure.savefig(path, dpi=150)


def _draw(axes: "Axes", panel: Panel, dt: float) -> None:
    time, shown = dt * np.arange(len(panel.values) + panel.held), panel.values
    if panel.held:
        axes.stairs(panel.values, time, baseline=None, color=PUSH, lw=1.4, label="input")
    else:
        axes.plot(time, panel.values, color=LINE, lw=1.6, label="state", zorder=3)
    if panel.goal is not None:
        look: dict[str, Any] = {"color": GOAL, "lw": 1.2, "ls": (0, (4, 2)), "zorder": 2}
        axes.plot(time, panel.goal, label="reference", **look)
        shown = np.concatenate([shown, panel.goal])
    low, high = float(shown.min()), float(shown.max())
    room = NEAR * max(high - low, 1e-9 * (1 + abs(high)))
    for edge in (panel.low, panel.high):
        if np.isfinite(edge) and low - room <= edge <= high + room:
            axes.axhline(edge, color=EDGE, lw=1.0, ls=":", label="bound", zorder=1)
    axes.margins(y=0.12)
