"""Segments are the same from every format and block size, bounded in memory, and checked."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.segments import Segment, segments
from fedkoopman.errors import InputError

NAN = np.nan
DT = 0.5


def site_in(folder: Path, files: Any = "z.csv", **data: Any) -> SiteFile:
    table = {"name": "lab", "data": {"files": files, **data}, "sensor": {"kind": "identity"}}
    return SiteFile.from_dict(table, folder / "site.toml")


def read(folder: Path, files: Any = "z.csv", **data: Any) -> list[Segment]:
    return list(segments(site_in(folder, files, **data), DT))


def csv(folder: Path, text: str, name: str = "z.csv") -> None:
    (folder / name).write_text(text, encoding="utf-8")


# the same rows in every format: segment, time, input, two observed columns
LABELS = np.array(["a"] * 4 + ["b"] * 3)
TIMES = np.array([0.0, 0.5, 1.5, 2.0, 7.0, 7.5, 8.0])
INPUT = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
Z = np.array([[1, 2], [3, NAN], [NAN, NAN], [7, 8], [9, 10], [11, 12], [13, 14.0]])


def write_csv(folder: Path) -> str:
    rows = zip(LABELS, TIMES, INPUT, *Z.T, strict=True)
    lines = [",".join("" if str(c) == "nan" else str(c) for c in row) for row in rows]
    csv(folder, "\n".join(["s,t,u,x,y", *lines]) + "\n")
    return "z.csv"


def write_parquet(folder: Path) -> str:
    table = {"s": LABELS, "t": TIMES, "u": INPUT, "x": Z[:, 0]}
    columns = table | {"y": pa.array(Z[:, 1], from_pandas=True)}
    pa_parquet.write_table(pa.table(columns), folder / "z.parquet", row_group_size=3)
    return "z.parquet"


def write_npz(folder: Path) -> str:
    np.savez(folder / "z.npz", s=LABELS, t=TIMES, u=INPUT, x=Z[:, 0], y=Z[:, 1:])
    return "z.npz"


def write_mat(folder: Path) -> str:
    cells = np.array([[label] for label in LABELS], dtype=object)
    variables = {"s": cells, "t": TIMES, "u": INPUT, "x": Z[:, 0], "y": Z[:, 1:], "fs": 2.0}
    scipy.io.savemat(folder / "z.mat", variables)
    return "z.mat"


def write_mat_texts(folder: Path) -> str:
    variables = {"s": LABELS, "t": TIMES, "u": INPUT, "x": Z[:, 0], "y": Z[:, 1:]}
    scipy.io.savemat(folder / "z.mat", variables, do_compression=True)
    return "z.mat"


@pytest.mark.parametrize("write", [write_csv, write_parquet, write_npz, write_mat, write_mat_texts])
def test_all_formats_give_the_same_segments(tmp_path: Path, write: Callable[[Path], str]) -> None:
    a, b = read(
        tmp_path,
        write(tmp_path),
        columns=["y", "x"],
        segment="s",
        time="t",
        inputs=["u"],
        scale=[10, 1],
        shift=[0, 0.5],
    )
    assert (a.site, a.name, b.name, a.cut, a.gaps, b.gaps) == ("lab", "a", "b", False, 1, 0)
    assert (a.start_time, b.start_time) == (0.0, 7.0)
    assert a.channels == ("y", "x")
    assert a.inputs is not None and b.inputs is not None
    # the instant 1.0 is not in the file, and at 1.5 nothing was observed: one gap of two samples
    wanted = [[20, 1.5], [NAN, 3.5], [NAN, NAN], [NAN, NAN], [80, 7.5]]
    np.testing.assert_array_equal(a.observations, wanted)
    np.testing.assert_array_equal(a.inputs, [[1], [2], [2], [3], [4]])
    np.testing.assert_array_equal(b.observations, [[100, 9.5], [120, 11.5], [140, 13.5]])
    np.testing.assert_array_equal(b.inputs, [[5], [6], [7]])


def test_files_are_segments_where_no_column_tells_them_apart(tmp_path: Path) -> None:
    csv(tmp_path, "x\n1\n\n3\n", "run2.csv")
    csv(tmp_path, "x\n5\n", "run1.csv")
    first, second = read(tmp_path, "*.csv")
    assert (first.name, second.name) == ("run1", "run2")
    np.testing.assert_array_equal(second.observations, [[1], [NAN], [3]])
    assert (second.start_time, second.gaps, second.inputs) == (0.0, 1, None)


def test_labels_of_several_files_do_not_mix(tmp_path: Path) -> None:
    for name in ("mon.csv", "tue.csv"):
        csv(tmp_path, "s,x\n1,1\n1,2\n2,3\n", name)
    names = [found.name for found in read(tmp_path, "*.csv", columns=["x"], segment="s")]
    assert names == ["mon:1", "mon:2", "tue:1", "tue:2"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("mon", "tue"):
        (tmp_path / folder).mkdir()
        csv(tmp_path / folder, "x\n1\n")
    assert [s.name for s in read(tmp_path, "*/z.csv")] == ["mon/z.csv", "tue/z.csv"]


def test_without_columns_all_that_is_left_is_observed(tmp_path: Path) -> None:
    csv(tmp_path, "step,time,u,a,b\n1,0,7,1,2\n2,0.5,8,3,4\n")
    [found] = read(tmp_path, inputs=["u"])
    assert found.channels == ("a", "b")
    np.testing.assert_array_equal(found.observations, [[1, 2], [3, 4]])


def test_plain_arrays_are_segments(tmp_path: Path) -> None:
    batch = np.arange(12.0).reshape(2, 3, 2)
    np.save(tmp_path / "batch.npy", batch)
    np.save(tmp_path / "one.npy", np.asfortranarray(batch[0]).astype(np.float32))
    np.save(tmp_path / "vector.npy", np.arange(3))
    np.savez(tmp_path / "several.npz", mon=batch[0], tue=batch[1][:2])
    scipy.io.savemat(tmp_path / "m.mat", {"Z": batch[1], "fs": 50.0})
    found = read(tmp_path, "batch.npy")
    assert [s.name for s in found] == ["0", "1"]
    np.testing.assert_array_equal([s.observations for s in found], batch)
    [one] = read(tmp_path, "one.npy")
    assert (one.name, one.observations.dtype) == ("one", np.float64)
    np.testing.assert_array_equal(one.observations, batch[0])
    [vector] = read(tmp_path, "vector.npy")
    np.testing.assert_array_equal(vector.observations, [[0], [1], [2]])
    found = read(tmp_path, ["several.npz", "one.npy"])
    assert [s.name for s in found] == ["several:mon", "several:tue", "one"]
    [matrix] = read(tmp_path, "m.mat")
    assert matrix.channels == ("Z 1", "Z 2")
    np.testing.assert_array_equal(matrix.observations, batch[1])


def test_columns_with_the_usual_names_are_taken(tmp_path: Path) -> None:
    csv(tmp_path, "segment,time,x\na,0,1\na,1,2\nb,5,3\n")
    a, b = read(tmp_path)
    assert (a.name, b.name, a.channels) == ("a", "b", ("x",))
    np.testing.assert_array_equal(a.observations, [[1], [NAN], [2]])
    [found] = read(tmp_path, segment="", time="")
    assert (found.name, found.channels) == ("z", ("x",))
    np.testing.assert_array_equal(found.observations, [[1], [2], [3]])
    scipy.io.savemat(tmp_path / "z.mat", {"x": [1.0, 2.0], "time": [0.0, 1.0]})
    [found] = read(tmp_path, "z.mat")
    np.testing.assert_array_equal(found.observations, [[1], [NAN], [2]])


def test_long_arrays_are_mapped_in_blocks(tmp_path: Path) -> None:
    z = np.arange(200_001.0)[:, None]
    np.save(tmp_path / "z.npy", z)
    found = read(tmp_path, "z.npy", longest=50_000)
    assert [len(s.observations) for s in found] == [50_000, 50_000, 50_000, 25_001, 25_000]
    np.testing.assert_array_equal(np.concatenate([s.observations for s in found]), z)


def test_long_segments_are_cut_into_pieces_of_like_length(tmp_path: Path) -> None:
    csv(tmp_path, "x\n" + "".join(f"{i}\n" for i in range(25)))
    found = read(tmp_path, longest=10)
    assert [(s.name, len(s.observations), s.cut) for s in found] == [
        ("z.1", 10, True),
        ("z.2", 8, True),
        ("z.3", 7, True),
    ]
    assert [s.start_time for s in found] == [0.0, 5.0, 9.0]
    np.testing.assert_array_equal(np.concatenate([s.observations for s in found])[:, 0], range(25))


def test_a_gap_at_a_cut_belongs_to_no_piece(tmp_path: Path) -> None:
    times = [0.0, 0.5, 1.0, 900.0, 900.5, 901.0]
    csv(tmp_path, "t,x\n" + "".join(f"{t},1\n" for t in times))
    found = read(tmp_path, columns=["x"], time="t", longest=10)
    assert [(len(s.observations), s.start_time, s.gaps) for s in found] == [(3, 0, 0), (3, 900, 0)]


@st.composite
def recordings(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A CSV file of some segments with times, gaps, blanks and jitter, and how to read it."""
    jitter = draw(st.booleans())
    lines = ["s,t,x,y"]
    for label in range(draw(st.integers(1, 4))):
        k = 0
        for _ in range(draw(st.integers(1, 40))):
            k += draw(st.sampled_from([1, 1, 1, 1, 1, 2, 5]))
            late = draw(st.integers(-9, 9)) / 40 if jitter else 0.0
            x = draw(st.sampled_from(["", "1.25", "-3", " 7", "    ", "+2.5"]))
            lines.append(f"run{label},{DT * (k + late)},{x},{k}")
    options = {"off_grid": "resample" if jitter else "refuse", "longest": draw(st.integers(2, 60))}
    return "\n".join(lines) + "\n", options


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(recordings(), st.integers(40, 400))
def test_the_size_of_blocks_does_not_matter(
    tmp_path: Path, recording: tuple[str, dict[str, Any]], block_bytes: int
) -> None:
    text, options = recording
    csv(tmp_path, text)
    site = site_in(tmp_path, columns=["x", "y"], segment="s", time="t", **options)
    try:
        whole = list(segments(site, DT))
    except InputError as error:
        assert "every observation" in str(error)
        return
    parts = list(segments(site, DT, block_bytes=block_bytes))
    assert [s.name for s in parts] == [s.name for s in whole]
    for part, one in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(part.observations, one.observations)
        assert (part.start_time, part.cut, part.gaps) == (one.start_time, one.cut, one.gaps)
        assert len(one.observations) <= options["longest"]


