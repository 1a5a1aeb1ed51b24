"""What a data format does: it opens a file and gives its rows in blocks of bounded size.

A format is a function `(path, columns) -> Recording`, registered in `config.formats.FORMATS` by the
file's suffix. `columns` are the observed columns that the user named; a format whose arrays need no
names (NPZ) tells by them how to read the file. `tables.Table` does most of the work for a format
with named columns. Nothing here looks at the values: `segments` checks them for all formats alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from fedkoopman.config.formats import FORMATS, Wanted, suffix_of
from fedkoopman.config.site_sections import AUTO, DataSection
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

__all__ = ["Block", "Recording", "Source", "Wanted", "blocks", "open_recording", "wanted_of"]

BOOKKEEPING = ("segment", "step", "time")
"""Columns that are never observations unless they are asked for by name."""


@dataclass(frozen=True)
class Source:
    """Where rows come from.

    Attributes:
        path: the file.
        part: the array within it, as "array 'monday'"; empty for the whole file.
        line: the line on which a row of a text file stands; None in other files.
    """

    path: Path
    part: str = ""
    line: Callable[[int], int | None] = field(default=lambda row: None, compare=False, repr=False)

    def __str__(self) -> str:
        """The file, and the array in it."""
        return f"{self.part} of {shown(self.path)}" if self.part else shown(self.path)

    def row(self, number: int) -> str:
        """Names a row, counted from 1 after a header; in a text file, the line too."""
        line = self.line(number)
        return f"row {number} of {self}" + (f" (line {line})" if line else "")


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

    @classmethod
    def of_columns(
        cls,
        source: Source,
        label: str | None,
        row: int,
        channels: tuple[str, ...],
        values: np.ndarray,
        wanted: Wanted,
        read: float,
    ) -> "Block":
        """A block from values (n, k): the observed columns, then the inputs, then the time."""
        m, u = len(channels), len(wanted.inputs)
        inputs = values[:, m : m + u] if u else None
        times = values[:, -1] if wanted.time else None
        return cls(source, label, row, channels, values[:, :m], inputs, times, read)


class Recording(Protocol):
    """An open file, of which nothing but the names of its columns has been read."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns; empty where columns have no names."""

    def blocks(self, wanted: Wanted, block_bytes: int) -> Iterator[Block]:
        """The rows in order; never more in memory than some multiple of `block_bytes`, or than one
        array where the format is read array by array."""


def open_recording(path: Path, columns: tuple[str, ...] = ()) -> Recording:
    """Open a file by the format of its suffix.

    Arguments:
        columns: the observed columns, as far as they are named.
    """
    found: Recording = FORMATS.find(suffix_of(path))(path, columns)
    return found


def wanted_of(recording: Recording, data: DataSection, title: str) -> Wanted:
    """Which columns of a file are what, with "auto" settled.

    Arguments:
        data: what the site says.
        title: of the file, for messages.
    """
    if not recording.names:
        for key in ("columns", "segment", "time", "inputs"):
            if getattr(data, key) not in ((), "", AUTO):
                raise InputError(
                    f"{title} is an array without names but data.{key} is given: leave it out, or "
                    "save a table"
                )
        return Wanted()
    used = (*data.columns, *data.inputs)

    def settled(key: str) -> str:
        given: str = getattr(data, key)
        if given != AUTO:
            return given
        return key if key in recording.names and key not in used else ""

    return Wanted(data.columns, data.inputs, settled("segment"), settled("time"))


def blocks(path: Path, data: DataSection, block_bytes: int) -> Iterator[Block]:
    """Read a file piece by piece.

    Arguments:
        path: the file; its suffix names the format.
        data: which columns are what.
        block_bytes: of a text file that are read at once.
    """
    recording = open_recording(path, data.columns)
    return recording.blocks(wanted_of(recording, data, shown(path)), block_bytes)
