"""What a data format does, and the checks of what it gives.

A format is a function `(path, columns) -> Recording`, registered in `config.formats.FORMATS` by the
file's suffix. It opens a file and gives its rows in blocks of bounded size. `columns` are the
observed columns that the user named; a format whose arrays need no names (NPZ) tells by them how to
read the file. `tables.Table` does most of the work for a format with named columns. A format does
not look at the values: `segment_blocks` checks them for all formats alike.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from fedkoopman.config.formats import FORMATS, Wanted, suffix_of
from fedkoopman.config.site_file import AUTO, DataSection, SiteFile
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

__all__ = ["Block", "Recording", "Source", "Wanted", "open_recording", "segment_blocks"]

BOOKKEEPING = ("segment", "step", "time")
"""Columns that are never observations unless they are asked for by name."""

PLAUSIBLE = 1e100
"""Values beyond are no measurements, and would overflow where they are squared."""


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
        return f"{self.part} of {shown(self.path)}" if self.part else shown(self.path)

    def row(self, number: int) -> str:
        """Names a row, counted from 1 after a header; in a text file, the line too."""
        line = self.line(number)
        return f"row {number} of {self}" + (f" (line {line})" if line else "")


@dataclass(frozen=True)
class Block:
    """Consecutive rows of one segment.

    Attributes:
        label: the segment's name in the file; None where the file is one segment.
        row: the number of the first row, from 1.
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
    """Open a file by the format of its suffix."""
    found: Recording = FORMATS.find(suffix_of(path))(path, columns)
    return found


def wanted_of(recording: Recording, data: DataSection, title: str) -> Wanted:
    """Which columns of a file are what, with "auto" settled."""
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


def segment_blocks(
    site: SiteFile,
    files: tuple[Path, ...],
    block_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[tuple[Path, str | None, Iterator[Block]]]:
    """The checked blocks of each segment, with its file and its name there."""
    stream = _measured(_alike(site, _blocks(site, files, block_bytes, progress)), site.data.inputs)
    for path, of_file in groupby(stream, key=lambda block: block.source.path):
        checked = _contiguous(_observed(of_file, path))
        for label, run in groupby(checked, key=lambda block: block.label):
            yield path, label, run


def _observed(stream: Iterator[Block], path: Path) -> Iterator[Block]:
    """Refuse a file in which nothing was observed."""
    observed = False
    for block in stream:
        observed = observed or not np.isnan(block.observed).all()
        yield block
    if not observed:
        raise InputError(
            f"every observation in {shown(path)} is missing: check data.columns, or leave the "
            "file out"
        )


def _blocks(
    site: SiteFile,
    files: tuple[Path, ...],
    block_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[Block]:
    """The blocks of all files, none of which may be without rows."""
    sizes = [path.stat().st_size for path in files]
    for i, path in enumerate(files):
        rows = 0
        recording = open_recording(path, site.data.columns)
        wanted = wanted_of(recording, site.data, shown(path))
        for block in recording.blocks(wanted, block_bytes):
            rows += len(block.observed)
            if len(block.observed):
                yield block
            if progress is not None:
                progress(sum(sizes[:i]) + int(block.read * sizes[i]), sum(sizes))
        if not rows:
            raise InputError(f"{shown(path)} has no rows: it needs at least one sample")


def _alike(site: SiteFile, stream: Iterator[Block]) -> Iterator[Block]:
    """Refuse blocks whose columns do not fit the sensor, or those of the blocks before."""
    first: Block | None = None
    for block in stream:
        if first is None:
            site.check_observed(len(block.channels), f"{block.source} has")
            first = replace(block, observed=np.empty((0, 0)), inputs=None, times=None)
        elif len(block.channels) != len(first.channels):
            raise InputError(
                f"{block.source} has {len(block.channels)} observed columns but {first.source} has "
                f"{len(first.channels)}: all files of a site are seen by one sensor"
            )
        elif block.channels != first.channels:
            raise InputError(
                f"{block.source} has the columns {', '.join(block.channels)} but {first.source} "
                f"has {', '.join(first.channels)}: choose by data.columns"
            )
        yield block


def _contiguous(stream: Iterator[Block]) -> Iterator[Block]:
    """Refuse a segment that comes back after another one."""
    ended: set[str | None] = set()
    before: Block | None = None
    for block in stream:
        if before is not None and block.label != before.label:
            ended.add(before.label)
            if block.label in ended:
                raise InputError(
                    f"segment {block.label!r} comes back in {block.source.row(block.row)}: sort "
                    "the rows by segment, so that all rows of one stand together"
                )
        before = block
        yield block


def _measured(stream: Iterator[Block], inputs: tuple[str, ...]) -> Iterator[Block]:
    """Refuse values that are infinite or beyond all measure, and inputs that are missing."""
    for block in stream:
        bad = np.abs(block.observed) > PLAUSIBLE
        if bad.any():
            remedy = "leave a missing observation blank or NaN"
            raise _refused(block, block.observed, bad, block.channels, remedy)
        if block.inputs is not None:
            bad = ~(np.abs(block.inputs) <= PLAUSIBLE)
            if bad.any():
                raise _refused(block, block.inputs, bad, inputs, "give every known input a number")
        yield block


def _refused(
    block: Block, values: np.ndarray, bad: np.ndarray, names: tuple[str, ...], remedy: str
) -> InputError:
    i, j = (int(n) for n in np.argwhere(bad)[0])
    return InputError(
        f"{block.source.row(block.row + i)} holds {values[i, j]:g} in column {names[j]!r}, which "
        f"is no measurement: {remedy}"
    )
