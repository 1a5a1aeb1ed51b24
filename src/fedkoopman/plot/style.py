"""The look of all matplotlib pictures: colours, axes, and what stands at them."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
    "#56b4e9", "#882255", "#3c4043", "#999933", "#332288",
)  # fmt: skip
"""Okabe and Ito's colours, then some of Tol's: colour-blind readers can tell them apart."""

LINE, BAND, DOTS, TEXT = "#1f4e79", "#8fb8de", "#7b8087", "#3c4043"
AHEAD, AHEAD_BAND = "#b5541c", "#f0b98d"
"""What is to come, beside the blue of what was."""
AXIS, GRID = "#c4c7cb", "#9aa0a640"


def dress(axes: "Axes") -> None:
    """The look of every panel, on light and on dark."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(AXIS)
    axes.grid(color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(color=AXIS, labelsize=9)
    axes.margins(x=0.01)


def new_axes(ax: Any, width: float = 6.4, height: float = 3.8) -> "Axes":
    """The caller's axes, or those of a new figure."""
    if ax is not None:
        return _checked(ax)
    return panels(None, 1, width, height)[0]


def panels(ax: Any, count: int, width: float = 6.4, height: float = 1.9) -> list["Axes"]:
    """Axes for so many panels below each other: the caller's, one for all of them or one for each,
    or those of a new figure.

    Arguments:
        width, height: of a new panel, in inches.
    """
    if ax is None:
        from matplotlib import pyplot

        size = width, max(height * count, 2.6)
        figure, made = pyplot.subplots(
            count, 1, sharex=True, squeeze=False, figsize=size, layout="constrained"
        )
        figure.align_ylabels()
        return list(made[:, 0])
    if not isinstance(ax, Sequence | np.ndarray):
        return [_checked(ax)] * count
    given = [_checked(one) for one in np.ravel(np.asarray(ax, object))]
    if len(given) != count:
        raise InputError(f"ax has {len(given)} axes for {count} panels: give one for each, or one")
    return given


def _checked(ax: Any) -> "Axes":
    if not hasattr(ax, "plot") or not hasattr(ax, "set_xlabel"):
        raise InputError(f"ax is {short(ax)}: give matplotlib axes, as of plt.subplots()")
    found: Axes = ax
    return found


def result(axes: Sequence["Axes"]) -> Any:
    """What a function returns: one axes alone, or an array of several."""
    distinct = list(dict.fromkeys(axes))
    if len(distinct) == 1:
        return distinct[0]
    array: NDArray[np.object_] = np.empty(len(distinct), object)
    array[:] = distinct
    return array


def labelled(name: str, unit: str = "") -> str:
    """A name with its unit, as "theta [rad]"."""
    name = plain_text(name)
    return f"{name} [{plain_text(unit)}]" if unit not in ("", "1") else name


def plain_text(text: str, most: int = 60) -> str:
    """A text that matplotlib shows as it is: a dollar sign would begin a formula."""
    text = " ".join(str(text).split())
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.replace("$", r"\$")


_PER = re.compile(r"/\s*([A-Za-zµμ]+)\s*(?:\^?-?\d+|[²³])?\s*$")


def time_unit(given: str | None, units: Sequence[str]) -> str:
    """The unit of time: the caller's, or that of rates among the states' units, as s of rad/s."""
    if given is not None:
        return given
    found = {match[1] for unit in units if (match := _PER.search(unit))}
    return found.pop() if len(found) == 1 else ""


def frequency_label(unit: str) -> str:
    """What stands at an axis of frequencies."""
    per = {"": "turns per unit of time", "s": "Hz"}.get(unit, f"turns per {unit}")
    return f"frequency [{per}]"
