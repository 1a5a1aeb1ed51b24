"""A file is read whole and alike from every format, and a bad one is named with its cell."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import scipy.io

from fedkoopman.config.sensor_file import in_flat_words, site_of_file
from fedkoopman.data.observations import Observations, columns_taken, observations_of
from fedkoopman.errors import InputError

NAN = np.nan


def read_observations(path: Path, **about: Any) -> Observations:
    """A file as `fedkoopman estimate` reads it."""
    with in_flat_words():
        return observations_of(site_of_file(path, **about))


def csv(folder: Path, text: str) -> Path:
    path = folder / "site.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_all_formats_give_the_same_observations(tmp_path: Path) -> None:
    z = np.array([[1.0, 2.5], [NAN, -4.0], [5.0, NAN]])
    np.save(tmp_path / "z.npy", z)
    np.savez(tmp_path / "z.npz", z)
    pa_parquet.write_table(
        pa.table({"a": pa.array(z[:, 0], from_pandas=True), "b": z[:, 1]}), tmp_path / "z.parquet"
    )
    (tmp_path / "z.csv").write_text("a,b\n1,2.5\n,-4\n5,NaN\n", encoding="utf-8")
    scipy.io.savemat(tmp_path / "z.mat", {"z": z, "fs": 50.0})
    for suffix in ("npy", "npz", "parquet", "csv", "mat"):
        found = read_observations(tmp_path / f"z.{suffix}")
        assert found.labels is None
        np.testing.assert_array_equal(found.trajectories[0], z)


@pytest.mark.parametrize("blank", ["", " ", "NaN", "nan", "NA", "null"])
def test_spellings_of_a_missing_cell(tmp_path: Path, blank: str) -> None:
    found = read_observations(csv(tmp_path, f"a, b\n1,{blank}\n 2 ,3\n"))
    np.testing.assert_array_equal(found.trajectories[0], [[1, NAN], [2, 3]])


def test_a_blank_line_is_missing_where_there_is_one_column(tmp_path: Path) -> None:
    found = read_observations(csv(tmp_path, "a\n1\n\n3\n"))
    np.testing.assert_array_equal(found.trajectories[0], [[1], [NAN], [3]])


def test_columns_come_in_the_order_asked_for(tmp_path: Path) -> None:
    found = read_observations(csv(tmp_path, "a,b,note\n1,2,x\n3,4,y\n"), columns=["b", "a"])
    np.testing.assert_array_equal(found.trajectories[0], [[2, 1], [4, 3]])


def test_bookkeeping_columns_are_not_observations(tmp_path: Path) -> None:
    found = read_observations(csv(tmp_path, "step,time,z\n1,0.5,7\n2,1.0,8\n"))
    np.testing.assert_array_equal(found.trajectories[0], [[7], [8]])
    assert found.times is not None
    np.testing.assert_array_equal(found.times[0], [0.5, 1.0])


@pytest.mark.parametrize("column", ["segment", "run"])
def test_segments_are_of_any_length(tmp_path: Path, column: str) -> None:
    path = csv(tmp_path, f"{column},z\nb,1\nb,3\na,2\n")
    found = read_observations(path, segment=None if column == "segment" else column)
    assert found.labels == ("b", "a")
    np.testing.assert_array_equal(found.trajectories[0], [[1], [3]])
    np.testing.assert_array_equal(found.trajectories[1], [[2]])


def test_columns_that_are_taken_unasked_are_told(tmp_path: Path) -> None:
    path = csv(tmp_path, "segment,time,z\na,1,1\n")
    told = columns_taken(site_of_file(path))
    assert "the column 'segment' tells segments apart and the column 'time' gives" in told
    told = columns_taken(site_of_file(path, segment="segment"), "--{}-column ''")
    assert told.endswith("site.csv the column 'time' gives the sampling instants: give "
                         "--time-column '' to do without")  # fmt: skip
    assert columns_taken(site_of_file(path, segment="segment", time="")) == ""
    assert read_observations(path, segment="", time="").labels is None


def test_a_batch_array_is_several_trajectories(tmp_path: Path) -> None:
    z = np.arange(12.0).reshape(2, 3, 2)
    np.save(tmp_path / "z.npy", z)
    np.savez(tmp_path / "z.npz", z)
    for name in ("z.npy", "z.npz"):
        found = read_observations(tmp_path / name)
        assert found.labels == ("0", "1")
        np.testing.assert_array_equal(found.trajectories, z)


def test_arrays_of_an_npz_are_trajectories_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", monday=np.zeros((4, 2)), tuesday=np.ones((3, 2)))
    found = read_observations(tmp_path / "z.npz")
    assert found.labels == ("monday", "tuesday")
    assert [z.shape for z in found.trajectories] == [(4, 2), (3, 2)]


def test_regular_times_give_one_interval(tmp_path: Path) -> None:
    # the rounding of printed times is not irregular sampling
    rows = "".join(f"{s},{k * 0.3333:.3f},1\n" for s in "ab" for k in range(9))
    found = read_observations(csv(tmp_path, "segment,time,z\n" + rows))
    assert found.intervals() == pytest.approx(0.3333, rel=1e-3)


def test_irregular_times_give_one_interval_per_sample(tmp_path: Path) -> None:
    found = read_observations(csv(tmp_path, "time,z\n0,1\n1,2\n2,3\n5,4\n"))
    intervals = found.intervals()
    assert isinstance(intervals, tuple)
    np.testing.assert_array_equal(intervals[0], [1, 1, 1, 3])


def test_without_times_there_are_no_intervals(tmp_path: Path) -> None:
    assert read_observations(csv(tmp_path, "z\n1\n2\n")).intervals() is None
    assert read_observations(csv(tmp_path, "time,z\n3,1\n")).intervals() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "site.csv is empty"),
        ("\n", "begins with a blank line"),
        ("a,b\n", "has no rows"),
        ("1,2\n3,4\n", r"begins with numbers \(1, 2\)"),
        ("a;b\n1;2\n", "separates its cells by ';'"),
        ("a,a\n1,2\n", "several columns named 'a'"),
        ("a,b\n1,2\n3,low\n", r"line 3 of .*site.csv holds 'low' in column 'b'"),
        ("a,b\n1,2\n3\n", r"line 3 of .*site.csv has 1 cells"),
        ("a,b\n1,2,3\n", r"line 2 of .*site.csv has 3 cells"),
        ("a,b\n1,inf\n", r"row 1 of .*\(line 2\) holds inf in column 'b'"),
        ("a,b\n,\nNaN,\n", r"every observation in .*site.csv is missing"),
        ("segment,time\nx,1\n", "no column of observations"),
        ("segment,a\nx,1\n,2\n", r"row 2 of .* has a blank cell in column 'segment'"),
        ("time,a\n1,1\n1,2\n", "has time 1, which the row before has too"),
        ("segment,a\nx,1\ny,2\nx,3\n", r"'x' comes back in row 3 of .*: sort the rows by segment"),
        ("time,a\n1,1\n,2\n", r"row 2 of .* has time nan"),
    ],
)
def test_a_bad_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_observations(csv(tmp_path, text))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["a", "c"]}, r"unknown column of .*site.csv 'c'"),
        ({"columns": ["a", "a"]}, "columns names 'a' twice"),
        ({"segment": "seg"}, r"unknown column of .*site.csv 'seg'"),
        ({"time": "when"}, r"unknown column of .*site.csv 'when'"),
    ],
)
def test_a_column_that_is_not_there_is_refused(
    tmp_path: Path, options: dict[str, list[str]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_observations(csv(tmp_path, "a,b\n1,2\n"), **options)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((2, 3, 4, 5))}, r"shape \(2, 3, 4, 5\)"),
        ({"z": np.zeros((0, 2))}, "has no rows"),
        ({"z": np.array(["a", "b"])}, "holds <U1, not numbers"),
        ({"z": np.zeros(3, complex)}, "holds complex128, not numbers"),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((3, 1))},
            r"array 'b' of .*z.npz has 1 observed columns",
        ),
        (
            {"a": np.zeros((3, 2)), "b": np.zeros((2, 3, 2))},
            r"'b' of .*z.npz has shape \(2, 3, 2\)",
        ),
        ({"a": np.zeros((3, 2)), "b": np.zeros((0, 2))}, r"array 'b' of .*z.npz has shape"),
        ({}, "holds no array"),
    ],
)
def test_bad_arrays_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "z.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        read_observations(tmp_path / "z.npz")


@pytest.mark.parametrize("name", ["z.npy", "z.npz", "z.parquet", "z.csv", "z.mat"])
def test_a_file_that_is_not_what_its_suffix_says_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x00\xff\xfe not a table")
    with pytest.raises(InputError, match=name):
        read_observations(tmp_path / name)


def test_text_in_parquet_is_refused(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"a": ["low", "high"]}), tmp_path / "z.parquet")
    with pytest.raises(InputError, match=r"column 'a' .* holds string"):
        read_observations(tmp_path / "z.parquet")


def test_arrays_have_no_named_columns(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.zeros((3, 2)))
    with pytest.raises(InputError, match="array without names but --segment-column is given"):
        read_observations(tmp_path / "z.npy", segment="run")


def test_variables_of_a_mat_file_are_columns(tmp_path: Path) -> None:
    variables = {"a": [1, 2, 3], "b": [4, 5, 6], "time": [0.0, 0.5, 1.0], "segment": [7, 7, 3]}
    scipy.io.savemat(tmp_path / "z.mat", variables)
    found = read_observations(tmp_path / "z.mat", columns=["b", "a"])
    assert found.labels == ("7", "3")
    np.testing.assert_array_equal(found.trajectories[0], [[4, 1], [5, 2]])
    np.testing.assert_array_equal(found.trajectories[1], [[6, 3]])
    assert found.times is not None
    np.testing.assert_array_equal(found.times[0], [0.0, 0.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "not one variable of observations but a, b"),
        ({"columns": ["a", "c"]}, r"unknown variable of .*z.mat 'c'"),
        ({"columns": ["a"], "segment": "run"}, r"unknown variable of .*z.mat 'run'"),
        ({"columns": ["a"], "time": "when"}, r"unknown variable of .*z.mat 'when'"),
    ],
)
def test_variables_that_are_not_there_are_refused(
    tmp_path: Path, options: dict[str, list[str]], message: str
) -> None:
    scipy.io.savemat(tmp_path / "z.mat", {"a": [1, 2], "b": [3, 4]})
    with pytest.raises(InputError, match=message):
        read_observations(tmp_path / "z.mat", **options)
