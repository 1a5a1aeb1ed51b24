"""A site's file as a stream of blocks: consecutive rows of one segment, as they were recorded.

CSV and Parquet are read in pieces of bounded size, NPY through a memory map, NPZ and MAT array by
array. Nothing here looks at the values: that is for `segments`, which all formats share.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedkoopman.config.site_sections import DataSection
from fedkoopman.config.source_file import Source
from fedkoopman.data.array_files import (
    as_samples,
    check_numbers,
    npy_array,
    npz_arrays,
    npz_names,
)
from fedkoopman.data.table_chunks import table_chunks
from fedkoopman.data.tables import BOOKKEEPING, open_table
from fedkoopman.data.variable_files import read_variables
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

_ROWS = 65_536
"""Rows of a mapped array that are read at once."""


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one segment.

    Attributes:
        source: the file, or the array in it.
        label: the segment's name in the file; None where the file is one segment.
        row: the number of the first row, from 1.
        channels: names of the observed columns.
        observed: what was recorded (n, m), NaN where it is missing.
        inputs: known inputs (n, u); None without.
        times: sampling instants (n,); None without.
        read: the share of the file that has been read, at the end of this block.
    """

    source: Source
    label: str | None
    row: int
    channels: tuple[str, ...]
    observed: np.ndarray
    inputs: np.ndarray | None
    times: np.ndarray | None
    read: float


def blocks(path: Path, data: DataSection, block_bytes: int) -> Iterator[Block]:
    """Read a file piece by piece.

    Arguments:
        path: the file; its suffix names the format.
        data: which columns are what.
        block_bytes: of a CSV file that are read at once.
    """
    suffix = path.suffix.lower()
    if suffix in (".csv", ".parquet"):
        return _table(path, data, block_bytes)
    if suffix == ".mat" or (suffix == ".npz" and data.columns):
        return _variables(path, data)
    return _arrays(path, data)


def _table(path: Path, data: DataSection, block_bytes: int) -> Iterator[Block]:
    table = open_table(path, shown(path))
    for name in (*data.columns, *data.inputs, data.segment, data.time):
        table.find(name or None, None)
    aside = {*BOOKKEEPING, *data.inputs, data.segment, data.time}
    channels = data.columns or tuple(name for name in table.names if name not in aside)
    if not channels:
        raise InputError(
            f"{shown(path)} has no column of observations, only {', '.join(table.names)}: name "
            "them by data.columns"
        )
    numbers = [*channels, *data.inputs, *filter(None, [data.time])]
    row = 1
    for chunk in table_chunks(table, numbers, data.segment or None, block_bytes):
        start = 0
        for label, end in chunk.runs:
            part = chunk.values[start:end]
            yield _block(Source(path), label, row + start, channels, part, data, chunk.read)
            start = end
        row += start


def _block(
    source: Source,
    label: str | None,
    row: int,
    channels: tuple[str, ...],
    values: np.ndarray,
    data: DataSection,
    read: float,
) -> Block:
    """A block of a table whose columns are the observed ones, the inputs and the time."""
    m, u = len(channels), len(data.inputs)
    inputs = values[:, m : m + u] if u else None
    times = values[:, -1] if data.time else None
    return Block(source, label, row, channels, values[:, :m], inputs, times, read)


def _arrays(path: Path, data: DataSection) -> Iterator[Block]:
    """Arrays without names: (T, m), or (B, T, m) for several segments; in NPZ, one per segment."""
    title = shown(path)
    for key in ("columns", "segment", "time", "inputs"):
        if getattr(data, key):
            raise InputError(
                f"{title} is an array without names but data.{key} is given: leave it out, or "
                "save a table"
            )
    if path.suffix.lower() == ".npy":
        array = npy_array(path, title)
        check_numbers(array, title)
        several = array.ndim == 3
        parts = ((str(i), a) for i, a in enumerate(array)) if several else iter([("", array)])
        count, named = (len(array) if several else 1), several
    else:
        count, named = len(npz_names(path, title)), True
        parts = npz_arrays(path, title)
    for i, (name, raw) in enumerate(parts):
        source = Source(path, f"array {name!r}" if named else "")
        part = as_samples(raw, str(source))
        channels = tuple(f"component {j + 1}" for j in range(part.shape[1]))
        label = name if named and count > 1 else None
        for start in range(0, max(len(part), 1), _ROWS):
            rows = np.asarray(part[start : start + _ROWS], dtype=np.float64)
            read = (i + min(1.0, (start + _ROWS) / max(len(part), 1))) / count
            yield Block(source, label, start + 1, channels, rows, None, None, read)


def _variables(path: Path, data: DataSection) -> Iterator[Block]:
    """Variables with names, each one column."""
    found = read_variables(
        path, shown(path), data.columns, data.inputs, data.segment or None, data.time or None
    )
    labels, total = found.labels, len(found.values)
    starts = [0]
    if labels is not None:
        starts += (np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist()
    for start, end in pairwise([*starts, total]):
        label = None if labels is None else str(labels[start])
        part, read = found.values[start:end], end / max(total, 1)
        yield _block(Source(path), label, start + 1, found.channels, part, data, read)
