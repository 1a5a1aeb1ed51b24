"""Figures of reproduced items: what is drawn where, and that nothing covers anything."""

import math
import os
import struct
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedkoopman.paper.axes import COLOURS, MUTED, looks_of
from fedkoopman.paper.figures import draw, save
from fedkoopman.paper.items import Panel, Series

X = tuple(range(1, 11))
CURVE = tuple(100.0 * 0.4**x for x in X)


def line(label: str, y=CURVE, x=X, **options) -> Series:
    return Series(label, x[: len(y)], y, **options)


def panel(*series: Series, **options) -> Panel:
    return Panel("title", "slot", "loss", series, **options)


def drawn(figure: Figure, axes: int = 0) -> list[np.ndarray]:
    """Values of the lines that have any, without the marks upon them."""
    lines = figure.axes[axes].get_lines()
    return [np.asarray(one.get_ydata(), float) for one in lines if one.get_linestyle() != "None"]


def bands(figure: Figure) -> list[np.ndarray]:
    shapes = figure.axes[0].collections
    return [s.get_paths()[0].vertices[:, 1] for s in shapes if isinstance(s, PolyCollection)]


SCRIPT = """
import sys
from pathlib import Path
from fedkoopman.paper.figures import draw, save
from fedkoopman.paper.items import Panel, Series
x = tuple(range(9))
space = Panel("in space", "x", "y", (Series("b ℰ", x, x, z=x, muted=True),), z="z")
plane = Panel("over ρ", "x", "y", (Series("a ℓ₁", x, x, x), Series("b ℰ", x, x)), log_y=True)
save(draw((plane, space)), Path(sys.argv[1]))
"""


def test_files_are_the_same_in_every_process(tmp_path: Path) -> None:
    for name, environment in (
        ("first", {"PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": "0"}),
        ("second", {"PYTHONHASHSEED": "2", "SOURCE_DATE_EPOCH": "99999999", "MPLBACKEND": "svg"}),
    ):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name)]
        subprocess.run(command, check=True, env=os.environ | environment)
    for end in (".pdf", ".png"):
        first, second = ((tmp_path / f"{name}{end}").read_bytes() for name in ("first", "second"))
        assert first == second


def test_pdf_embeds_truetype_and_has_no_date(tmp_path: Path) -> None:
    content = save(draw([panel(line("a"))]), tmp_path / "figure")[0].read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content
    assert b"Date" not in content


@pytest.mark.parametrize(("count", "inches"), [(1, 3.5), (2, 7.16), (3, 7.16)])
def test_images_are_as_wide_as_a_column_or_the_page(
    tmp_path: Path, count: int, inches: float
) -> None:
    _, image = save(draw([panel(line("a"))] * count), tmp_path / "figure")
    width, _ = struct.unpack(">II", image.read_bytes()[16:24])
    assert width == int(inches * 200)


NAMES = ("Random", "Round-Robin", *(f"Threshold of {i} segments" for i in (1, 3, 5, 7, 9)))
LONG = "a label that goes on and on about the scheme, the noise and the number of clients it has"
FIGURES = {
    "one": [panel(line("a"), line("b"))],
    "shared legend": [panel(*(line(f"arm {i}") for i in range(5))), panel(line("arm 2"))],
    "own legends": [panel(line("a"), line(LONG)), panel(*(line(f"arm {i}") for i in range(8)))],
    "dozens": [panel(*(line(f"arm number {i}", spread=CURVE) for i in range(30)), log_y=True)],
    "long": [panel(line(LONG), line("b"))],
    "names": [
        panel(line("a", (1.0,) * 7, range(7), style="points"), names=NAMES),
        panel(line("b", spread=CURVE, style="points"), log_y=True),
    ],
    "rows": [panel(line("a")), panel(line("a"), log_y=True)] * 3,
}