def test_resampled_columns_lie_between_their_neighbours(tmp_path: Path) -> None:
    csv(tmp_path, "t,x,u\n0,0,1\n0.4,4,2\n0.9,9,3\n1.6,16,4\n3.0,30,5\n3.5,35,6\n")
    options = {"columns": ["x"], "time": "t", "inputs": ["u"], "off_grid": "resample"}
    [found] = read(tmp_path, **options)
    wanted = [0, 5, 10, 15, NAN, NAN, 30, 35]
    np.testing.assert_allclose(found.observations[:, 0], wanted, rtol=1e-12)
    assert found.inputs is not None
    np.testing.assert_array_equal(found.inputs[:, 0], [1, 3, 4, 4, 4, 4, 5, 6])


def peak_memory(site: SiteFile) -> tuple[int, int]:
    """Bytes of arrays at the height of a pass over a site, and how many segments there were."""
    list(segments(site, DT, block_bytes=1 << 16))  # what is loaded once does not count
    count = 0
    tracemalloc.start()
    for found in segments(site, DT, block_bytes=1 << 16):
        count += len(found.observations) > 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, count


@pytest.mark.parametrize("suffix", ["csv", "parquet", "npy"])
def test_memory_does_not_grow_with_the_number_of_segments(tmp_path: Path, suffix: str) -> None:
    rows, peaks = 10_000, []
    for count in (30, 120):
        k = np.arange(count * rows)
        path = tmp_path / f"z{count}.{suffix}"
        table = pa.table({"s": k // rows, "x": k % 7})
        if suffix == "npy":
            np.save(path, np.sin(k).reshape(count, rows, 1))
        elif suffix == "parquet":
            pa_parquet.write_table(table, path)  # in one row group
        else:
            pa_csv.write_csv(table, path)
        named: dict[str, Any] = {} if suffix == "npy" else {"columns": ["x"], "segment": "s"}
        peak, found = peak_memory(site_in(tmp_path, path.name, **named))
        assert found == count
        peaks.append(peak)
    assert peaks[1] < 1.3 * peaks[0]
    # a few copies of a segment or a chunk, and far from all observations
    assert peaks[1] < 120 * rows * 8 / 3


def test_a_long_segment_is_never_whole_in_memory(tmp_path: Path) -> None:
    rows = 400_000
    k = np.arange(rows)
    pa_csv.write_csv(pa.table({"t": k * DT, "x": k % 7}), tmp_path / "z.csv")
    peak, count = peak_memory(site_in(tmp_path, columns=["x"], time="t", longest=5_000))
    assert count == 80
    assert peak < rows * 8 / 3


def test_progress_ends_where_the_files_do(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        csv(tmp_path, "x\n" + "1\n" * 500, name)
    told: list[tuple[int, int]] = []
    site = site_in(tmp_path, "*.csv")
    list(segments(site, DT, progress=lambda d, t: told.append((d, t)), block_bytes=100))
    size = 2 * (tmp_path / "a.csv").stat().st_size
    assert told[-1] == (size, size)
    assert len(told) > 10
    assert told == sorted(told)


def refused(folder: Path, files: Any = "z.csv", **data: Any) -> str:
    """The one line that a bad file ends in."""
    with pytest.raises(InputError) as raised:
        read(folder, files, **data)
    message = str(raised.value)
    assert "\n" not in message
    return message


TIMED = {"columns": ["x"], "time": "t"}
NAMED = {"columns": ["x"], "segment": "s"}


@pytest.mark.parametrize(
    ("text", "data", "says"),
    [
        ("x;y\n1;2\n", {"columns": ["x"]}, ("z.csv separates its cells by ';'",)),
        ("x\ty\n1\t2\n", {"columns": ["x"]}, (r"z.csv separates its cells by '\t'",)),
        ("1,2\n3,4\n", {"columns": ["x"]}, ("z.csv begins with numbers (1, 2)", "first line")),
        ("run,2.5\nrun,4\n", {"columns": ["x"]}, ("no column 'x'", "'run,2.5'", "first line")),
        ("\nx\n1\n", {"columns": ["x"]}, ("z.csv begins with a blank line",)),
        ("x,x\n1,2\n", {"columns": ["x"]}, ("several columns named 'x'",)),
        ("x,y\n1,2\n3,low\n", {"columns": ["y"]}, ("line 3 of", "z.csv holds 'low'", "'y'")),
        ("x,y\n1,2\n3\n", {"columns": ["x"]}, ("line 3 of", "z.csv has 1 cells", "names 2")),
        (
            "x\n1\nNaN\n1e300\n",
            {},
            (
                "row 3 of",
                "z.csv (line 4) holds 1e+300 in column 'x'",
            ),
        ),
        ("x,y\n1,2\n\n1,-inf\n", {}, ("row 2 of", "(line 4) holds -inf in column 'y'")),
        ("x\n", {}, ("z.csv has no rows",)),
        ("x,y\nNaN,\n,NA\n", {}, ("every observation in", "z.csv is missing")),
        ("angle\n1\n", {"columns": ["angel"]}, ("column of", "'angel': did you mean 'angle'?")),
        ("x\n1\n", {"columns": ["x"], "inputs": ["u"]}, ("unknown column of", "'u'")),
        ("x\n1\n", {"columns": ["x"], "segment": "s"}, ("unknown column of", "'s'")),
        ("x\n1\n", {"columns": ["x"], "time": "t"}, ("unknown column of", "'t'")),
        ("step,time\n1,2\n", {}, ("has no column of observations", "data.columns")),
        ("x,u\n1,1\n2,\n", {"columns": ["x"], "inputs": ["u"]}, ("row 2 of", "nan in column 'u'")),
        ("s,x\na,1\n,2\n", NAMED, ("row 2 of", "(line 3) has a blank cell in column 's'")),
        (
            "s,x\na,1\nb,2\na,3\n",
            NAMED,
            ("segment 'a' comes back in row 3 of", "(line 4): sort the rows by segment"),
        ),
        ("t,x\n0,1\nnoon,2\n", TIMED, ("line 3 of", "holds 'noon' in column 't'")),
        (
            "t,x\n0,1\n,2\n",
            TIMED,
            (
                "row 2 of",
                "(line 3) has time nan",
            ),
        ),
        ("t,x\n0,1\n0.5,2\n0.5,3\n", TIMED, ("row 3 of", "time 0.5, which the row before has")),
        ("t,x\n0,1\n1,2\n0.5,3\n", TIMED, ("row 3 of", "time 0.5, which goes back from 1")),
        ("t,x\n0,1\n0.5,2\n1.2,3\n1.5,3\n", TIMED, ("row 3 of", "1.2, off the grid", "dt = 0.5")),
        (
            "t,x\n0,1\n0.2,2\n0.4,3\n",
            TIMED,
            (
                "samples of",
                "are 0.2 apart but the study's dt is 0.5: set system.parameters.dt",
            ),
        ),
        (
            "t,x\n0,1\n500,2\n1000,3\n",
            TIMED,
            ("are 500 apart but the study's dt is 0.5", "check the unit of the time column"),
        ),
        (
            "x,y\n1,2\n",
            {"scale": [1, 2, 3]},
            ("data.scale has 3 numbers but", "z.csv has 2 components"),
        ),
    ],
)
def test_a_bad_table_is_refused(
    tmp_path: Path, text: str, data: dict[str, Any], says: tuple[str, ...]
) -> None:
    csv(tmp_path, text)
    message = refused(tmp_path, **data)
    for words in says:
        assert words in message


def test_the_unit_of_time_is_judged_before_anything_is_cut(tmp_path: Path) -> None:
    # every sample would be a piece of its own
    csv(tmp_path, "t,x\n" + "".join(f"{1000 * i},1\n" for i in range(3000)))
    assert "are 1000 apart but the study's dt is 0.5" in refused(tmp_path, **TIMED, longest=10)


def test_a_far_row_is_named_by_its_number_and_line(tmp_path: Path) -> None:
    csv(tmp_path, "s,x\n" + "a,1\n" * 150_000 + "\nb,2\na,3\n")
    assert "comes back in row 150002 of" in refused(tmp_path, **NAMED)
    csv(tmp_path, "x,y\n" + "1,1\n" * 150_000 + "\n1,oops\n")
    assert "line 150003 of" in refused(tmp_path)


def test_a_message_names_the_path_as_the_user_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab" / "data").mkdir(parents=True)
    csv(tmp_path / "lab" / "data", "t,x\n0,1\n0.2,2\n")
    message = refused(Path("lab"), "data/z.csv", **TIMED)
    assert message.startswith("samples of lab/data/z.csv are 0.2 apart")


@pytest.mark.parametrize(
    ("name", "content", "data", "says"),
    [
        ("z.npy", b"not an array", {}, "z.npy is not a NumPy file of numbers"),
        ("z.npy", b"\x93NUMPY\x01\x00", {}, "z.npy is not a NumPy file of numbers, or not whole"),
        ("z.npz", b"not an archive", {}, "z.npz is not a NumPy file of numbers"),
        ("z.parquet", b"not a table", {}, "z.parquet as Parquet"),
        ("z.csv", b"\xff\xfe\x00x", {}, "z.csv is not a text file in UTF-8"),
        ("z.mat", b"not a matrix" * 20, {}, "z.mat is not a MAT file, or not whole"),
        (
            "z.mat",
            b"MATLAB 7.3 MAT-file" + b" " * 500,
            {},
            "version 7.3",
        ),
        ("z.mat", b"\x89HDF\r\n\x1a\n" + b" " * 500, {}, "z.mat is not a MAT file of version 7.3"),
    ],
)
def test_a_file_that_is_not_what_its_suffix_says_is_refused(
    tmp_path: Path, name: str, content: bytes, data: dict[str, Any], says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert says in refused(tmp_path, name, **data)


@pytest.mark.parametrize(
    ("array", "data", "says"),
    [
        (np.zeros((2, 3, 4, 5)), {}, "z.npy has shape (2, 3, 4, 5)"),
        (np.zeros((0, 2)), {}, "z.npy has no rows"),
        (np.zeros(()), {}, "z.npy has shape ()"),
        (np.array(["a"]), {}, "z.npy holds <U1, not numbers"),
        (np.zeros(3, complex), {}, "z.npy holds complex128, not numbers"),
        (np.array([{}]), {}, "z.npy holds Python objects, which are never loaded"),
        (np.array([[1.0, np.inf]]), {}, "row 1 of"),
        (np.full((3, 1), NAN), {}, "every observation in"),
        (np.zeros((3, 1)), {"columns": ["x"]}, "array without names but data.columns is given"),
        (np.zeros((3, 1)), {"time": "t"}, "array without names but data.time is given"),
    ],
)
def test_a_bad_array_is_refused(
    tmp_path: Path, array: np.ndarray, data: dict[str, Any], says: str
) -> None:
    np.save(tmp_path / "z.npy", array, allow_pickle=True)
    assert says in refused(tmp_path, "z.npy", **data)


@pytest.mark.parametrize(
    ("variables", "data", "says"),
    [
        ({"x": np.zeros(3)}, {"columns": ["y"]}, "unknown variable of"),
        ({"angle": np.zeros(3)}, {"columns": ["angel"]}, "did you mean 'angle'?"),
        ({"x": np.zeros(3), "y": np.zeros(2)}, {"columns": ["x", "y"]}, "'y' of"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3)}, {"columns": ["x", "y"]}, "shape (3, 2)"),
        ({"x": np.zeros(3), "t": np.zeros(4)}, TIMED, "'t' of"),
        ({"x": np.zeros(3), "s": np.zeros(4)}, NAMED, "segments of 4 samples but there are 3"),
        ({"x": np.zeros(3), "s": np.array([1, NAN, 2])}, NAMED, "is blank in row 2"),
        ({"x": np.zeros(3), "s": np.array([1.0, 2, 1])}, NAMED, "segment '1' comes back in row 3"),
        ({"x": np.array(["abc"])}, {"columns": ["x"]}, "not numbers"),
    ],
)
@pytest.mark.parametrize("suffix", ["mat", "npz"])
def test_bad_variables_are_refused(
    tmp_path: Path, variables: dict[str, Any], data: dict[str, Any], says: str, suffix: str
) -> None:
    if suffix == "mat":
        scipy.io.savemat(tmp_path / "z.mat", variables)
    else:
        np.savez(tmp_path / "z.npz", **variables)
    assert says in refused(tmp_path, f"z.{suffix}", **data)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"x": np.zeros(3), "y": np.zeros(3)}, "not one variable of observations but x, y"),
        ({"c": np.array([[np.zeros(3)], [np.zeros(2)]], dtype=object)}, "holds a cell array"),
        ({"q": {"x": np.zeros(3)}}, "not numbers"),
        ({"x": np.zeros((2, 3, 4))}, "has shape (2, 3, 4)"),
    ],
)
def test_a_mat_file_without_a_matrix_is_refused(
    tmp_path: Path, variables: dict[str, Any], says: str
) -> None:
    scipy.io.savemat(tmp_path / "z.mat", variables)
    assert says in refused(tmp_path, "z.mat")


