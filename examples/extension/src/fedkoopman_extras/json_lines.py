"""A data format: JSON lines, one object per row; null, or no entry, where a cell is missing.

{"segment": "a", "x": 1.5, "y": null}
"""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedkoopman import InputError
from fedkoopman.data.tables import Chunk, Table, label_runs

__all__ = ["FORMAT", "JsonLines"]


class JsonLines(Table):
    """A file with named columns; `Table` finds the wanted ones and makes segments of the rows."""

    def header(self) -> list[str]:
        """The names of the columns: those of the first row."""
        with self.path.open("rb") as lines:
            return list(self._row(next(lines), 1))

    def chunks(self, numbers: list[str], label: str | None, block_bytes: int) -> Iterator[Chunk]:
        """Some rows at a time, so that a file may be larger than the memory.

        Arguments:
            numbers: the wanted columns of numbers.
            label: the column that names a row's segment; None where there is none.
            block_bytes: how much to read at once.
        """
        size, row = self.path.stat().st_size, 1
        with self.path.open("rb") as lines:
            while block := lines.readlines(block_bytes):
                rows = [self._row(line, row + i) for i, line in enumerate(block)]
                cells = [[one.get(name) for name in numbers] for one in rows]
                runs = label_runs([str(one.get(label, "")) for one in rows]) if label else ()
                yield Chunk(self._numbers(cells, row), runs, lines.tell() / size)
                row += len(rows)

    def line(self, row: int) -> int:
        """The line on which a row stands, for messages."""
        return row

    def _row(self, line: bytes, row: int) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError(f"line {row} of {self.title} is no JSON object: give one per line")
        return found

    def _numbers(self, cells: list[list[Any]], row: int) -> np.ndarray:
        """The cells as numbers, NaN for null."""
        try:
            return np.array(cells, float)
        except (TypeError, ValueError) as error:
            where = f"lines {row} to {row + len(cells) - 1} of {self.title}"
            raise InputError(f"{where} hold a cell that is no number ({error})") from error


FORMAT = JsonLines