@pytest.mark.parametrize("panels", FIGURES.values(), ids=FIGURES)
def test_nothing_covers_anything_or_leaves_the_page(panels: list[Panel]) -> None:
    figure = draw(panels)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    legends = [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]
    texts = [text.get_text().replace("\n", " ") for each in legends for text in each.get_texts()]
    labels = [series.label for panel in panels for series in panel.series]
    assert sorted(texts) == sorted(set(labels))
    boxes = [axes.get_window_extent(renderer) for axes in figure.axes]
    boxes += [axes.title.get_window_extent(renderer) for axes in figure.axes]
    boxes += [axes.xaxis.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [each.get_window_extent(renderer) for each in legends]
    for one, other in combinations(boxes, 2):
        # the axis begins where the axes end
        shared = one.intersection(one, other)
        assert shared is None or min(shared.width, shared.height) < 2
    for box in boxes:
        assert box.x0 > -1 and box.y0 > -1
        assert box.x1 < figure.bbox.width + 1 and box.y1 < figure.bbox.height + 1
    for axes in figure.axes:
        assert axes.get_window_extent(renderer).height > 90  # of 100 dots per inch


def test_what_is_not_finite_leaves_a_gap() -> None:
    values = (4.0, None, 2.0, math.nan, 1.0, 3.0, math.inf, 5.0, 6.0, 7.0)
    figure = draw([panel(line("a", values))])
    [y] = drawn(figure)
    np.testing.assert_array_equal(np.isnan(y), [v is None or not math.isfinite(v) for v in values])
    [dots] = [one for one in figure.axes[0].get_lines() if one.get_marker() == "."]
    assert list(dots.get_ydata()) == [4.0, 2.0]


def test_a_logarithmic_axis_leaves_out_what_it_cannot_show() -> None:
    [y] = drawn(draw([panel(line("a", (1.0, 0.0, -3.0, 5.0)), log_y=True)]))
    np.testing.assert_array_equal(y, [1.0, np.nan, np.nan, 5.0])


@pytest.mark.parametrize("log", [False, True])
def test_a_panel_without_any_value_says_so(log: bool) -> None:
    figure = draw([panel(line("a", (None, math.nan)), line("b", ()), log_y=log)])
    assert [text.get_text() for text in figure.axes[0].texts] == ["no finite value"]
    figure.draw_without_rendering()


def test_bands_are_one_deviation_wide() -> None:
    mean, spread = (1.0, 2.0, 4.0), (0.5, 0.2, 9.0)
    for log, low in ((False, (0.5, 1.8, 0.0)), (True, (0.5, 1.8, 4 / 3))):
        [edge] = bands(draw([panel(line("a", mean, spread=spread), log_y=log)]))
        for value in (*low, 1.5, 2.2, 13.0):
            assert np.isclose(edge, value).any(), (log, value)
        assert np.isclose(edge.min(), min(low))


def test_points_have_bars_of_one_deviation() -> None:
    figure = draw([panel(line("a", (1.0, 2.0), spread=(0.25, 0.5), style="points"))])
    [bars] = [c for c in figure.axes[0].collections if not isinstance(c, PolyCollection)]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[0.75, 1.25], [1.5, 2.5]]


def test_many_series_differ_in_colour_marker_or_dash() -> None:
    looks = looks_of([panel(*(line(f"arm {i}") for i in range(20)))]).values()
    assert len({(look.colour, str(look.dash), look.marker) for look in looks}) == 20
    assert len({look.colour for look in list(looks)[:10]}) == 10


def test_references_are_grey_and_differ_by_dash() -> None:
    series = [line(name, muted=True) for name in ("truth", "persistence", "untrained")]
    looks = looks_of([panel(line("a"), *series)])
    assert looks["a"].colour == COLOURS[0]
    assert {looks[each.label].colour for each in series} == {MUTED}
    assert len({str(looks[each.label].dash) for each in series}) == 3


def test_a_label_looks_the_same_in_every_panel() -> None:
    figure = draw([panel(line("a"), line("b")), panel(line("b"), line("c"))])
    colours = [[to_hex(one.get_color()) for one in axes.get_lines()] for axes in figure.axes]
    assert colours[1][0] == COLOURS[1]
    assert set(colours[1]) == {COLOURS[1], COLOURS[2]}


def test_panels_have_letters_titles_and_names() -> None:
    figure = draw([panel(line("a", (1.0, 2.0, 3.0), (0, 1, 2)), names=("x", "y", "z"))] * 2)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["(a) title", "(b) title"]
    for axes in figure.axes:
        assert [text.get_text() for text in axes.get_xticklabels()] == ["x", "y", "z"]
        assert axes.get_xlabel() == "slot" and axes.get_ylabel() == "loss"
    assert draw([panel(line("a"))]).axes[0].get_title(loc="left") == "title"


def test_lines_in_space() -> None:
    truth = Series("truth", X, X, z=X, muted=True)
    gap = Series("model", X, (*X[:5], None, *X[6:]), z=X)
    figure = draw([panel(line("model")), panel(gap, truth, z="height")])
    space = figure.axes[1]
    assert space.name == "3d" and space.get_zlabel() == "height"
    model, grey = space.get_lines()
    assert grey.get_zorder() < model.get_zorder()
    assert to_hex(model.get_color()) == to_hex(figure.axes[0].get_lines()[0].get_color())
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("low", "high"), [*product([1e-5, 0.7, 30.0], [1.3, 3.0, 40.0, 1e8, 1e15])], ids=str
)
def test_every_logarithmic_range_has_a_few_readable_ticks(low: float, high: float) -> None:
    figure = draw([panel(line("a", (low, low * high)), log_y=True)])
    figure.draw_without_rendering()
    axes = figure.axes[0]
    bottom, top = axes.get_ylim()
    ticks = [
        (place, text.get_text())
        for place, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if bottom <= place <= top
    ]
    assert 2 <= len(ticks) <= 9
    assert all(text for _, text in ticks)
    assert bottom < low and top > low * high


def test_a_few_values_are_ticks_themselves() -> None:
    levels = (1, 3, 9, 25, 100)
    figure = draw([panel(line("a", levels, levels, style="points"), log_x=True)])
    figure.draw_without_rendering()
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [*map(str, levels)]
