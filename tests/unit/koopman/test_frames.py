"""DataFrames: segments and instants are honoured, never learned, and tables come back."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedkoopman.data import observations, row_blocks, time_grid
from fedkoopman.errors import InputError
from fedkoopman.koopman import DeepKoopman, bookkeeping

RNG = np.random.default_rng(0)
NAMES = ["angle", "speed"]
PARTS = [RNG.normal(size=(length, 2)) for length in (9, 6, 12)]
SMALL = {"kind": "paper", "n_components": 3, "width": 4, "epochs": 2}
DT = 0.25


def table(parts=PARTS, dt=DT, start=3.0):
    """All parts under each other, with a column of labels and one of instants."""
    frames = [
        pd.DataFrame(part, columns=NAMES).assign(
            segment=f"run {i}", time=start + dt * np.arange(len(part))
        )
        for i, part in enumerate(parts)
    ]
    joined = pd.concat(frames, ignore_index=True)[["segment", "angle", "time", "speed"]]
    return joined.set_index(100 + np.arange(len(joined)))


DATES = table().assign(
    time=pd.Timestamp("2024-03-30", tz="Europe/Zurich") + pd.to_timedelta(table().time, unit="s")
)
WAYS = {
    "columns": table(),
    "index": table().set_index(["segment", "time"]),
    "swapped index": table().set_index(["time", "segment"]),
    "half and half": table().set_index("time"),
    "keys": pd.concat([pd.DataFrame(part, columns=NAMES) for part in PARTS], keys=range(3)),
    "other names": table().set_index(["segment", "time"]).rename_axis(["run", "t"]),
    "dates": DATES,
    "dated index": DATES.set_index("time"),
    "with standard deviations": table().assign(step=1, angle_std=0.1, speed_std=0.2),
    "categories": table().astype({"segment": "category"}),
    "list": [table(PARTS[:1]), table(PARTS[1:])],
    "arrow": pa.Table.from_pandas(table()),
}


def model(**options):
    return DeepKoopman(**{**SMALL, **options})


@pytest.mark.parametrize("way", WAYS)
def test_segments_are_trajectories_and_nothing_but_states_is_learned(way):
    found, expected = model().fit(WAYS[way]), model().fit(PARTS)
    np.testing.assert_array_equal(found.operator_, expected.operator_)
    assert found.feature_names_in_.tolist() == NAMES
    assert found.dt_ == (1.0 if way == "keys" else DT)
    assert found.dt == 1.0  # a parameter, which fit must not change
    assert found.score(WAYS[way]) == pytest.approx(expected.score(PARTS), rel=1e-12)


def test_one_table_without_bookkeeping_is_one_trajectory():
    rows = PARTS[2]
    found = model().fit(pd.DataFrame(rows, columns=NAMES))
    np.testing.assert_array_equal(found.operator_, model().fit(rows).operator_)
    # A column of whole numbers as index counts rows; so does what is called step.
    counted = pd.DataFrame(rows, columns=NAMES).assign(step=range(12))
    np.testing.assert_array_equal(model().fit(counted).operator_, found.operator_)


def test_columns_without_text_as_names_are_taken_in_their_order():
    found = model().fit(pd.DataFrame(PARTS[0]))
    assert not hasattr(found, "feature_names_in_")
    assert found.predict(pd.DataFrame(PARTS[0])).columns.tolist() == [0, 1]


# The sampling interval


def test_times_give_dt_unless_another_is_given():
    assert model(dt=DT).fit(table()).dt_ == DT
    assert model(dt=DT * 1.001).fit(table()).dt_ == DT * 1.001
    message = r"samples of X are 0.25 apart by its times, but dt is 0.02: give dt=0.25, or resample"
    with pytest.raises(InputError, match=message):
        model(dt=0.02).fit(table())


def test_rounded_times_are_regular():
    rounded = table([RNG.normal(size=(40, 2))], dt=1 / 30)
    rounded["time"] = rounded["time"].round(3)
    assert model().fit(rounded).dt_ == pytest.approx(1 / 30, rel=1e-3)


def test_a_fitted_model_refuses_another_interval_and_keeps_its_own():
    fitted = model().fit(table())
    other = table(dt=0.5)
    for call in (fitted.predict, fitted.score, fitted.partial_fit, fitted.transform):
        with pytest.raises(InputError, match=r"0.5 apart by its times, but the model's dt is 0.25"):
            call(other)
    assert fitted.partial_fit(PARTS).dt_ == DT
    assert fitted.partial_fit(table()).dt_ == DT


def changed(column, row, value):
    made = table()
    made.loc[100 + row, column] = value
    return made


def refused(given, message):
    with pytest.raises(InputError, match=message) as caught:
        model().fit(given)
    assert "\n" not in str(caught.value)


MIXED = table().sort_values("time", kind="stable")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (MIXED, "segment 'run 0' comes back in row 3 of X: sort the rows by segment"),
        (changed("segment", 4, None), "X has a blank cell in row 4 of 'segment'"),
        (changed("segment", 4, " "), "X has a blank cell in row 4 of 'segment'"),
        (changed("segment", 4, pd.NA), "X has a blank cell in row 4 of 'segment'"),
        (changed("time", 10, np.nan), "segment 'run 1' of X has no time in row 10"),
        (
            changed("time", 10, 3.0),
            "segment 'run 1' of X has time 3 in row 10, not later than 3 in the row before: sort",
        ),
        (
            changed("time", 8, 9.0),
            r"samples of segment 'run 0' of X are 0.25 to 4.25 apart, the widest gap before row 8: "
            "resample to a regular interval, or make each",
        ),
        (table().drop(index=104), "are 0.25 to 0.5 apart, the widest gap before row 4"),
        (DATES.drop(index=104), "are 0.25 to 0.5 apart"),
        (table().assign(time="noon"), "the times of X are neither numbers nor dates, as 'noon'"),
        (table()[["segment", "time"]], r"X has no column of states, only \['segment', 'time'\]"),
        (
            pd.concat([table(PARTS[:1]), table(PARTS[1:], dt=0.5).replace("run 0", "a")]),
            "samples of segment 'a' of X are 0.5 apart and those of segment 'run 0' of X 0.25",
        ),
        (
            [table(), table(dt=0.5)],
            r"samples of X\[1\] are 0.5 apart and those of X\[0\] 0.25: resample them",
        ),
        (
            table().assign(lab=1, day=2).set_index(["lab", "day", "segment"]),
            "X has an index of the levels .*: name those that tell",
        ),
        (
            table([*PARTS, PARTS[0][:1]]),
            "segment 'run 3' of X has 1 sample, but training with n_delays=0, depth=1 needs",
        ),
        ([PARTS[0], table([PARTS[0][:1]])], r"segment 'run 0' of X\[1\] has 1 sample"),
        (changed("angle", 11, np.nan), "X has NaN in row 11, column 0"),
        (table()["angle"], r"X has shape \(27,\).*X.to_frame\(\)"),
        (table().iloc[:0], "X has 0 samples"),
    ],
)
def test_tables_are_refused_with_the_remedy(given, message):
    refused(given, message)


def test_the_rules_are_those_of_the_program():
    assert bookkeeping.BOOKKEEPING == row_blocks.BOOKKEEPING
    assert bookkeeping.REGULAR == observations.REGULAR
    assert bookkeeping.ON_GRID == time_grid.ON_GRID


# Tables come back


@pytest.mark.parametrize(("n_delays", "depth"), [(0, 1), (2, 1), (1, 3)])
def test_predictions_are_a_table_whose_times_are_those_of_the_predicted_states(n_delays, depth):
    given = table()
    fitted = model(n_delays=n_delays, depth=depth).fit(given)
    found = fitted.predict(given, 2)
    expected = [fitted.predict(part, 2) for part in PARTS]
    rows = [i for i in range(27) if i - (0 if i < 9 else 9 if i < 15 else 15) >= n_delays]
    assert found.columns.tolist() == ["segment", "time", *NAMES]
    assert found.index.tolist() == [100 + i for i in rows]
    assert found["segment"].tolist() == given["segment"].iloc[rows].tolist()
    np.testing.assert_allclose(found["time"], given["time"].iloc[rows] + 2 * depth * DT)
    np.testing.assert_allclose(found[NAMES], np.concatenate(expected), rtol=1e-10)
    # In an index, the instants move on too, so that truth and prediction align.
    indexed = given.set_index(["segment", "time"])
    aligned = indexed - fitted.predict(indexed, 2)
    assert aligned["angle"].notna().sum() == sum(
        max(0, len(part) - n_delays - 2 * depth) for part in PARTS
    )


def test_dates_move_on_by_seconds_and_keep_their_zone():
    found = model().fit(DATES).predict(DATES, 4)
    expected = DATES["time"] + pd.Timedelta(seconds=4 * DT)
    pd.testing.assert_series_equal(found["time"], expected, check_freq=False)
    indexed = DATES.set_index(["segment", "time"])
    levels = model().fit(indexed).predict(indexed, 4).index
    assert levels.get_level_values("time").tolist() == expected.tolist()


def test_whole_numbers_stay_whole():
    given = table(dt=2).astype({"time": int})
    assert model().fit(given).predict(given)["time"].tolist() == (given["time"] + 2).tolist()


def test_transform_keeps_the_index_and_gives_the_named_columns():
    given = table()
    fitted = model(n_delays=2).fit(given)
    lifted = fitted.transform(given)
    assert lifted.columns.tolist() == ["deepkoopman0", "deepkoopman1", "deepkoopman2"]
    assert lifted.columns.tolist() == fitted.get_feature_names_out().tolist()
    assert lifted.index[[0, 7, 11]].tolist() == [102, 111, 117]
    by_part = np.concatenate([fitted.transform(p) for p in PARTS])
    np.testing.assert_allclose(lifted, by_part, rtol=1e-12)
    back = fitted.inverse_transform(lifted)
    assert back.columns.tolist() == NAMES and back.index.equals(lifted.index)
    np.testing.assert_array_equal(back, fitted.inverse_transform(lifted.to_numpy()))
    spectral = fitted.eigenfunctions(given)
    assert spectral.columns[0] == "eigenfunction0" and spectral.index.equals(lifted.index)


def test_rows_of_lifted_states_may_be_in_any_order():
    indexed = table().set_index(["segment", "time"])
    fitted = model().fit(indexed)
    lifted = fitted.transform(indexed).sample(frac=1, random_state=0)
    assert fitted.inverse_transform(lifted).index.equals(lifted.index)


def test_a_list_gives_a_list_entry_by_entry():
    fitted = model().fit(table())
    first, second, third = fitted.predict([table(PARTS[:2]), PARTS[2], WAYS["index"]])
    pd.testing.assert_frame_equal(first, fitted.predict(table(PARTS[:2])), rtol=1e-10)
    np.testing.assert_allclose(second, fitted.predict(PARTS[2]), rtol=1e-10)
    pd.testing.assert_frame_equal(third, fitted.predict(WAYS["index"]), rtol=1e-10)


def test_other_tables_give_arrays():
    fitted = model().fit(WAYS["arrow"])
    by_part = np.concatenate([fitted.predict(part) for part in PARTS])
    np.testing.assert_allclose(fitted.predict(WAYS["arrow"]), by_part, rtol=1e-10)


def test_a_row_gives_a_row():
    fitted = model().fit(table())
    found = fitted.predict(table().iloc[4])
    assert found.index.tolist() == ["segment", "time", *NAMES]
    assert (found["segment"], found["time"]) == ("run 0", 3.0 + 5 * DT)
    expected = fitted.predict(PARTS[0][4])
    np.testing.assert_allclose(found[NAMES].astype(float), expected, rtol=1e-10)
    with pytest.raises(InputError, match=r"the columns \['speed', 'angle'\] but the model was"):
        fitted.predict(table().iloc[4][["speed", "angle"]])


def test_forecasts_have_one_entry_per_segment():
    fitted = model().fit(table())
    found, expected = fitted.forecast(table(), 3), fitted.forecast(PARTS, 3)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-10)
    assert found.mean.shape == (3, 3, 2)
    assert fitted.forecast(table(PARTS[:1]), 3).mean.shape == (3, 2)


# Simulations


def test_a_row_is_simulated_into_a_table():
    fitted = model(depth=2).fit(table())
    found = fitted.simulate(table().iloc[4], 3)
    assert found.index.tolist() == [1, 2, 3] and found.index.name == "step"
    np.testing.assert_allclose(found["time"], 3.0 + DT * (4 + 2 * np.array([1, 2, 3])))
    np.testing.assert_allclose(found[NAMES], fitted.simulate(PARTS[0][4], 3), rtol=1e-10)
    with pytest.raises(InputError, match=r"x0 has the columns \['speed', 'angle'\]"):
        fitted.simulate(table().iloc[4][["speed", "angle"]], 3)


def test_rows_are_simulated_into_segments_that_can_be_learned_from():
    fitted = model().fit(table())
    starts = table().iloc[[0, 9, 15]]
    found = fitted.simulate(starts, 4)
    assert found.index.names == ["segment", "step"]
    expected = fitted.simulate(PARTS[1][0], 4)
    np.testing.assert_allclose(found.loc["run 1", NAMES], expected, rtol=1e-10)
    again = model().fit(found)
    batch = fitted.simulate(np.stack([part[0] for part in PARTS]), 4)
    np.testing.assert_array_equal(again.operator_, model().fit(batch).operator_)
    assert again.dt_ == DT
    # Rows of one segment are told apart by the index.
    assert fitted.simulate(table().iloc[:2], 1).index.tolist() == [(100, 1), (101, 1)]


def test_with_delays_segments_are_windows():
    fitted = model(n_delays=2).fit(table())
    starts = table().groupby("segment").head(3)
    found = fitted.simulate(starts, 4)
    expected = fitted.simulate(np.stack([part[:3] for part in PARTS]), 4)
    np.testing.assert_allclose(found[NAMES], expected.reshape(-1, 2), rtol=1e-10)
    np.testing.assert_allclose(found["time"][:4], 3.0 + DT * np.arange(3, 7))
    single = fitted.simulate(pd.DataFrame(PARTS[0][:3], columns=NAMES), 4)
    np.testing.assert_allclose(single, expected[0], rtol=1e-10)
    assert single.index.tolist() == [1, 2, 3, 4]
    message = "segment 'run 0' of x0 has 9 rows, but n_delays=2 starts from 3"
    with pytest.raises(InputError, match=message):
        fitted.simulate(table(), 4)


def test_simulations_start_from_states_that_fit():
    fitted = model().fit(table())
    with pytest.raises(InputError, match="x0 has 1 columns of states: give 2"):
        fitted.simulate(table()[["angle"]], 3)
    with pytest.raises(InputError, match="x0 has no rows: give at least one state"):
        fitted.simulate(table().iloc[:0], 3)


# Outputs as asked for


def test_arrays_become_tables_if_asked():
    fitted = model().fit(PARTS)
    names = ["deepkoopman0", "deepkoopman1", "deepkoopman2"]
    assert isinstance(fitted.transform(PARTS[0]), np.ndarray)
    assert fitted.set_output(transform="pandas") is fitted
    found = fitted.transform(PARTS[0])
    assert isinstance(found, pd.DataFrame) and found.columns.tolist() == names
    assert [part.shape for part in fitted.transform(PARTS)] == [(9, 3), (6, 3), (12, 3)]
    assert all(isinstance(p, pd.DataFrame) for p in fitted.transform(np.stack([PARTS[0]] * 2)))
    assert fitted.transform(PARTS[0][0]).index.tolist() == names
    fitted.set_output(transform=None)
    assert isinstance(fitted.transform(PARTS[0]), pd.DataFrame)
    fitted.set_output(transform="default")
    assert isinstance(fitted.transform(PARTS[0]), np.ndarray)
    with pytest.raises(InputError, match="unknown output of transform 'polars'"):
        fitted.set_output(transform="polars")


def test_pandas_is_never_imported_for_arrays():
    code = (
        "import sys, numpy as np, fedkoopman as fk\n"
        "m = fk.DeepKoopman(3, width=4, epochs=1).fit(np.random.rand(9, 2))\n"
        "m.predict(np.ones((4, 2))), m.transform(np.ones((4, 2))), m.simulate(np.ones(2), 3)\n"
        "assert not {'pandas', 'sklearn'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
