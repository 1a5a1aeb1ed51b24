"""Ten and more ways in which a file of another field is broken, each told in one line.

The same ways for every format; what only one format can have wrong is in `test_recordings`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.recordings import (
    KEPT,
    TOPICS,
    regular,
    ulog_message,
    write_bag1_topics,
    write_edf,
    write_wfdb,
)

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.row_blocks import Block
from fedkoopman.data.segments import recorded
from fedkoopman.errors import InputError

ROWS = 60
X = np.random.default_rng(0).normal(size=ROWS).round(3)
ARRAYS = ("h5", "hdf5", "mat73")
CHANNELS = ("bdf", "edf", "hea")


@pytest.fixture(params=KEPT, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


def path_of(name: str, folder: Path) -> Path:
    return folder / f"z.{name.removesuffix('73')}"


def read(path: Path, **data: Any) -> list[Block]:
    table = {"name": "lab", "data": {"files": path.name, **data}, "sensor": {"kind": "identity"}}
    return list(recorded(SiteFile.from_dict(table, path.parent / "site.toml")))


def refused(path: Path, **data: Any) -> str:
    """The one line that a bad file ends in, which names it and says what to do."""
    with pytest.raises(InputError) as raised:
        read(path, **data)
    message = str(raised.value)
    assert "\n" not in message and path.name in message and ": " in message
    return message


def written(name: str, folder: Path, **columns: np.ndarray) -> Path:
    path = path_of(name, folder)
    KEPT[name].write(path, columns or {"x": X, "y": X[::-1]})
    return path


def column(name: str, field: str = "x") -> list[str]:
    return [f"{KEPT[name].before}{field}"]


def test_a_whole_file_is_read(name: str, tmp_path: Path) -> None:
    [rows] = read(written(name, tmp_path), columns=column(name))
    np.testing.assert_allclose(rows.observed[:, 0], X, rtol=0, atol=KEPT[name].error)
    if name in ARRAYS:
        assert rows.times is None
    else:  # taken unasked, as its column is called `time`
        np.testing.assert_allclose(rows.times, regular({"x": X})[0], atol=1e-12)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "a tenth": lambda raw: raw[: len(raw) // 10],
    "half": lambda raw: raw[: len(raw) // 2],
    "cut before the end": lambda raw: raw[: len(raw) * 9 // 10 - 1],
    "another beginning": lambda raw: bytes(600) + raw[600:],
    "zeros": lambda raw: bytes(len(raw)),
    "text": lambda raw: b"x,y\n" + b"1,2\n" * 300,
    "picture": lambda raw: b"\x89PNG\r\n\x1a\n" + raw,
    "backwards": lambda raw: raw[::-1],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_refused(
    name: str, damage: Callable[[bytes], bytes], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if (name, damage) == ("hea", DAMAGE["cut before the end"]):
        return  # a header need not have its last words; the next test cuts signals
    path = written(name, tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    refused(path, columns=column(name))
    assert capfd.readouterr() == ("", "")  # nor do the libraries write of it


@pytest.mark.parametrize("cut", [0, 1, 100, 4 * 2 * ROWS - 1])
def test_signals_that_are_cut_are_refused(cut: int, tmp_path: Path) -> None:
    path = written("hea", tmp_path)
    signals = path.with_suffix(".dat")
    signals.write_bytes(signals.read_bytes()[:cut])
    assert "copy the header and the files beside it" in refused(path)
    signals.unlink()
    assert "copy the header and the files beside it" in refused(path)


def test_flipped_bytes_are_read_or_refused(name: str, tmp_path: Path) -> None:
    """Numbers without a checksum are just other numbers; anything else is told in one line."""
    path = written(name, tmp_path)
    raw, rng = path.read_bytes(), np.random.default_rng(1)
    outcomes = set()
    for _ in range(25):
        changed = bytearray(raw)
        changed[rng.integers(0, min(len(raw), 600))] ^= 1 << rng.integers(0, 8)
        path.write_bytes(changed)
        try:
            read(path, columns=column(name))
            outcomes.add("read")
        except InputError as error:
            assert "\n" not in str(error) and path.name in str(error)
            outcomes.add("refused")
    assert "refused" in outcomes


def test_an_unknown_column_is_refused_with_those_there_are(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path, angle=X)
    message = refused(path, columns=column(name, "angel"))
    right = column(name, "angle")[0]
    assert f"did you mean '{right}'?" in message


def test_texts_are_no_observations(name: str, tmp_path: Path) -> None:
    if name in ARRAYS:
        path = written(name, tmp_path, x=np.array(["one", "two"]))
        assert "not numbers" in refused(path, columns=["x"])
    else:  # these have no columns of texts
        message = refused(written(name, tmp_path), columns=column(name, "word"))
        assert "unknown" in message and "word" in message


def test_a_file_without_samples_is_refused(name: str, tmp_path: Path) -> None:
    path = path_of(name, tmp_path)
    if name == "hea":  # wfdb writes no such
        path.write_text("z 1 2 0\nz.dat 16 1(0)/mV 16 0 0 0 0 x\n")
        path.with_suffix(".dat").write_bytes(b"")
    else:
        KEPT[name].write(path, {"x": np.empty(0)})
    said = refused(path, columns=column(name))
    assert any(words in said for words in ("no rows", "no messages", "no topic", "not whole"))


def test_columns_that_do_not_fit_together_are_refused(name: str, tmp_path: Path) -> None:
    """Two lengths, two rates, or two topics of which one ends before the other begins."""
    path = path_of(name, tmp_path)
    columns = ["x", "y"]
    if name in ARRAYS:
        KEPT[name].write(path, {"x": X, "y": X[1:]})
        says = "has 59 samples but 'x' has 60"
    elif name == "hea":
        write_wfdb_of_two_rates(path)
        says = "'x' at 2 Hz but 'y' at 4 Hz"
    elif name in CHANNELS:
        write_edf(path, {"x": X, "y": np.repeat(X, 2)}, rates={"y": 4.0})
        says = "'x' at 2 Hz but 'y' at 4 Hz"
    else:
        early, late = regular({"x": X}), regular({"y": X})
        TOPICS[name](path, {"a": early, "b": (late[0] + 1e3, late[1])})
        slash = KEPT[name].before.replace("z", "{}")
        columns = [slash.format("a") + "x", slash.format("b") + "y"]
        says = "do not overlap in time: choose columns of one topic"
    assert says in refused(path, columns=columns)


def write_wfdb_of_two_rates(path: Path) -> None:
    """A frame of three numbers: one x, two y."""
    frames = np.column_stack([X, X, X]).ravel()
    path.with_suffix(".dat").write_bytes((frames * 1000).round().astype("<i2").tobytes())
    path.write_text(
        f"z 2 2 {ROWS}\nz.dat 16 1000(0)/mV 16 0 0 0 0 x\nz.dat 16x2 1000(0)/mV 16 0 0 0 0 y\n"
    )


def test_nothing_but_missing_numbers_is_refused(name: str, tmp_path: Path) -> None:
    if KEPT[name].gaps:
        path = written(name, tmp_path, x=np.full(ROWS, np.nan))
        assert "every observation" in refused(path, columns=column(name))


def test_a_number_beyond_all_measure_is_refused(name: str, tmp_path: Path) -> None:
    if name in (*ARRAYS, *TOPICS):
        path = written(name, tmp_path, x=np.array([1.0, np.inf, 3.0]))
        assert "row 2 of" in refused(path, columns=column(name))


PACKAGES = {
    "bag": ("rosbags.rosbag1", "ros"),
    "bdf": ("pyedflib", "edf"),
    "db3": ("rosbags.rosbag2", "ros"),
    "edf": ("pyedflib", "edf"),
    "h5": ("h5py", "hdf5"),
    "hdf5": ("h5py", "hdf5"),
    "hea": ("wfdb", "wfdb"),
    "mat73": ("h5py", "hdf5"),
    "mcap": ("mcap.reader", "ros"),
    "ulg": ("pyulog", "ulog"),
}


def test_a_missing_package_is_named_with_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, (module, extra) = written(name, tmp_path), PACKAGES[name]
    monkeypatch.setitem(__import__("sys").modules, module, None)
    message = refused(path, columns=column(name))
    assert message.endswith(
        f"needs the package {module.partition('.')[0]}, which is not installed: "
        f"pip install 'fedkoopman[{extra}]'"
    )


def test_a_topic_without_messages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "z.ulg"
    written("ulg", tmp_path)
    added = ulog_message("A", b"\x00\x09\x00z") + ulog_message("A", b"\x01\x0a\x00z")
    path.write_bytes(path.read_bytes() + added)
    assert "topic 'z[1]' of" in refused(path, columns=["z.x", "z[1].x"])


def test_a_bag_that_was_not_closed_is_refused(tmp_path: Path) -> None:
    """A recorder that was killed leaves a bag without an index."""
    path = tmp_path / "z.bag"
    write_bag1_topics(path, {"z": regular({"x": X})})
    raw = bytearray(path.read_bytes())
    at = raw.index(b"index_pos=") + len(b"index_pos=")
    raw[at : at + 8] = bytes(8)
    path.write_bytes(raw)
    assert "rosbag reindex" in refused(path, columns=["/z/x"])


def test_a_record_of_another_folder_is_not_read(tmp_path: Path) -> None:
    """A header that names signals elsewhere reads none of them."""
    (tmp_path / "secret").mkdir()
    write_wfdb(tmp_path / "secret" / "z.hea", {"x": X})
    inner = (tmp_path / "secret" / "z.hea").read_text()
    path = tmp_path / "z.hea"
    for place in ("secret/z.dat", str(tmp_path / "secret" / "z.dat"), "https://127.0.0.1:9/z.dat"):
        path.write_text(inner.replace("z.dat", place))
        refused(path)
