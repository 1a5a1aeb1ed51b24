"""Named columns from CSV and Parquet, with errors that name the cell."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from fedkoopman.errors import InputError, unknown_name

MISSING = ("", "NaN", "nan", "NAN", "NA", "N/A", "null", "NULL", "None")
"""Spellings of a missing observation in a CSV file."""


@dataclass(frozen=True)
class Table:
    """A file with named columns, of which only the names have been read."""

    path: Path
    names: tuple[str, ...]

    def find(self, wanted: str | None, otherwise: str | None) -> str | None:
        """The column `wanted`, which must exist, or `otherwise` if it does, or None."""
        if wanted is None:
            return otherwise if otherwise in self.names else None
        if wanted in self.names:
            return wanted
        raise unknown_name(f"column of {self.path.name}", wanted, self.names)

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
                f"{self.path.name} has a blank cell in column {label!r}, row {row}: "
                "say which segment the row belongs to"
            )
        return values, (labels, owner)


def open_table(path: Path) -> Table:
    """Read the column names of a CSV or Parquet file."""
    names = _csv_header(path) if path.suffix.lower() == ".csv" else _parquet_names(path)
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise InputError(f"{path.name} has several columns named {twice[0]!r}: give each its own")
    return Table(path, tuple(names))


def _csv_header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = [name.strip() for name in next(csv.reader(lines), [])]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path.name} is not a text file in UTF-8: {error}") from error
    if not any(header):
        raise InputError(f"{path.name} begins with a blank line: its first line names the columns")
    if all(_is_number(name) for name in header):
        raise InputError(
            f"{path.name} begins with numbers ({', '.join(header[:3])}): "
            "add a first line that names the columns"
        )
    if len(header) == 1 and (other := next((s for s in ";\t" if s in header[0]), None)):
        raise InputError(f"{path.name} separates its cells by {other!r}: separate them by commas")
    return header


def _parquet_names(path: Path) -> list[str]:
    try:
        return list(pa_parquet.read_schema(path).names)
    except pa.ArrowException as error:
        raise InputError(f"cannot read {path.name} as Parquet: {_first_line(error)}") from error


def _read_csv(table: Table, numbers: list[str], texts: list[str]) -> pa.Table:
    types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in texts}
    try:
        return pa_csv.read_csv(
            table.path,
            read_options=pa_csv.ReadOptions(column_names=list(table.names), skip_rows=1),
            # in a file with one column a blank line is a missing observation
            parse_options=pa_csv.ParseOptions(ignore_empty_lines=len(table.names) > 1),
            convert_options=pa_csv.ConvertOptions(
                include_columns=[*numbers, *texts],
                column_types=types,
                null_values=list(MISSING),
            ),
        )
    except pa.ArrowException:
        return _read_csv_slowly(table, numbers, texts)


def _read_csv_slowly(table: Table, numbers: list[str], texts: list[str]) -> pa.Table:
    """Read what Arrow refuses: cells of spaces as missing ones, or an error that names the cell."""
    cells: dict[str, list[float | str]] = {name: [] for name in [*numbers, *texts]}
    with table.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        for row in reader:
            if not row and len(table.names) > 1:
                continue
            if len(row) != len(table.names) and row:
                raise InputError(
                    f"line {reader.line_num} of {table.path.name} has {len(row)} cells but the "
                    f"first line names {len(table.names)} columns: give every line as many"
                )
            for name, found in cells.items():
                cell = row[table.names.index(name)].strip() if row else ""
                if name in texts:
                    found.append(cell)
                elif cell in MISSING or _is_number(cell):
                    found.append(math.nan if cell in MISSING else float(cell))
                else:
                    raise InputError(
                        f"line {reader.line_num} of {table.path.name} holds {cell!r} in column "
                        f"{name!r}: write a number, or leave a missing observation blank"
                    )
    return pa.table(cells)


def _read_parquet(table: Table, numbers: list[str], texts: list[str]) -> pa.Table:
    try:
        found = pa_parquet.read_table(table.path, columns=[*numbers, *texts])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {table.path.name}: {_first_line(error)}") from error
    columns = {}
    for name in [*numbers, *texts]:
        column = found.column(name)
        wanted = pa.float64() if name in numbers else pa.string()
        kind = column.type
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if name in numbers and not (numeric or pa.types.is_null(kind)):
            raise InputError(
                f"column {name!r} of {table.path.name} holds {kind}, not numbers: "
                "store it as double"
            )
        columns[name] = column.cast(wanted)
    return pa.table(columns)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
