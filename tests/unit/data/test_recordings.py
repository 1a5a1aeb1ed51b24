"""What columns and time are in each of the formats that other packages read."""

import json
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mcap.writer import CompressionType, IndexType
from mcap.writer import Writer as McapWriter
from reference.recordings import (
    KEPT,
    START,
    TOPICS,
    Topics,
    regular,
    write_edf,
    write_hdf5,
    write_mat73,
    write_mcap_json,
    write_wfdb,
)
from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from fedkoopman.config.formats import FORMATS, Wanted, suffix_of
from fedkoopman.data.ros_messages import Type, named_numbers, picker
from fedkoopman.data.row_blocks import Block
from fedkoopman.errors import InputError

X = np.random.default_rng(0).normal(size=60).round(3)


def names(path: Path) -> tuple[str, ...]:
    found: tuple[str, ...] = FORMATS.find(suffix_of(path))(path, ()).names
    return found


def blocks(path: Path, *columns: str, **wanted: Any) -> list[Block]:
    recording = FORMATS.find(suffix_of(path))(path, columns)
    return list(recording.blocks(Wanted(columns, **wanted), 1 << 20))


def read(path: Path, *columns: str, time: str = "") -> Block:
    [block] = blocks(path, *columns, time=time)
    return block


def refused(path: Path, *columns: str) -> str:
    with pytest.raises(InputError) as raised:
        blocks(path, *columns)
    assert "\n" not in str(raised.value) and path.name in str(raised.value)
    return str(raised.value)


