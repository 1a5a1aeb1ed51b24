"""Instants find their place on the grid: gaps stay gaps, lines stay lines, disorder is named."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedkoopman.data.time_grid import (
    acting,
    check_interval,
    check_order,
    held,
    on_grid,
    resampled,
    usual_interval,
)
from fedkoopman.errors import InputError

NAN = np.nan


def place(row: int) -> str:
    return f"row {row + 1} of z.csv"


def gridded(times: list[float], dt: float) -> np.ndarray:
    """The numbers 1, 2, … on the grid."""
    values = np.arange(1.0, len(times) + 1)[:, None]
    return on_grid(np.array(times), values, dt, "z.csv", place)[:, 0]


@st.composite
def deleted_grids(draw: st.DrawFn) -> tuple[float, float, np.ndarray]:
    """A start, an interval, and which samples of a regular grid are there, first and last too."""
    start = draw(st.floats(-1e6, 1e6))
    dt = draw(st.floats(1e-3, 1e3))
    kept = draw(st.lists(st.booleans(), min_size=0, max_size=60))
    return start, dt, np.array([True, *kept, True])


@given(deleted_grids())
def test_deleted_samples_come_back_as_missing(grid: tuple[float, float, np.ndarray]) -> None:
    start, dt, kept = grid
    whole = np.stack([np.sin(np.arange(len(kept))), np.arange(len(kept))], axis=1)
    times = start + dt * np.arange(len(kept))
    found = on_grid(times[kept], whole[kept], dt, "z.csv", place)
    np.testing.assert_array_equal(found, np.where(kept[:, None], whole, NAN))


@given(deleted_grids())
def test_resampling_what_is_on_the_grid_changes_nothing(
    grid: tuple[float, float, np.ndarray],
) -> None:
    start, dt, kept = grid
    # an interval is a gap by the usual one: where most samples are missing, that is longer
    assume(np.median(np.diff(np.flatnonzero(kept))) == 1)
    whole = np.stack([np.sin(np.arange(len(kept))), np.arange(len(kept))], axis=1)
    times = start + dt * np.arange(len(kept))
    found = resampled(times[kept], whole[kept], dt)
    # times carry a rounding error of 1e-16 of their size, in intervals of dt
    tolerance = 1e-15 * (abs(start) / dt + len(kept)) * 60
    np.testing.assert_allclose(found, np.where(kept[:, None], whole, NAN), atol=tolerance)


@given(
    st.lists(st.floats(0.85, 1.2), min_size=1, max_size=50),
    st.floats(0.3, 3.0),
    st.floats(-5, 5),
    st.floats(-5, 5),
)
def test_resampling_a_line_is_exact(
    steps: list[float], dt: float, slope: float, level: float
) -> None:
    # the longest step is less than 1.5 times the shortest: there is no gap
    times = np.concatenate([[0.0], np.cumsum(steps)])
    found = resampled(times, (level + slope * times)[:, None], dt)[:, 0]
    wanted = level + slope * dt * np.arange(len(found))
    np.testing.assert_allclose(found, wanted, atol=1e-9)
    assert len(found) == int(times[-1] / dt + 1e-6) + 1


def test_nothing_is_interpolated_across_a_gap() -> None:
    times = np.array([0.0, 1.1, 2.0, 6.3, 7.0, 8.0])
    found = resampled(times, times[:, None], 1.0)[:, 0]
    np.testing.assert_allclose(found, [0, 1, 2, NAN, NAN, NAN, NAN, 7, 8], atol=1e-12)


def test_each_channel_has_its_own_neighbours() -> None:
    times = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0])
    z = np.stack([times, 10 * times], axis=1)
    z[1::2, 0] = NAN  # recorded at every other instant, which is as often as wanted
    z[2:7, 1] = NAN  # a gap of this channel only
    found = resampled(times, z, 1.0)
    np.testing.assert_allclose(found[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_allclose(found[:, 1], [0, NAN, NAN, NAN, 40])


def test_a_channel_that_is_never_there_stays_missing() -> None:
    z = np.array([[NAN, 1.0], [NAN, NAN]])
    np.testing.assert_array_equal(resampled(np.array([0.0, 1.0]), z, 1.0), z)


def test_rounded_times_are_on_the_grid() -> None:
    times = np.round(np.arange(200) / 60, 3)  # milliseconds at 60 samples a second
    np.testing.assert_array_equal(gridded(list(times), 1 / 60), np.arange(1, 201))


def test_large_times_are_on_the_grid() -> None:
    times = 1.7e9 + 0.02 * np.arange(100)
    np.testing.assert_array_equal(gridded(list(times), 0.02), np.arange(1, 101))


def test_another_interval_is_told_beside_dt() -> None:
    times = list(0.05 * np.arange(9))
    del times[4]
    says = r"^samples of z\.csv are 0\.05 apart but the study's dt is 0\.02: set "
    says += r'system\.parameters\.dt = 0\.05, or data\.off_grid = "resample"$'
    with pytest.raises(InputError, match=says):
        gridded(times, 0.02)


def test_a_slow_drift_is_told_with_the_interval_it_comes_from() -> None:
    with pytest.raises(InputError, match=r"are 0\.0334 apart but the study's dt is 0\.0333"):
        gridded(list(np.arange(500) * 0.0334), 0.0333)


def test_a_single_stamp_off_the_grid_is_named() -> None:
    says = r"^row 4 of z\.csv has time 0\.067, off the grid of the study's dt = 0\.02 \(nearest "
    with pytest.raises(InputError, match=says + r"0\.06; samples are about 0\.02 apart\)"):
        gridded([0.0, 0.02, 0.04, 0.067, 0.08, 0.1], 0.02)


def test_two_samples_at_one_place_are_refused() -> None:
    with pytest.raises(InputError, match=r"row 3 of z\.csv has time 1\.05, off the grid"):
        gridded([0.0, 1.0, 1.05, 2.0, 3.0], 1.0)


@pytest.mark.parametrize(
    ("times", "before", "message"),
    [
        ([0.0, 1.0, 1.0], None, "row 3 of z.csv has time 1, which the row before has too"),
        ([0.0, 2.0, 1.0], None, "row 3 of z.csv has time 1, which goes back from 2"),
        ([0.0, NAN, 2.0], None, "row 2 of z.csv has time nan: give every row"),
        ([NAN, 1.0], None, "row 1 of z.csv has time nan"),
        ([0.0, 1.0, np.inf], None, "row 3 of z.csv has time inf"),
        ([0.0, 1.0], 0.0, "row 1 of z.csv has time 0, which the row before has too"),
        ([0.0, 1.0], 5.0, "row 1 of z.csv has time 0, which goes back from 5"),
        ([6.0, NAN], 5.0, "row 2 of z.csv has time nan"),
        ([0.0, 2.0, 1.0, NAN], None, "row 3 of z.csv has time 1, which goes back"),
    ],
)
def test_disorder_is_named(times: list[float], before: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message.replace(".", r"\.")):
        check_order(np.array(times), before, place)


def test_order_is_accepted() -> None:
    check_order(np.array([1.0, 2.0, 50.0]), 0.5, place)
    check_order(np.array([1.0]), None, place)


@given(deleted_grids())
def test_the_usual_interval_is_found_through_gaps(grid: tuple[float, float, np.ndarray]) -> None:
    start, dt, kept = grid
    assume(np.median(np.diff(np.flatnonzero(kept))) == 1)
    times = (start + dt * np.arange(len(kept)))[kept]
    assert usual_interval(times) == pytest.approx(dt, rel=1e-6)


def test_one_sample_has_no_interval() -> None:
    assert usual_interval(np.array([3.0])) is None


def test_milliseconds_taken_for_seconds_are_noticed() -> None:
    with pytest.raises(InputError, match=r"z\.csv are 20 apart but .* check the unit of the time"):
        check_interval(20.0 * np.arange(50), 0.02, "z.csv")
    check_interval(0.04 * np.arange(50), 0.02, "z.csv")
    check_interval(np.array([7.0]), 0.02, "z.csv")


@settings(max_examples=50)
@given(deleted_grids())
def test_inputs_hold_until_the_next(grid: tuple[float, float, np.ndarray]) -> None:
    start, dt, kept = grid
    times = (start + dt * np.arange(len(kept)))[kept]
    inputs = np.flatnonzero(kept).astype(float)[:, None]
    last = np.maximum.accumulate(np.where(kept, np.arange(len(kept)), 0))
    np.testing.assert_array_equal(held(times, inputs, dt, len(kept))[:, 0], last)


HELD = {
    # rows at 0, 1, 2, 5 and 6: what acts until samples 0 … 6, and from the last one on
    "until": ([0, 10, 20, 20, 20, 50, 60, 60], [0, 10, 10, 20, 20, 20]),
    "from": ([0, 0, 10, 20, 20, 20, 50, 60], [0, 0, 0, 10, 10, 20]),
}


@pytest.mark.parametrize("hold", HELD)
def test_inputs_act_until_their_row_or_from_it_on(hold):
    times = np.array([0.0, 1, 2, 5, 6])
    through_a_gap, between_rows = HELD[hold]
    found = acting(10 * times[:, None], hold, times, 1.0, 7)
    np.testing.assert_array_equal(found[:, 0], through_a_gap)
    # rows twice as far apart as samples
    found = acting(10 * times[:3, None], hold, times[:3], 0.5, 5)
    np.testing.assert_array_equal(found[:, 0], between_rows)
    same = acting(10 * times[:3, None], hold, None, 1.0, 3)
    np.testing.assert_array_equal(same, acting(10 * times[:3, None], hold, times[:3], 1.0, 3))
