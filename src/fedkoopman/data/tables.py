"""Named columns from CSV and Parquet, with errors that name the cell."""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from fedkoopman.errors import InputError, short, unknown_name

BOOKKEEPING = ("segment", "step", "time")
"""Columns that are never observations unless they are asked for by name."""

MOST_COLUMNS = 10_000
MISSING = ("", "NaN", "nan", "NAN", "NA", "N/A", "null", "NULL", "None")
"""Spellings of a missing observation in a CSV file."""

_SPACES = tuple(" " * n for n in range(1, 17))
"""Blank cells that Arrow reads as missing; those with more spaces are read slowly."""


@dataclass(frozen=True)
class Table:
    """A file with named columns, of which only the names have been read.

    Attributes:
        path: the file.
        names: of its columns.
        title: what messages call it.
    """

    path: Path
    names: tuple[str, ...]
    title: str

    def find(self, wanted: str | None, otherwise: str | None) -> str | None:
        """The column `wanted`, which must exist, or `otherwise` if it does, or None."""
        if wanted is None:
            return otherwise if otherwise in self.names else None
        if wanted in self.names:
            return wanted
        if any(map(_is_number, self.names)):
            raise InputError(
                f"{self.title} has no column {wanted!r} and begins with "
                f"{short(','.join(self.names))}: add a first line that names the columns"
            )
        if len(self.names) == 1 and wanted in self.names[0].split():
            raise InputError(
                f"{self.title} has one column, {short(self.names[0])}: separate cells by commas"
            )
        raise unknown_name(f"column of {self.title}", wanted, self.names)

    def read(
        self, numbers: Sequence[str], label: str | None = None
    ) -> tuple[dict[str, np.ndarray], tuple[list[str], np.ndarray] | None]:
        """Read columns as float64, NaN where a cell is missing, and one column of labels.

        The labels come as their distinct values in order of appearance, with the index of each
        row's label.
        """
        load = _read_csv if self.path.suffix.lower() == ".csv" else _read_parquet
        table = load(self, list(numbers), [label] if label else [])
        values = {
            name: np.array(table.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)
            for name in numbers
        }
        if label is None:
            return values, None
        column = table.column(label).fill_null("").combine_chunks().dictionary_encode()
        labels, owner = column.dictionary.to_pylist(), column.indices.to_numpy()
        if "" in labels:
            row = int(np.flatnonzero(owner == labels.index(""))[0]) + 1
            raise InputError(
                f"{self.title} has a blank cell in column {label!r}, row {row}: "
                "say which segment the row belongs to"
            )
        return values, (labels, owner)


def open_table(path: Path, title: str = "") -> Table:
    """Read the column names of a CSV or Parquet file.

    Arguments:
        path: the file.
        title: what messages call it; its name, if that is empty.
    """
    title = title or path.name
    read = _csv_header if path.suffix.lower() == ".csv" else _parquet_names
    names = read(path, title)
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{title} has {len(names):,} columns and at most {MOST_COLUMNS:,} can be read: write "
            "one row per sample, and one column per component"
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"{title} has several columns named {twice[0]!r}: give each its own")
    return Table(path, tuple(names), title)