class TestHdf5:
    def test_groups_matrices_and_tables_have_columns(self, tmp_path: Path) -> None:
        path, table = tmp_path / "z.h5", np.zeros(60, dtype=[("v", "f4"), ("n", "S3")])
        table["v"] = np.arange(60)
        matrix = np.arange(180.0).reshape(60, 3)
        write_hdf5(path, {"run/x": X, "run/m": matrix, "t": table, "fs": np.array(50.0)})
        assert set(names(path)) == {
            *("fs", "run/x", "run/m", "run/m[0]", "run/m[1]", "run/m[2]", "t.v", "t.n")
        }
        found = read(path, "run/m[2]", "run/x", "t.v").observed
        np.testing.assert_array_equal(found, np.column_stack([matrix[:, 2], X, np.arange(60)]))
        np.testing.assert_array_equal(read(path, "run/m").observed, matrix)

    def test_one_matrix_is_meant_without_a_name(self, tmp_path: Path) -> None:
        path, matrix = tmp_path / "z.hdf5", np.arange(120).reshape(60, 2)
        write_hdf5(path, {"z": matrix, "time": X, "note": np.array(["a", "b"])})
        found = read(path)
        assert found.channels == ("z 1", "z 2")
        np.testing.assert_array_equal(found.observed, matrix)
        write_hdf5(path, {"a": X, "b": X})
        assert "not one variable of observations but a, b" in refused(path)

    @pytest.mark.parametrize("kind", [">f8", "f4", "i2", "u8", "?", "f2"])
    def test_all_numbers_are_read(self, kind: str, tmp_path: Path) -> None:
        values = np.arange(60).astype(kind)
        write_hdf5(tmp_path / "z.h5", {"x": values, "row": values[None]}, chunks=True)
        found = read(tmp_path / "z.h5", "x", "row").observed
        np.testing.assert_array_equal(found, np.column_stack([values, values]))

    def test_a_large_file_is_read_in_pieces(self, tmp_path: Path) -> None:
        path, rows = tmp_path / "z.h5", 2_000_000
        written = {"x": np.arange(float(rows)), "y": np.zeros((rows, 3), "f4")}
        write_hdf5(path, written, chunks=True, compression="gzip", compression_opts=1)
        del written
        recording = FORMATS.find("h5")(path, ())
        tracemalloc.start()
        total, last = 0, 0.0
        for block in recording.blocks(Wanted(("x", "y[1]")), 1 << 20):
            total, last = total + len(block.observed), block.observed[-1, 0]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (total, last) == (rows, rows - 1)
        assert peak < 8 * rows  # of 16 bytes that each row has

    def test_other_files_are_never_read(self, tmp_path: Path) -> None:
        path, other = tmp_path / "z.h5", tmp_path / "other.h5"
        write_hdf5(other, {"x": X})
        (tmp_path / "raw").write_bytes(X.tobytes())
        layout = h5py.VirtualLayout(shape=(60,), dtype="f8")
        layout[:] = h5py.VirtualSource(other, "x", shape=(60,))
        with h5py.File(path, "w") as file:
            file["link"] = h5py.ExternalLink(str(other), "/x")
            file.create_virtual_dataset("virtual", layout)
            file.create_dataset("outside", (60,), "f8", external=[(str(tmp_path / "raw"), 0, 480)])
        assert set(names(path)) == {"virtual", "outside"}
        assert "kept in other files" in refused(path, "virtual")
        assert "kept in other files" in refused(path, "outside")

    def test_numbers_that_were_never_written_are_refused(self, tmp_path: Path) -> None:
        """A file of a kilobyte may claim to hold a terabyte."""
        path = tmp_path / "z.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (10**12,), "f8", chunks=(1000,))[:10] = 1.0
        assert path.stat().st_size < 20_000
        assert "1,000,000,000,000 numbers of which 8,000 bytes" in refused(path, "x")

    def test_checksums_are_compared(self, tmp_path: Path) -> None:
        path = tmp_path / "z.h5"
        write_hdf5(path, {"x": X}, fletcher32=True)
        raw = path.read_bytes()
        path.write_bytes(raw.replace(X[3:5].tobytes(), X[4:6].tobytes()))
        assert "z.h5 is not an HDF5 file, or not whole" in refused(path, "x")

    @pytest.mark.parametrize(("at", "to"), [(0, 0), (0, 200), (3, 255)])
    def test_texts_with_damaged_lengths_are_refused(self, at: int, to: int, tmp_path: Path) -> None:
        """Of which the library takes gigabytes, or never ends: in a heap, and in a reference."""
        path, labels = tmp_path / "z.h5", np.array(["one", "two"]).repeat(30)
        write_hdf5(path, {"x": X, "s": labels})
        assert [one.label for one in blocks(path, "x", segment="s")] == ["one", "two"]
        raw = bytearray(path.read_bytes())
        texts = raw.index(b"GCOL") + 16  # the first text: 8 bytes, its length, itself
        reference = raw.index(b"\x03\x00\x00\x00" + (texts - 16).to_bytes(8, "little"))
        for place in (texts + 8, reference) if at == 0 else (reference,):
            changed = raw.copy()
            changed[place + at] = to
            path.write_bytes(changed)
            if place != reference or to:
                with pytest.raises(InputError, match=r"z\.h5"):
                    blocks(path, "x", segment="s")

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            (np.zeros(60, complex), "holds complex128, not numbers"),
            (np.zeros((2, 3, 4)), "has shape (2, 3, 4)"),
            (np.zeros(()), "has shape ()"),
            (np.zeros((60, 2)), "has shape (60, 2): give a vector"),
        ],
    )
    def test_what_is_no_column_is_refused(self, values: Any, says: str, tmp_path: Path) -> None:
        write_hdf5(tmp_path / "z.h5", {"y": X, "x": values})
        assert says in refused(tmp_path / "z.h5", "y", "x")