def test_a_truncated_mat_file_is_refused(tmp_path: Path) -> None:
    scipy.io.savemat(tmp_path / "z.mat", {"x": np.arange(5000.0)}, do_compression=True)
    content = (tmp_path / "z.mat").read_bytes()
    (tmp_path / "z.mat").write_bytes(content[: len(content) // 2])
    assert "z.mat is not a MAT file, or not whole" in refused(tmp_path, "z.mat", columns=["x"])


def test_text_in_parquet_is_refused(tmp_path: Path) -> None:
    pa_parquet.write_table(pa.table({"x": ["low"], "s": [[1]]}), tmp_path / "z.parquet")
    assert "holds string, not numbers" in refused(tmp_path, "z.parquet", columns=["x"])
    pa_parquet.write_table(pa.table({"x": [1.0], "s": [[1]]}), tmp_path / "z.parquet")
    assert "store names or numbers" in refused(tmp_path, "z.parquet", **NAMED)


def test_files_of_one_site_are_alike(tmp_path: Path) -> None:
    csv(tmp_path, "x,y\n1,2\n", "a.csv")
    csv(tmp_path, "x\n1\n", "b.csv")
    assert "b.csv has 1 observed columns but" in refused(tmp_path, ["a.csv", "b.csv"])
    csv(tmp_path, "x,v\n1,2\n", "b.csv")
    assert "b.csv has the columns x, v but" in refused(tmp_path, ["a.csv", "b.csv"])
    np.savez(tmp_path / "z.npz", a=np.zeros((3, 2)), b=np.zeros((3, 1)))
    assert "array 'b' of" in refused(tmp_path, "z.npz")


def test_columns_that_do_not_fit_the_sensor_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.zeros((5, 3)))
    table: dict[str, Any] = {"name": "lab", "data": {"files": "z.npy"}}
    sensor = {"kind": "linear", "matrix": [[1, 0], [0, 1]]}
    site = SiteFile.from_dict({**table, "sensor": sensor}, tmp_path / "site.toml")
    with pytest.raises(InputError, match=r"matrix has 2 rows but .*z\.npy has 3 components"):
        next(segments(site, DT))
    csv(tmp_path, "a,b\n1,2\n")
    table["data"] = {"files": "z.csv", "columns": ["a"]}
    site = SiteFile.from_dict({**table, "sensor": sensor}, tmp_path / "site.toml")
    with pytest.raises(InputError, match=r"matrix has 2 rows but .*z\.csv has 1 component:"):
        next(segments(site, DT))


@pytest.mark.parametrize("dt", [0.0, -1.0, NAN, np.inf])
def test_dt_must_be_an_interval(tmp_path: Path, dt: float) -> None:
    csv(tmp_path, "x\n1\n")
    with pytest.raises(InputError, match="give a sampling interval greater than 0"):
        next(segments(site_in(tmp_path), dt))


def test_lines_with_nothing_but_spaces_are_no_rows_and_are_counted_as_lines(
    tmp_path: Path,
) -> None:
    csv(tmp_path, "x,y\n1,2\n  \n3,4\n\n \t \n")
    [segment] = read(tmp_path)
    np.testing.assert_array_equal(segment.observations, [[1, 2], [3, 4]])
    csv(tmp_path, "x,y\n1,2\n  \n3,1e300\n")
    with pytest.raises(InputError, match=r"row 2 of .*z\.csv \(line 4\) holds 1e\+300"):
        read(tmp_path)