def _csv_header(path: Path, title: str) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = [name.strip() for name in next(csv.reader(lines), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{title} is not a text file in UTF-8: {error}: save it as one") from error
    if not any(header):
        raise InputError(f"{title} begins with a blank line: its first line names the columns")
    if all(_is_number(name) for name in header):
        raise InputError(
            f"{title} begins with numbers ({', '.join(header[:3])}): "
            "add a first line that names the columns"
        )
    if len(header) == 1 and (other := next((s for s in ";\t" if s in header[0]), None)):
        raise InputError(f"{title} separates its cells by {other!r}: separate them by commas")
    return header


def _parquet_names(path: Path, title: str) -> list[str]:
    try:
        return list(pa_parquet.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise no_parquet(title, error) from error


def _read_csv(table: Table, numbers: list[str], texts: list[str]) -> pa.Table:
    try:
        return pa_csv.read_csv(table.path, **csv_options(table, numbers, texts))
    except pa.ArrowException:
        rows = list(csv_rows(table, numbers, texts))
        columns = zip(*rows, strict=True) if rows else [[] for _ in [*numbers, *texts]]
        return pa.table(dict(zip([*numbers, *texts], map(list, columns), strict=True)))


def csv_options(
    table: Table, numbers: Sequence[str], texts: Sequence[str], **reading: Any
) -> dict[str, Any]:
    """How Arrow is to read some columns of a CSV file.

    Arguments:
        table: the file.
        numbers: columns of float64, with nulls for missing cells.
        texts: columns of text, with nothing missing.
        reading: further options of reading, such as the size of a block.
    """
    types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in texts}
    return {
        "read_options": pa_csv.ReadOptions(column_names=list(table.names), skip_rows=1, **reading),
        # in a file with one column a blank line is a missing observation
        "parse_options": pa_csv.ParseOptions(ignore_empty_lines=len(table.names) > 1),
        "convert_options": pa_csv.ConvertOptions(
            include_columns=[*numbers, *texts],
            column_types=types,
            null_values=[*MISSING, *_SPACES],
        ),
    }


def csv_rows(
    table: Table, numbers: Sequence[str], texts: Sequence[str]
) -> Iterator[list[float | str]]:
    """Read row by row what Arrow refuses, or say in which cell the fault lies."""
    places = [(name, table.names.index(name)) for name in [*numbers, *texts]]
    with table.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        while (row := _next_row(reader, table)) is not None:
            if len(table.names) > 1 and len(row) < 2 and not "".join(row).strip():
                continue
            if len(row) != len(table.names) and row:
                raise InputError(
                    f"line {reader.line_num} of {table.title} has {len(row)} cells but the "
                    f"first line names {len(table.names)} columns: give every line as many"
                )
            found: list[float | str] = []
            for name, place in places:
                cell = row[place].strip() if row else ""
                if name in texts:
                    found.append(cell)
                elif cell in MISSING or _is_number(cell):
                    found.append(math.nan if cell in MISSING else float(cell))
                else:
                    raise InputError(
                        f"line {reader.line_num} of {table.title} holds {short(cell)} in "
                        f"column {name!r}: write a number, or leave a missing observation blank"
                    )
            yield found


def _next_row(reader: Any, table: Table) -> list[str] | None:
    try:
        return next(reader, None)
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of {table.title} cannot be read ({error}): separate cells by "
            "commas"
        ) from error


def _read_parquet(table: Table, numbers: list[str], texts: list[str]) -> pa.Table:
    try:
        found = pa_parquet.read_table(table.path, columns=[*numbers, *texts])
    except (pa.ArrowException, OSError) as error:
        raise no_parquet(table.title, error) from error
    return pa.table(
        {name: as_numbers(table, name, found.column(name)) for name in numbers}
        | {name: as_text(table, name, found.column(name)) for name in texts}
    )


def as_numbers(table: Table, name: str, column: Any) -> Any:
    """A column of a Parquet file as float64, or an error that names what it holds instead."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
        return column.cast(pa.float64(), safe=False)
    raise InputError(
        f"column {name!r} of {table.title} holds {kind}, not numbers: store it as double"
    )


def as_text(table: Table, name: str, column: Any) -> Any:
    """A column of a Parquet file as text, or an error that names what it holds instead."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException as error:
        raise InputError(
            f"column {name!r} of {table.title} holds {column.type}: store names or numbers"
        ) from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python reads 1_0 as 10


def no_parquet(title: str, error: BaseException) -> InputError:
    """The error for a Parquet file that cannot be read, with what Arrow says is wrong."""
    cause = str(error).partition("\n")[0].rstrip(". ")
    return InputError(f"cannot read {title} as Parquet ({cause}): write the file again")