class TestMatlab73:
    def test_structs_rows_and_logicals(self, tmp_path: Path) -> None:
        path, matrix = tmp_path / "z.mat", np.arange(180.0).reshape(60, 3)
        write_mat73(path, {"Z": matrix, "s/x": X[:, None], "row": X[None]})
        with h5py.File(path, "r+") as file:
            truth = file.create_dataset("on", data=(X > 0).astype(np.uint8)[None])
            truth.attrs["MATLAB_class"], truth.attrs["MATLAB_int_decode"] = np.bytes_("logical"), 1
        assert set(names(path)) == {"Z", "s.x", "row", "on"}
        found = read(path, "s.x", "row", "on").observed
        np.testing.assert_array_equal(found, np.column_stack([X, X, X > 0]))
        np.testing.assert_array_equal(read(path, "Z").observed, matrix)

    def test_segments_are_cells_or_rows_of_characters(self, tmp_path: Path) -> None:
        path, labels = tmp_path / "z.mat", np.repeat(["up", "down"], 30)
        write_mat73(path, {"x": X, "cells": labels})
        with h5py.File(path, "r+") as file:
            codes = np.array([[ord(c) for c in label.ljust(4)] for label in labels], np.uint16)
            file.create_dataset("rows", data=codes.T).attrs["MATLAB_class"] = np.bytes_("char")
        for name in ("cells", "rows"):
            assert [one.label for one in blocks(path, "x", segment=name)] == ["up", "down"]
            assert "not numbers" in refused(path, name)

    @pytest.mark.parametrize(
        ("kind", "says"),
        [("table", "is a MATLAB table"), ("string", "is a MATLAB string"), ("", "a MATLAB object")],
    )
    def test_objects_are_refused(self, kind: str, says: str, tmp_path: Path) -> None:
        path = tmp_path / "z.mat"
        write_mat73(path, {"x": X, "c": np.array(["a", "b"])})
        with h5py.File(path, "r+") as file:
            if kind:
                data = file.create_dataset("T", data=np.zeros((1, 6), np.uint32))
                data.attrs["MATLAB_class"] = np.bytes_(kind)
            else:  # a field of an array of structs
                file.create_dataset("T", data=file["c"][()], dtype=h5py.ref_dtype)
        assert says in refused(path, "x", "T") and "vectors of their own" in refused(path, "T")

    def test_nothing_is_nothing(self, tmp_path: Path) -> None:
        """MATLAB stores the shape of an empty matrix in its place."""
        path = tmp_path / "z.mat"
        write_mat73(path, {})
        with h5py.File(path, "r+") as file:
            data = file.create_dataset("x", data=np.array([0, 0], np.uint64))
            data.attrs["MATLAB_class"], data.attrs["MATLAB_empty"] = np.bytes_("double"), 1
        assert len(read(path, "x").observed) == 0


