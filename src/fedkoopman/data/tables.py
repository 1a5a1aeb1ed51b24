"""Files with named columns: a format gives the header and the cells, this gives the blocks."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.data.row_blocks import BOOKKEEPING, Block, Source, Wanted
from fedkoopman.errors import InputError, short, unknown_name
from fedkoopman.paths import shown

MOST_COLUMNS = 10_000


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a table.

    Attributes:
        values: (n, k) float64, NaN where a cell is missing.
        runs: labels of consecutive rows with the row after the last of each, counted in the chunk;
            empty without a column of labels.
        read: the share of the file that has been read.
    """

    values: np.ndarray
    runs: tuple[tuple[str, int], ...]
    read: float


class Table(ABC):
    """A file with named columns; a format says how header and cells are read."""

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        """Read the names of the columns."""
        del columns
        self.path, self.title = path, shown(path)
        self.names = tuple(self.header())
        if len(self.names) > MOST_COLUMNS:
            raise InputError(
                f"{self.title} has {len(self.names):,} columns and at most {MOST_COLUMNS:,} can be "
                "read: write one row per sample, and one column per component"
            )
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise InputError(
                f"{self.title} has several columns named {twice[0]!r}: give each its own"
            )

    @abstractmethod
    def header(self) -> Sequence[str]:
        """The names of the columns."""

    @abstractmethod
    def chunks(self, numbers: list[str], label: str | None, block_bytes: int) -> Iterator[Chunk]:
        """The rows in order, some at a time.

        Arguments:
            numbers: columns of numbers, which are there.
            label: the column that tells segments apart; None for one segment.
            block_bytes: how much of the file to read at once.
        """

    def line(self, row: int) -> int | None:
        """The line on which a row of a text file ends, for messages; None in other files."""
        del row
        return None

    def blocks(self, wanted: Wanted, block_bytes: int) -> Iterator[Block]:
        """As of `row_blocks.Recording`."""
        for name in (*wanted.columns, *wanted.inputs, wanted.segment, wanted.time):
            self._check(name)
        aside = {*BOOKKEEPING, *wanted.inputs, wanted.segment, wanted.time}
        channels = wanted.columns or tuple(name for name in self.names if name not in aside)
        if not channels:
            raise InputError(
                f"{self.title} has no column of observations, only {', '.join(self.names)}: name "
                "them by data.columns"
            )
        numbers = [*channels, *wanted.inputs, *filter(None, [wanted.time])]
        source = Source(self.path, line=self.line)
        row = 1
        for chunk in self.chunks(numbers, wanted.segment or None, block_bytes):
            start = 0
            for label, end in chunk.runs or ((None, len(chunk.values)),):
                if label == "":
                    raise InputError(
                        f"{source.row(row + start)} has a blank cell in column "
                        f"{wanted.segment!r}: say which segment the row belongs to"
                    )
                part = chunk.values[start:end]
                yield Block.of_columns(
                    source, label, row + start, channels, part, wanted, chunk.read
                )
                start = end
            row += start

    def _check(self, wanted: str) -> None:
        """Refuse a column that is not there."""
        if not wanted or wanted in self.names:
            return
        if any(map(is_number, self.names)):
            raise InputError(
                f"{self.title} has no column {wanted!r} and begins with "
                f"{short(','.join(self.names))}: add a first line that names the columns"
            )
        if len(self.names) == 1 and wanted in self.names[0].split():
            raise InputError(
                f"{self.title} has one column, {short(self.names[0])}: separate cells by commas"
            )
        raise unknown_name(f"column of {self.title}", wanted, self.names)


def label_runs(labels: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The runs of a chunk from the label of each row; spaces around labels do not count."""
    named = [label.strip() for label in labels]
    ends = [i for i, (a, b) in enumerate(pairwise(named), 1) if a != b] + [len(named)]
    return tuple((named[end - 1], end) for end in ends if end)


def arrow_chunk(columns: Sequence[Any], numbers: int, read: float) -> Chunk:
    """A chunk from Arrow's columns: so many of numbers and, after them, perhaps one of labels."""
    values = np.empty((numbers, len(columns[0])))
    for i, column in enumerate(columns[:numbers]):
        values[i] = column.to_numpy(zero_copy_only=False)
    runs: tuple[tuple[str, int], ...] = ()
    if len(columns) > numbers:
        from pyarrow.compute import run_end_encode

        encoded = run_end_encode(columns[-1])
        labels = [str(text or "").strip() for text in encoded.values.to_pylist()]
        runs = tuple(zip(labels, encoded.run_ends.to_pylist(), strict=True))
    return Chunk(values.T, runs, read)


def is_number(text: str) -> bool:
    """Whether a text is a number; Python would read 1_0 as 10."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
