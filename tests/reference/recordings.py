"""The same rows in every format that another package reads, written by the field's own libraries.

pyulog writes only what it has read, so a ULog file is written byte by byte, as its public
specification says.
"""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pyedflib
from mcap.writer import Writer as McapWriter
from rosbags import rosbag1, rosbag2
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from fedkoopman.data.foreign import package, quietly

Columns = Mapping[str, np.ndarray]
Topics = Mapping[str, tuple[np.ndarray, Columns]]
"""Instants in seconds, and columns, by topic."""
START = 1_700_000_000 * 10**9
"""Nanoseconds since 1970 at which recordings of ROS begin."""
STEP = 0.5


def regular(columns: Columns) -> tuple[np.ndarray, Columns]:
    """Columns with an instant every `STEP`."""
    return np.arange(len(next(iter(columns.values())))) * STEP, columns


def write_hdf5(path: Path, columns: Columns, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, values in columns.items():
            texts = values.dtype.kind == "U"
            data = values.astype(h5py.string_dtype()) if texts else values
            file.create_dataset(name, data=data, **options)


def write_mat73(path: Path, columns: Columns) -> None:
    """As MATLAB does: a block of 512 bytes before, classes as attributes, axes turned."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in columns.items():
            if values.dtype.kind == "U":
                _write_cells(file, name, list(values))
                continue
            data = file.create_dataset(name, data=np.atleast_2d(values.T))
            data.attrs["MATLAB_class"] = np.bytes_("double")
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Mon Jan  1 00:00:00 2024 HDF5"
    with path.open("r+b") as file:
        file.write(head.ljust(116) + bytes(8) + b"\x00\x02IM")


def _write_cells(file: Any, name: str, texts: list[str]) -> None:
    references = np.empty((1, len(texts)), dtype=h5py.ref_dtype)
    for i, text in enumerate(texts):
        cell = file.create_dataset(
            f"#refs#/{name}{i}", data=np.array([[ord(c)] for c in text], dtype=np.uint16)
        )
        cell.attrs["MATLAB_class"] = np.bytes_("char")
        cell.attrs["MATLAB_int_decode"] = 2
        references[0, i] = cell.ref
    data = file.create_dataset(name, data=references, dtype=h5py.ref_dtype)
    data.attrs["MATLAB_class"] = np.bytes_("cell")


def ulog_message(kind: str, content: bytes) -> bytes:
    return struct.pack("<HB", len(content), ord(kind)) + content


ULOG_HEAD = b"ULog\x01\x12\x35\x01" + bytes(8)


def write_ulog(path: Path, columns: Columns) -> None:
    write_ulog_topics(path, {"z": regular(columns)})


def write_ulog_topics(path: Path, topics: Topics) -> None:
    """Topics with an instant, numbers and, as loggers do, a text and a byte of padding."""
    written, data = [ULOG_HEAD, ulog_message("B", bytes(40))], []
    for key, (topic, (instants, columns)) in enumerate(topics.items()):
        fields = "".join(f"double {name};" for name in columns)
        end = "char[2] word;uint8_t[1] _padding0;"
        written.append(ulog_message("F", f"{topic}:uint64_t timestamp;{fields}{end}".encode()))
        data.append(ulog_message("A", struct.pack("<BH", 0, key) + topic.encode()))
        for instant, row in zip(instants, zip(*columns.values(), strict=True), strict=True):
            begin = struct.pack("<HQ", key, round(instant * 1e6))
            data.append(ulog_message("D", begin + struct.pack(f"<{len(row)}d", *row) + b"ok"))
    path.write_bytes(b"".join([*written, ulog_message("I", b"\x0bchar[3] sysPX4"), *data]))


def _typed(store: Any, topic: str, columns: Columns) -> str:
    """The type of a topic's messages: a text and numbers."""
    name = f"lab_msgs/msg/{topic.title()}"
    text = "string word\n" + "".join(f"float64 {column}\n" for column in columns)
    store.register(get_types_from_msg(text, name))
    return name


def _write_bag(bag: Any, topics: Topics, store: Any, serialize: Callable[..., Any]) -> None:
    written = []
    for topic, (instants, columns) in topics.items():
        name = _typed(store, topic, columns)
        connection = bag.add_connection(f"/{topic}", name, typestore=store)
        for instant, row in zip(instants, zip(*columns.values(), strict=True), strict=True):
            message = store.types[name]("odd", *map(float, row))
            at = START + round(instant * 1e9)
            written.append((at, connection, bytes(serialize(message, name))))
    for at, connection, raw in sorted(written, key=lambda one: one[0]):
        bag.write(connection, at, raw)


def write_bag1_topics(path: Path, topics: Topics) -> None:
    store = get_typestore(Stores.ROS1_NOETIC)
    with rosbag1.Writer(path) as bag:
        _write_bag(bag, topics, store, store.serialize_ros1)


def write_bag2_topics(path: Path, topics: Topics) -> None:
    kind = rosbag2.StoragePlugin
    plugin = kind.SQLITE3 if path.suffix == ".db3" else kind.MCAP
    store, folder = get_typestore(Stores.ROS2_HUMBLE), path.parent / f"{path.stem}-bag"
    with rosbag2.Writer(folder, version=9, storage_plugin=plugin) as bag:
        _write_bag(bag, topics, store, store.serialize_cdr)
    (folder / f"{folder.name}{path.suffix}").rename(path)


def write_bag1(path: Path, columns: Columns) -> None:
    write_bag1_topics(path, {"z": regular(columns)})


def write_bag2(path: Path, columns: Columns) -> None:
    write_bag2_topics(path, {"z": regular(columns)})


def write_mcap_json(path: Path, columns: Columns, **options: Any) -> None:
    """As programs other than ROS do."""
    with path.open("wb") as file:
        writer = McapWriter(file, **options)
        writer.start()
        schema = writer.register_schema("sample", "jsonschema", b"{}")
        channel = writer.register_channel("/z", "json", schema)
        for at, row in zip(regular(columns)[0], zip(*columns.values(), strict=True), strict=True):
            instant = START + round(at * 1e9)
            data = json.dumps(dict(zip(columns, map(float, row), strict=True))).encode()
            writer.add_message(channel, instant, data, instant)
        writer.finish()


def write_wfdb(path: Path, columns: Columns) -> None:
    with quietly():
        wfdb = package("wfdb", "wfdb", "")
        wfdb.wrsamp(
            path.stem,
            fs=1 / STEP,
            units=["mV"] * len(columns),
            sig_name=list(columns),
            p_signal=np.column_stack(list(columns.values())),
            fmt=["32"] * len(columns),
            adc_gain=[1e6] * len(columns),
            baseline=[0] * len(columns),
            write_dir=str(path.parent),
        )


def write_edf(path: Path, columns: Columns, rates: Mapping[str, float] | None = None) -> None:
    """In thousandths, or in millionths where there are 24 bits."""
    bdf = path.suffix == ".bdf"
    most, unit = (8_388_600, 1e6) if bdf else (32_767, 1e3)
    kind = pyedflib.FILETYPE_BDFPLUS if bdf else pyedflib.FILETYPE_EDFPLUS
    same = {
        "dimension": "mV",
        "physical_min": -most / unit,
        "physical_max": most / unit,
        "digital_min": -most,
        "digital_max": most,
        "prefilter": "",
        "transducer": "",
    }
    rates = {name: 1 / STEP for name in columns} | dict(rates or {})
    headers = [{"label": name, "sample_frequency": rates[name], **same} for name in columns]
    with pyedflib.EdfWriter(str(path), len(columns), file_type=kind) as file:
        file.setSignalHeaders(headers)
        digital = [np.rint(values * unit).astype(np.int32) for values in columns.values()]
        file.writeSamples(digital, digital=True)


class Kept(NamedTuple):
    """How a format keeps rows of numbers.

    Attributes:
        before: what stands before a column's name.
        labels: whether segments may be named by texts.
        gaps: whether a number may be missing.
        error: the largest difference to what was written.
    """

    write: Callable[[Path, Columns], None]
    before: str = ""
    labels: bool = False
    gaps: bool = True
    error: float = 0.0


KEPT = {
    "bag": Kept(write_bag1, "/z/"),
    "bdf": Kept(write_edf, gaps=False, error=1e-9),
    "db3": Kept(write_bag2, "/z/"),
    "edf": Kept(write_edf, gaps=False, error=6e-4),
    "h5": Kept(write_hdf5, labels=True),
    "hdf5": Kept(write_hdf5, labels=True),
    "hea": Kept(write_wfdb),
    "mat73": Kept(write_mat73, labels=True),
    "mcap": Kept(write_bag2, "/z/"),
    "ulg": Kept(write_ulog, "z."),
}
"""By suffix; "mat73" is the newer form of "mat"."""
TOPICS = {
    "bag": write_bag1_topics,
    "db3": write_bag2_topics,
    "mcap": write_bag2_topics,
    "ulg": write_ulog_topics,
}
