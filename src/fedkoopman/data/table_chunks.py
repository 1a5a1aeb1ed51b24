"""CSV and Parquet files of any size as chunks of bounded size, at Arrow's speed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pa_compute
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from fedkoopman.config.source_file import Source
from fedkoopman.data.tables import (
    Table,
    as_numbers,
    as_text,
    csv_options,
    csv_rows,
    no_parquet,
)
from fedkoopman.errors import InputError

BLOCK_BYTES = 1 << 20
"""Of a CSV file that are parsed at once; larger blocks leave the processor's cache."""

_ROWS = 65_536
"""Rows of a Parquet file, or of a CSV file that is read slowly, that make a chunk."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        values: (n, k) float64, NaN where a cell is missing.
        runs: labels of consecutive rows with the row after the last of each, counted in the chunk.
        read: the share of the file that has been read.
    """

    values: np.ndarray
    runs: tuple[tuple[str | None, int], ...]
    read: float


def table_chunks(
    table: Table, numbers: list[str], label: str | None, block_bytes: int = BLOCK_BYTES
) -> Iterator[Chunk]:
    """Read some columns chunk by chunk.

    Arguments:
        table: the file.
        numbers: columns of numbers.
        label: the column that tells segments apart; None for one segment.
        block_bytes: of a CSV file that are parsed at once.
    """
    texts = [label] if label else []
    csv = table.path.suffix.lower() == ".csv"
    read = _csv_batches if csv else _parquet_batches
    row = 1
    for columns, share in read(table, numbers, texts, block_bytes):
        values = np.empty((len(numbers), len(columns[0])))
        for i, column in enumerate(columns[: len(numbers)]):
            values[i] = column.to_numpy(zero_copy_only=False)
        runs = _runs(columns[-1], table, texts[0], row) if texts else ((None, values.shape[1]),)
        yield Chunk(values.T, runs, share)
        row += values.shape[1]


def _runs(column: Any, table: Table, name: str, row: int) -> tuple[tuple[str, int], ...]:
    """Labels without the spaces around them; a blank one is refused with its row."""
    encoded = pa_compute.run_end_encode(column)
    labels = [str(text or "").strip() for text in encoded.values.to_pylist()]
    ends = encoded.run_ends.to_pylist()
    if "" in labels:
        i = labels.index("")
        raise InputError(
            f"{Source(table.path).row(row + [0, *ends][i])} has a blank cell in column {name!r}: "
            "say which segment the row belongs to"
        )
    return tuple(zip(labels, ends, strict=True))


def _csv_batches(
    table: Table, numbers: list[str], texts: list[str], block_bytes: int
) -> Iterator[tuple[list[Any], float]]:
    size = table.path.stat().st_size
    done, rows = 0, 0
    try:
        options = csv_options(table, numbers, texts, block_size=block_bytes, use_threads=False)
        for batch in pa_csv.open_csv(table.path, **options):
            done, rows = done + block_bytes, rows + batch.num_rows
            if batch.num_rows:
                yield batch.columns, min(1.0, done / size)
    except pa.ArrowException:
        # what Arrow refuses is read row by row, from there on, to be understood or to be named
        yield from _slow_batches(table, numbers, texts, rows, min(1.0, done / size))


def _slow_batches(
    table: Table, numbers: list[str], texts: list[str], skipped: int, share: float
) -> Iterator[tuple[list[Any], float]]:
    rest = islice(csv_rows(table, numbers, texts), skipped, None)
    while rows := list(islice(rest, _ROWS)):
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        yield columns, share


def _parquet_batches(
    table: Table, numbers: list[str], texts: list[str], block_bytes: int
) -> Iterator[tuple[list[Any], float]]:
    del block_bytes
    rows = 0
    try:
        # buffered, so that a file which is one row group is not read as a whole
        with pa_parquet.ParquetFile(table.path, pre_buffer=False, buffer_size=1 << 20) as file:
            total = max(file.metadata.num_rows, 1)
            for batch in file.iter_batches(_ROWS, columns=[*numbers, *texts], use_threads=False):
                rows += batch.num_rows
                columns = [as_numbers(table, name, batch.column(name)) for name in numbers]
                columns += [as_text(table, name, batch.column(name)) for name in texts]
                yield columns, rows / total
    except (pa.ArrowException, OSError) as error:
        raise no_parquet(table.title, error) from error