@pytest.mark.parametrize("suffix", TOPICS)
class TestTopics:
    def test_other_topics_hold_their_last_value(self, suffix: str, tmp_path: Path) -> None:
        path, before = tmp_path / f"z.{suffix}", KEPT[suffix].before.replace("z", "{}")
        topics: Topics = {
            "fast": (np.array([0.0, 1.0, 2.0, 3.0, 4.0]), {"x": np.arange(5.0)}),
            "slow": (np.array([0.5, 3.0]), {"u": np.array([10.0, 20.0])}),
        }
        TOPICS[suffix](path, topics)
        x, u = before.format("fast") + "x", before.format("slow") + "u"
        found = read(path, x, u, time="time")
        np.testing.assert_array_equal(found.observed, [[1, 10], [2, 10], [3, 20], [4, 20]])
        start = 1.0 if suffix == "ulg" else 0.0  # a log counts from its start
        np.testing.assert_allclose(found.times, start + np.arange(4.0), atol=1e-12)
        other = read(path, u, x, time="time")
        np.testing.assert_array_equal(other.observed, [[10, 0], [20, 3]])
        np.testing.assert_allclose(np.diff(other.times), 2.5, atol=1e-12)

    def test_columns_must_be_named(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"z.{suffix}"
        TOPICS[suffix](path, {"z": regular({f"x{i}": X for i in range(30)})})
        assert "and 1" in refused(path) and "name the observed ones by data.columns" in refused(
            path
        )
        assert "only: name observed columns too" in refused(path, "time")


IMU = "sensor_msgs/msg/Imu"


def imu(store: Any, i: int, stamp: int) -> Any:
    types, nine = store.types, np.arange(9.0) + i
    seconds, rest = divmod(stamp, 10**9)
    time = types["builtin_interfaces/msg/Time"](seconds, rest)
    fields = {"stamp": time, "frame_id": "body"[: i % 5]}
    if "seq" in types["std_msgs/msg/Header"].__dataclass_fields__:
        fields["seq"] = i
    vector = types["geometry_msgs/msg/Vector3"]
    return types[IMU](
        types["std_msgs/msg/Header"](**fields),
        types["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0),
        nine,
        vector(i + 0.1, i + 0.2, i + 0.3),
        nine + 1,
        vector(-i, 0.0, 9.81),
        nine + 2,
    )


@pytest.mark.parametrize("suffix", ["bag", "db3", "mcap"])
class TestRos:
    @pytest.fixture
    def path(self, suffix: str, tmp_path: Path) -> Path:
        """A second of an IMU, recorded late and unevenly."""
        return self.written(suffix, tmp_path, START)

    def written(self, suffix: str, folder: Path, first: int) -> Path:
        path, ros1 = folder / f"z.{suffix}", suffix == "bag"
        store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
        if ros1:
            writer: Any = rosbag1.Writer(path)
        else:
            plugin = (
                rosbag2.StoragePlugin.MCAP if suffix == "mcap" else rosbag2.StoragePlugin.SQLITE3
            )
            writer = rosbag2.Writer(folder / "bag", version=9, storage_plugin=plugin)
        with writer as bag:
            connection = bag.add_connection("/imu/data", IMU, typestore=store)
            for i in range(10):
                message = imu(store, i, first + i * 10**8 if first else 0)
                serialize = store.serialize_ros1 if ros1 else store.serialize_cdr
                bag.write(connection, START + 10**6 * i**2, bytes(serialize(message, IMU)))
        if not ros1:
            (folder / "bag" / f"bag.{suffix}").rename(path)
        return path

    def test_fields_are_read_at_the_instants_of_headers(self, path: Path) -> None:
        wanted = ("/imu/data/angular_velocity.z", "/imu/data/linear_acceleration_covariance[8]")
        found = read(path, *wanted, time="time")
        i = np.arange(10)
        np.testing.assert_allclose(found.observed, np.column_stack([i + 0.3, i + 10.0]), atol=1e-15)
        np.testing.assert_allclose(found.times, i / 10, atol=1e-12)
        assert {"/imu/data/orientation.w", "/imu/data/header.stamp.sec", "time"} <= {*names(path)}

    def test_without_stamps_the_recorder_tells_the_time(self, suffix: str, tmp_path: Path) -> None:
        path = self.written(suffix, tmp_path, 0)
        found = read(path, "/imu/data/angular_velocity.x", time="time")
        np.testing.assert_allclose(found.times, np.arange(10) ** 2 / 1e3, atol=1e-12)

    def test_no_code_is_made_of_definitions(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> None:
            raise AssertionError("code was generated")

        monkeypatch.setattr(Typestore, "register", fail)
        monkeypatch.setattr(Typestore, "get_msgdef", fail)
        assert len(read(path, "/imu/data/orientation.w").observed) == 10


RICH = """
bool on
string[] words
int8 a
float64[] few
geometry_msgs/Point[] points
uint16[3] three
string<=5 word
lab_msgs/Empty nothing
int64 large
lab_msgs/Empty[2] nothings
float32 last
================================================================================
MSG: geometry_msgs/Point
float64 x
float64 y
float64 z
================================================================================
MSG: lab_msgs/Empty
"""


@pytest.mark.parametrize("form", ["cdr-little", "cdr-big", "ros1"])
@pytest.mark.parametrize("few", [0, 1, 4])
def test_messages_are_read_as_rosbags_reads_them(form: str, few: int) -> None:
    """Every kind of field, in the places that alignment moves."""
    store, name = get_typestore(Stores.EMPTY), "lab_msgs/msg/Rich"
    parsed = get_types_from_msg(RICH, name)
    store.register(parsed)
    point, empty = store.types["geometry_msgs/msg/Point"], store.types["lab_msgs/msg/Empty"]
    points = [point(i + 0.5, -i, 1e9 * i) for i in range(few)]
    message = store.types[name](
        True, ["a", "bcd"][:few], -5, np.arange(few) / 3, points,
        np.array([1, 2, 65535], np.uint16), "word", empty(), -(2**60), [empty(), empty()], 0.25,
    )  # fmt: skip
    raw = bytes(
        store.serialize_ros1(message, name)
        if form == "ros1"
        else store.serialize_cdr(message, name, little_endian=form == "cdr-little")
    )
    definitions = {known: fields for known, (_, fields) in parsed.items()}
    kind = Type(name, definitions, cdr=form != "ros1")
    expected = {"on": 1.0, "a": -5.0, "large": -(2.0**60), "last": 0.25, "three[2]": 65535.0}
    expected |= {f"three[{i}]": i + 1.0 for i in range(2)}
    expected |= {f"few[{i}]": i / 3 for i in range(few)}
    for i, one in enumerate(points):
        expected |= {f"points[{i}].{axis}": float(getattr(one, axis)) for axis in "xyz"}
    assert set(named_numbers(kind.numbers(raw))) == set(expected)
    assert picker(list(expected))(kind.numbers(raw)) == list(expected.values())
    for cut in range(0, len(raw), 3):
        with pytest.raises(Exception, match=r"shorter|plain CDR"):
            list(kind.numbers(raw[:cut]))


def test_entries_without_end_are_refused() -> None:
    """A message of four bytes that claims four thousand million empty entries."""
    kind = Type("a/msg/A", {"a/msg/A": [("x", (4, ((2, "a/msg/B"), 0)))], "a/msg/B": []}, cdr=False)
    with pytest.raises(Exception, match="more entries than bytes"):
        list(kind.numbers(b"\xff\xff\xff\xff"))


class TestRos2:
    def test_definitions_of_usual_types_need_not_be_in_the_file(self, tmp_path: Path) -> None:
        """ROS 2 before Iron writes none."""
        path = TestRos().written("db3", tmp_path, START)
        with sqlite3.connect(path) as file:
            file.execute("DELETE FROM message_definitions")
        file.close()
        assert len(read(path, "/imu/data/orientation.w").observed) == 10

    def test_compressed_messages_are_refused(self, tmp_path: Path) -> None:
        path = TestRos().written("db3", tmp_path, START)
        with sqlite3.connect(path) as file:
            file.execute("UPDATE messages SET data = X'28B52FFD00112233'")
        file.close()
        assert "it is compressed" in refused(path) and "ros2 bag convert" in refused(path)


class TestMcap:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"compression": CompressionType.LZ4},
            {"use_chunking": False},
            {"index_types": IndexType.NONE, "repeat_channels": False, "use_statistics": False},
        ],
        ids=str,
    )
    def test_json_with_and_without_an_index(self, options: Any, tmp_path: Path) -> None:
        path = tmp_path / "z.mcap"
        write_mcap_json(path, {"x": X, "y": -X}, **options)
        found = read(path, "/z/y", "/z/x", time="time")
        np.testing.assert_array_equal(found.observed, np.column_stack([-X, X]))
        np.testing.assert_allclose(found.times, np.arange(60) * 0.5, atol=1e-12)

    @pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.ZSTD])
    def test_no_flipped_bit_gives_another_number(self, compression: Any, tmp_path: Path) -> None:
        path = tmp_path / "z.mcap"
        write_mcap_json(path, {"x": X}, compression=compression)
        raw, rng, told = path.read_bytes(), np.random.default_rng(0), 0
        for place in rng.integers(0, len(raw), 60):
            changed = bytearray(raw)
            changed[place] ^= 1 << rng.integers(0, 8)
            path.write_bytes(changed)
            try:
                np.testing.assert_array_equal(read(path, "/z/x").observed[:, 0], X)
            except InputError as error:
                told += "mcap recover" in str(error)
        assert told > 20

    def test_nested_values_and_messages_of_another_kind(self, tmp_path: Path) -> None:
        path = tmp_path / "z.mcap"
        with path.open("wb") as file:
            writer = McapWriter(file)
            writer.start()
            channel = writer.register_channel("/j", "json", 0)
            other = writer.register_channel("/p", "protobuf", 0)
            nested = {"pose": {"x": 1.5, "list": [1, 2.5], "parts": [{"v": 7}, "no"]}, "on": True}
            for i in range(3):
                data = json.dumps(nested).encode()
                writer.add_message(channel, START + i, data, START + i)
                writer.add_message(other, START + i, b"\x08\x01", START + i)
            writer.finish()
        wanted = ("/j/pose.x", "/j/pose.list[1]", "/j/pose.parts[0].v", "/j/on")
        np.testing.assert_array_equal(read(path, *wanted).observed, [[1.5, 2.5, 7.0, 1.0]] * 3)
        assert not any(name.startswith("/p") for name in names(path))


