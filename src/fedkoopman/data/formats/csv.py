"""CSV files of any size, read at Arrow's speed; errors name the cell."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from fedkoopman.data.tables import Chunk, Table, arrow_chunk, is_number
from fedkoopman.errors import InputError, short

MISSING = ("", "NaN", "nan", "NAN", "NA", "N/A", "null", "NULL", "None")
"""Spellings of a missing observation."""

_SPACES = tuple(" " * n for n in range(1, 17))
"""Blank cells that Arrow reads as missing; those with more spaces are read slowly."""

_ROWS = 65_536
"""Rows of a file that is read slowly that make a chunk."""


class Csv(Table):
    """Cells separated by commas, in UTF-8, the first line naming the columns."""

    def header(self) -> list[str]:
        try:
            with self.path.open(encoding="utf-8-sig", newline="") as lines:
                header = [name.strip() for name in next(csv.reader(lines), [])]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(
                f"{self.title} is not a text file in UTF-8: {error}: save it as one"
            ) from error
        if not any(header):
            raise InputError(
                f"{self.title} begins with a blank line: its first line names the columns"
            )
        if all(is_number(name) for name in header):
            raise InputError(
                f"{self.title} begins with numbers ({', '.join(header[:3])}): "
                "add a first line that names the columns"
            )
        if len(header) == 1 and (other := next((s for s in ";\t" if s in header[0]), None)):
            raise InputError(
                f"{self.title} separates its cells by {other!r}: separate them by commas"
            )
        return header

    def chunks(self, numbers: list[str], label: str | None, block_bytes: int) -> Iterator[Chunk]:
        """Arrow's batches; what Arrow refuses is read row by row from there on, to be understood
        or to be named."""
        texts = [label] if label else []
        size = self.path.stat().st_size
        done, rows = 0, 0
        try:
            options = self._options(numbers, texts, block_bytes)
            for batch in pa_csv.open_csv(self.path, **options):
                done, rows = done + block_bytes, rows + batch.num_rows
                if batch.num_rows:
                    yield arrow_chunk(batch.columns, len(numbers), min(1.0, done / size))
        except pa.ArrowException:
            rest = islice(self._rows(numbers, texts), rows, None)
            while some := list(islice(rest, _ROWS)):
                columns = [pa.array(column) for column in zip(*some, strict=True)]
                yield arrow_chunk(columns, len(numbers), min(1.0, done / size))

    def line(self, row: int) -> int | None:
        """The line on which a row ends: blank lines and line breaks in quotes count."""
        try:
            with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
                reader = csv.reader(lines)
                single = len(next(reader, [])) == 1
                for cells in reader:
                    row -= single or len(cells) > 1 or bool("".join(cells).strip())
                    if row == 0:
                        return reader.line_num
        except (OSError, csv.Error):
            pass
        return None

    def _options(
        self, numbers: Sequence[str], texts: Sequence[str], block_bytes: int
    ) -> dict[str, Any]:
        """How Arrow is to read some columns of numbers and texts."""
        types = {name: pa.float64() for name in numbers} | {name: pa.string() for name in texts}
        return {
            "read_options": pa_csv.ReadOptions(
                column_names=list(self.names),
                skip_rows=1,
                block_size=block_bytes,
                use_threads=False,
            ),
            # in a file with one column a blank line is a missing observation
            "parse_options": pa_csv.ParseOptions(ignore_empty_lines=len(self.names) > 1),
            "convert_options": pa_csv.ConvertOptions(
                include_columns=[*numbers, *texts],
                column_types=types,
                null_values=[*MISSING, *_SPACES],
            ),
        }

    def _rows(self, numbers: Sequence[str], texts: Sequence[str]) -> Iterator[list[float | str]]:
        """Read row by row what Arrow refuses, or say in which cell the fault lies."""
        places = [(name, self.names.index(name)) for name in [*numbers, *texts]]
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            reader = csv.reader(lines)
            next(reader)
            while (row := self._next_row(reader)) is not None:
                if len(self.names) > 1 and len(row) < 2 and not "".join(row).strip():
                    continue
                if len(row) != len(self.names) and row:
                    raise InputError(
                        f"line {reader.line_num} of {self.title} has {len(row)} cells but the "
                        f"first line names {len(self.names)} columns: give every line as many"
                    )
                found: list[float | str] = []
                for name, place in places:
                    cell = row[place].strip() if row else ""
                    if name in texts:
                        found.append(cell)
                    elif cell in MISSING or is_number(cell):
                        found.append(math.nan if cell in MISSING else float(cell))
                    else:
                        raise InputError(
                            f"line {reader.line_num} of {self.title} holds {short(cell)} in "
                            f"column {name!r}: write a number, or leave a missing observation blank"
                        )
                yield found

    def _next_row(self, reader: Any) -> list[str] | None:
        try:
            return next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"line {reader.line_num} of {self.title} cannot be read ({error}): separate cells "
                "by commas"
            ) from error


FORMAT = Csv
