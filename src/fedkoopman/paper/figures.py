"""Figures of reproduced items, sized for a two-column page: PDF and PNG, byte for byte the same."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from fedkoopman.durable import write_whole
from fedkoopman.paper.axes import (
    AXIS,
    GRID,
    Look,
    draw_plane,
    draw_space,
    fitted,
    looks_of,
    names_height,
    text_width,
)
from fedkoopman.paper.items import Panel
from fedkoopman.reports.plots import TEXT

ONE_COLUMN, PAGE = 3.5, 7.16
"""Widths in inches of one column and of both."""

HEIGHTS = {1: 2.35, 2: 2.45, 3: 2.2}
"""Heights of panels in inches, by how many stand in a row."""

STYLE: dict[Any, Any] = {
    # both fonts come with matplotlib, so that every machine draws the same letters
    "font.family": ["DejaVu Sans", "STIXGeneral"],
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5, "ytick.labelsize": 7.5, "mathtext.fontset": "dejavusans",
    "text.color": TEXT, "axes.labelcolor": TEXT, "axes.titlecolor": TEXT,
    "axes.titlelocation": "left", "axes.titlepad": 5, "axes.labelpad": 2.5,
    "axes.linewidth": 0.6, "axes.edgecolor": AXIS, "grid.color": GRID, "grid.linewidth": 0.5,
    "axes3d.xaxis.panecolor": "none", "axes3d.yaxis.panecolor": "none",
    "axes3d.zaxis.panecolor": "none", "pdf.fonttype": 42,
    "legend.frameon": False, "legend.handlelength": 2.2, "legend.handletextpad": 0.6,
    "legend.columnspacing": 1.6, "legend.labelspacing": 0.35, "legend.borderaxespad": 0.3,
    "figure.constrained_layout.w_pad": 0.05, "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.wspace": 0.03, "figure.constrained_layout.hspace": 0.05,
}  # fmt: skip

ROW, HANDLE, GAP = 0.16, 0.29, 0.17
"""Sizes of a legend in inches: height of a row, width of a line, gap between columns."""


def draw(panels: Sequence[Panel]) -> Figure:
    """Draw the panels from left to right, three in a row.

    A label means the same line in every panel and stands once, below all; panels that share no
    label have a legend each.
    """
    rows, columns = _grid(len(panels))
    width = PAGE if columns > 1 else ONE_COLUMN
    with rc_context(STYLE):
        shared = _share(panels)
        looks = [looks_of(panels)] if shared else [looks_of([panel]) for panel in panels]
        room = width / columns
        legends = [_Legend.of(look, width if shared else room) for look in looks]
        below = [names_height(panel, room) for panel in panels]
        tall = HEIGHTS[columns]
        if shared:
            height = rows * (tall + max(below)) + legends[0].height
        else:
            height = rows * (tall + max(a + b.height for a, b in zip(below, legends, strict=True)))
        figure = Figure(figsize=(width, height), layout="constrained")
        for i, panel in enumerate(panels):
            look = looks[0 if shared else i]
            place = (rows, columns, i + 1)
            if any(series.z is not None for series in panel.series):
                axes: Axes = figure.add_subplot(*place, projection="3d", computed_zorder=False)
                draw_space(axes, panel, look)
            else:
                axes = figure.add_subplot(*place)
                draw_plane(axes, panel, look, turned=below[i] > 0)
            letter = f"({'abcdefghijklmnopqrstuvwxyz'[i]}) " if len(panels) > 1 else ""
            axes.set_title(fitted(letter + panel.title, room - 0.6))
            if not shared:
                under = ScaledTranslation(0, -0.36 - below[i], figure.dpi_scale_trans)
                legends[i].draw(
                    axes, loc="upper center", bbox_to_anchor=(0.5, 0),
                    bbox_transform=axes.transAxes + under,
                )  # fmt: skip
        if shared:
            legends[0].draw(figure, loc="outside lower center")
    return figure


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write STEM.pdf and STEM.png, without dates, so that equal figures are equal files."""
    targets = stem.with_name(f"{stem.name}.pdf"), stem.with_name(f"{stem.name}.png")
    with rc_context(STYLE):
        for target, metadata in zip(
            targets, ({"CreationDate": None}, {"Software": None}), strict=True
        ):
            content = io.BytesIO()
            figure.savefig(content, format=target.suffix[1:], dpi=200, metadata=metadata)
            write_whole(target, content.getvalue())
    return targets


def _grid(count: int) -> tuple[int, int]:
    columns = 2 if count == 4 else min(count, 3)
    return -(-count // columns), columns


def _share(panels: Sequence[Panel]) -> bool:
    """Whether the panels are about the same lines."""
    labels = [{series.label for series in panel.series} for panel in panels]
    return len(panels) == 1 or any(a & b for a, b in combinations(labels, 2))


@dataclass(frozen=True)
class _Legend:
    """Texts and handles, as many beside each other as fit."""

    texts: list[str]
    handles: list[Line2D]
    columns: int

    @classmethod
    def of(cls, looks: dict[str, Look], width: float) -> "_Legend":
        shown = {label: look for label, look in looks.items() if label}
        texts = [fitted(label, width - HANDLE - 0.2) for label in shown]
        handles = [look.handle() for look in shown.values()]
        lengths = [HANDLE + text_width(text) for text in texts]
        for count in range(len(texts), 1, -1):
            rows = -(-len(texts) // count)  # filled column by column
            columns = [max(lengths[i : i + rows]) for i in range(0, len(texts), rows)]
            if len(columns) == count and sum(columns) + GAP * (count - 1) < width - 0.1:
                return cls(texts, handles, count)
        return cls(texts, handles, 1)

    @property
    def height(self) -> float:
        lines = max((text.count("\n") + 1 for text in self.texts), default=0)
        return ROW * lines * -(-len(self.texts) // self.columns)

    def draw(self, parent: Figure | Axes, **place: Any) -> None:
        if self.texts:
            parent.legend(self.handles, self.texts, ncols=self.columns, **place)