class TestChannels:
    @pytest.mark.parametrize("suffix", ["edf", "bdf", "hea"])
    def test_all_channels_are_taken_without_names(self, suffix: str, tmp_path: Path) -> None:
        path = tmp_path / f"z.{suffix}"
        KEPT[suffix].write(path, {"ECG": X, "resp": X / 2})
        found = read(path, time="time")
        assert found.channels == ("ECG", "resp")
        np.testing.assert_allclose(found.observed[:, 0], X, atol=1e-3)
        np.testing.assert_array_equal(found.times, np.arange(60) / 2)

    def test_channels_of_one_rate_among_others(self, tmp_path: Path) -> None:
        path = tmp_path / "z.edf"
        write_edf(path, {"slow": X, "a": X.repeat(2), "b": X.repeat(2)}, rates={"a": 4.0, "b": 4.0})
        found = read(path, "b", "a", time="time")
        np.testing.assert_allclose(found.observed[:, 0], X.repeat(2), atol=1e-3)
        np.testing.assert_array_equal(found.times, np.arange(120) / 4)
        assert "name columns of one rate" in refused(path)

    def test_labels_that_come_twice_are_numbered(self, tmp_path: Path) -> None:
        path = tmp_path / "z.hea"
        write_wfdb(path, {"ECG": X, "ECG2": -X})
        path.write_text(path.read_text().replace("ECG2", "ECG"))
        assert names(path) == ("ECG", "ECG 2", "time")
        np.testing.assert_array_equal(read(path, "ECG 2").observed[:, 0], -X)

    def test_a_record_of_several_segments_is_one(self, tmp_path: Path) -> None:
        for name, part in (("z1", X[:20]), ("z2", X[20:])):
            write_wfdb(tmp_path / f"{name}.hea", {"x": part, "y": -part})
        (tmp_path / "z.hea").write_text("z/2 2 2 60\nz1 20\nz2 40\n")
        found = read(tmp_path / "z.hea", "y", "x", time="time")
        np.testing.assert_array_equal(found.observed, np.column_stack([-X, X]))
        assert found.times is not None and found.times[-1] == 29.5

    def test_frames_and_lengths_that_only_the_signals_tell(self, tmp_path: Path) -> None:
        path = tmp_path / "z.hea"
        counts = np.arange(120, dtype="<i2")
        path.with_suffix(".dat").write_bytes(counts.tobytes())
        path.write_text("z 1 2\nz.dat 16x2 10(0)/mV 16 0 0 0 0 x\n")
        recording = FORMATS.find("hea")(path, ())
        found = list(recording.blocks(Wanted(("x",), time="time"), 200))
        assert len(found) > 1
        values = np.concatenate([one.observed[:, 0] for one in found])
        np.testing.assert_array_equal(values, counts / 10)
        times = np.concatenate([one.times for one in found if one.times is not None])
        np.testing.assert_array_equal(times, np.arange(120) / 4)
