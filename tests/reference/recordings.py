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
START = 1_700_000_000 * 10**9
"""Nanoseconds since 1970 at which recordings of ROS begin."""
STEP = 0.5


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
    """One topic z with an instant, numbers and, as loggers do, a text and a byte of padding."""
    fields = "".join(f"double {name};" for name in columns) + "char[2] word;uint8_t[1] _padding0;"
    written = [
        ULOG_HEAD,
        ulog_message("B", bytes(40)),
        ulog_message("F", f"z:uint64_t timestamp;{fields}".encode()),
        ulog_message("I", b"\x0achar[3] sysPX4"),
        ulog_message("A", struct.pack("<BH", 0, 3) + b"z"),
    ]
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        instant = struct.pack("<HQ", 3, round(i * STEP * 1e6))
        content = instant + struct.pack(f"<{len(row)}d", *row) + b"ok"
        written.append(ulog_message("D", content))
    path.write_bytes(b"".join(written))


def _store(columns: Columns, stores: Stores) -> tuple[Any, str]:
    store, name = get_typestore(stores), "lab_msgs/msg/Sample"
    text = "string word\n" + "".join(f"float64 {column}\n" for column in columns)
    store.register(get_types_from_msg(text, name))
    return store, name


def _messages(store: Any, name: str, columns: Columns) -> Any:
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        yield START + round(i * STEP * 1e9), store.types[name]("odd", *map(float, row))


def write_bag1(path: Path, columns: Columns) -> None:
    store, name = _store(columns, Stores.ROS1_NOETIC)
    with rosbag1.Writer(path) as bag:
        connection = bag.add_connection("/z", name, typestore=store)
        for instant, message in _messages(store, name, columns):
            bag.write(connection, instant, store.serialize_ros1(message, name))


def _write_bag2(path: Path, columns: Columns, plugin: Any) -> None:
    store, name = _store(columns, Stores.ROS2_HUMBLE)
    folder = path.parent / f"{path.stem}-bag"
    with rosbag2.Writer(folder, version=9, storage_plugin=plugin) as bag:
        connection = bag.add_connection("/z", name, typestore=store)
        for instant, message in _messages(store, name, columns):
            bag.write(connection, instant, store.serialize_cdr(message, name))
    (folder / f"{folder.name}{path.suffix}").rename(path)


def write_db3(path: Path, columns: Columns) -> None:
    _write_bag2(path, columns, rosbag2.StoragePlugin.SQLITE3)


def write_mcap(path: Path, columns: Columns) -> None:
    _write_bag2(path, columns, rosbag2.StoragePlugin.MCAP)


def write_mcap_json(path: Path, columns: Columns, **options: Any) -> None:
    """As programs other than ROS do."""
    with path.open("wb") as file:
        writer = McapWriter(file, **options)
        writer.start()
        schema = writer.register_schema("sample", "jsonschema", b"{}")
        channel = writer.register_channel("/z", "json", schema)
        for i, row in enumerate(zip(*columns.values(), strict=True)):
            instant = START + round(i * STEP * 1e9)
            data = json.dumps(dict(zip(columns, map(float, row), strict=True))).encode()
            writer.add_message(channel, instant, data, instant)
        writer.finish()


def write_wfdb(path: Path, columns: Columns, gain: float = 1e6) -> None:
    with quietly():
        wfdb = package("wfdb", "wfdb", "")
        wfdb.wrsamp(
            path.stem,
            fs=1 / STEP,
            units=["mV"] * len(columns),
            sig_name=list(columns),
            p_signal=np.column_stack(list(columns.values())),
            fmt=["32"] * len(columns),
            adc_gain=[gain] * len(columns),
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
    "db3": Kept(write_db3, "/z/"),
    "edf": Kept(write_edf, gaps=False, error=6e-4),
    "h5": Kept(write_hdf5, labels=True),
    "hdf5": Kept(write_hdf5, labels=True),
    "hea": Kept(write_wfdb),
    "mat73": Kept(write_mat73, labels=True),
    "mcap": Kept(write_mcap, "/z/"),
    "ulg": Kept(write_ulog, "z."),
}
"""By suffix; "mat73" is the newer form of "mat"."""
