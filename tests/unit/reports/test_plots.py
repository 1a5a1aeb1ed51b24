"""A table of states holds what was estimated, in every format."""

from pathlib import Path

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest

from fedkoopman.data.observations import SiteStates
from fedkoopman.reports.plots import MOST_POINTS, columns, plot_states, write_states


def site_states(lengths: tuple[int, ...], labels: tuple[str, ...] | None) -> SiteStates:
    rng = np.random.default_rng(0)
    means = [rng.normal(size=(n, 2)) for n in lengths]
    return SiteStates(
        names=("angle", "rate, measured"),
        units=("rad", "1"),
        labels=labels,
        times=[np.arange(1, n + 1) * 0.1 for n in lengths],
        means=means,
        covs=[np.tile(np.diag([4.0, 9.0]), (n, 1, 1)) for n in lengths],
        observed=[m + 0.1 for m in means],
        ok=np.ones(len(lengths), bool),
        log_likelihood=-6.0,
    )


def test_standard_deviations_stand_beside_the_states() -> None:
    table = columns(site_states((3,), None))
    assert list(table) == [
        "step", "time", "angle", "rate, measured", "angle_std", "rate, measured_std",
    ]  # fmt: skip
    np.testing.assert_array_equal(table["step"], [1, 2, 3])
    np.testing.assert_array_equal(table["angle_std"], [2, 2, 2])
    np.testing.assert_array_equal(table["rate, measured_std"], [3, 3, 3])


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
def test_every_format_reads_back_exactly(tmp_path: Path, suffix: str) -> None:
    states = site_states((3, 2), ("a", "b"))
    path = tmp_path / f"states.{suffix}"
    assert write_states(path, states) == 5
    if suffix == "npz":
        found = dict(np.load(path))
        np.testing.assert_array_equal(found.pop("cov"), np.concatenate(states.covs))
    else:
        read = pa_csv.read_csv if suffix == "csv" else pa_parquet.read_table
        found = {name: c.to_numpy() for name, c in zip(*_columns(read(path)), strict=True)}
    expected = columns(states)
    assert sorted(found) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def _columns(table):
    return table.column_names, table.columns


def test_what_could_not_be_estimated_is_blank(tmp_path: Path) -> None:
    states = site_states((1,), None)
    states.means[0][:] = np.nan
    states.covs[0][:] = np.nan
    write_states(tmp_path / "states.csv", states)
    lines = (tmp_path / "states.csv").read_text(encoding="utf-8").splitlines()
    assert lines == ['step,time,angle,"rate, measured",angle_std,"rate, measured_std"', "1,0.1,,,,"]


@pytest.mark.parametrize(("label", "cell"), [("a b", "a b"), ("a,b", '"a,b"'), ('a"b', '"a""b"')])
def test_labels_are_quoted_where_they_need_it(tmp_path: Path, label: str, cell: str) -> None:
    write_states(tmp_path / "states.csv", site_states((1,), (label,)))
    line = (tmp_path / "states.csv").read_text(encoding="utf-8").splitlines()[1]
    assert line.startswith(f"{cell},1,0.1,")


def test_summary_is_per_sample() -> None:
    assert site_states((3,), None).summary == "log-likelihood per sample -2.000"


@pytest.mark.parametrize(
    ("lengths", "suffix"),
    [((5,), "png"), ((1,), "svg"), ((4, 3), "pdf"), ((2,) * 6, "png"), ((MOST_POINTS + 7,), "png")],
)
def test_any_number_of_trajectories_of_any_length_is_drawn(
    tmp_path: Path, lengths: tuple[int, ...], suffix: str
) -> None:
    labels = tuple(map(str, range(len(lengths)))) if len(lengths) > 1 else None
    path = tmp_path / f"states.{suffix}"
    plot_states(path, site_states(lengths, labels))
    assert path.stat().st_size > 1000


def test_a_long_trajectory_keeps_its_extremes(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    states = site_states((10 * MOST_POINTS,), None)
    states.means[0][12345, 0] = 99.0
    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: drawn.append(figure))
    plot_states(Path("unused.png"), states)
    axes = drawn[0].axes[0]
    line = next(line for line in axes.lines if line.get_label() == "estimate")
    assert len(line.get_ydata()) <= MOST_POINTS
    assert line.get_ydata().max() == 99.0
