"""Pictures of what a model is: its eigenvalues, and how the states move with each of its modes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedkoopman.errors import InputError, short
from fedkoopman.plot.reading import model_of, state_names, words_of
from fedkoopman.plot.style import (
    COLOURS,
    DOTS,
    dress,
    frequency_label,
    new_axes,
    plain_text,
)
from fedkoopman.plot.style import time_unit as unit_of_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def spectrum(
    model: Any, *, continuous: bool = False, time_unit: str | None = None, ax: Any = None
) -> "Axes":
    """The eigenvalues of K in the complex plane, those that grow apart from those that fade.

    Arguments:
        model: a fitted model, a run, or eigenvalues of K (O,), complex.
        continuous: draw log(λ) / dt, growth against frequency, in place of λ with the unit circle.
        time_unit: at the axes; by default that of the states' rates, as s of rad/s.
    """
    found = model_of(model)
    values = _values(model if found is None else found.eigenvalues_)
    axes = new_axes(ax, 5.0, 4.6)
    grows = np.abs(values) > 1
    if continuous:
        if found is None:
            raise InputError("eigenvalues alone tell no dt: give the model, or continuous=False")
        unit = unit_of_time(time_unit, words_of(found)[1])
        x, y = found.eigenvalues_continuous_.real, found.eigenvalues_continuous_.imag / (2 * np.pi)
        axes.axvline(0, ls=":", color=DOTS, lw=1)
        axes.set_xlabel(f"growth rate [1/{unit}]" if unit else "growth rate [per unit of time]")
        axes.set_ylabel(frequency_label(unit))
    else:
        x, y = values.real, values.imag
        turn = np.linspace(0, 2 * np.pi, 181)
        axes.plot(np.cos(turn), np.sin(turn), ":", color=DOTS, lw=1, label="unit circle")
        reach = 1.1 * max(1.0, float(np.abs(values).max()))
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        axes.set_xlabel("real part")
        axes.set_ylabel("imaginary part")
    for words, colour, marker, which in (
        ("fades", COLOURS[0], "o", ~grows & np.isfinite(x)),
        ("grows", COLOURS[1], "D", grows & np.isfinite(x)),
    ):
        if which.any():
            look: dict[str, Any] = {"ms": 6, "alpha": 0.8, "mew": 0, "label": words}
            axes.plot(x[which], y[which], marker, color=colour, **look)
    axes.set_title("eigenvalues of K", size=10)
    axes.locator_params(nbins=6)
    dress(axes)
    if continuous:
        axes.margins(0.08)
    handles, _ = axes.get_legend_handles_labels()
    if handles and ax is None:
        axes.legend(frameon=False, fontsize=9, loc="upper right")
    return axes


def _values(given: Any) -> Any:
    try:
        values = np.asarray(given, complex)
    except (TypeError, ValueError) as error:
        raise InputError(f"model is {short(given)}: give a model, a run or eigenvalues") from error
    if values.ndim != 1 or not values.size or not np.isfinite(values).all():
        raise InputError(f"eigenvalues have shape {values.shape}: give (O,) finite numbers")
    return values


def modes(
    model: Any,
    *,
    n_modes: int = 12,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    time_unit: str | None = None,
    ax: Any = None,
) -> "Axes":
    """How far the states move with each mode: a row per mode, slow ones first, conjugates once.

    Each state's column is relative to the mode that moves it most.

    Arguments:
        model: a fitted model, a run, or modes (n, O), complex.
        n_modes: how many are drawn at most.
        names: of the states, instead of the model's.
        labels: of the modes, in place of frequency and half-life.
        time_unit: in these; by default that of the states' rates, as s of rad/s.
    """
    found = model_of(model)
    matrix = np.asarray(model if found is None else found.modes_)
    if matrix.ndim != 2 or matrix.dtype.kind not in "iufc":
        raise InputError(f"modes are {short(model)}: give a model, a run or modes (n, O)")
    kept = np.arange(matrix.shape[1])
    if found is not None:
        known, units = words_of(found)
        names = known if names is None else names
        kept = np.flatnonzero(found.eigenvalues_.imag >= 0)[:n_modes]
        if labels is None:
            labels = [
                _told(found.frequencies_[j], found.half_lives_[j], unit_of_time(time_unit, units))
                for j in kept
            ]
    kept = kept[:n_modes]
    labels = [f"mode {j}" for j in kept] if labels is None else labels
    share = np.abs(matrix[:, kept]).T
    most = share.max(axis=0)
    share = np.divide(share, most, out=np.zeros_like(share), where=most > 0)
    return heat(share, state_names(names, len(matrix)), labels, ax)


def heat(share: Any, names: Sequence[str], labels: Sequence[str], ax: Any = None) -> "Axes":
    """Shares between 0 and 1, (modes, states), as a table of colours."""
    axes = new_axes(ax, max(4.6, 2.6 + 0.7 * len(names)), 1.2 + 0.28 * len(labels))
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if len(names) > 6 else {}
    axes.set_xticks(range(len(names)), [plain_text(name, 20) for name in names], **turned)
    axes.set_yticks(range(len(labels)), [plain_text(label) for label in labels], size=8)
    axes.yaxis.tick_right()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title("how far states move with each mode", size=10)
    return axes


def _told(frequency: float, half_life: float, unit: str) -> str:
    """A mode in words, as "0.498 Hz, halves in 3.2 s"."""
    per = " Hz" if unit == "s" else f" per {unit or 'unit of time'}"
    turning = f"{frequency:.3g}{per}, " if frequency else ""
    if half_life == 0:
        return f"{turning}vanishes at once"
    if not np.isfinite(half_life) or abs(half_life) > 1e9:
        return f"{turning}stays"
    verb = "halves" if half_life > 0 else "doubles"
    return f"{turning}{verb} in {abs(half_life):.3g} {unit}".rstrip()
