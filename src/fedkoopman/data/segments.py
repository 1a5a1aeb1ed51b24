"""A site's segments, one after the other, from files of any size.

    for segment in segments(SiteFile.load("lab-a/site.toml"), dt=0.02):
        segment.name, segment.observations

Memory is bounded by the longest segment, and that by `data.longest`: the blocks of a segment are
joined, and cut where they are longer than that.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.row_blocks import Block, segment_blocks
from fedkoopman.data.time_grid import (
    acting,
    check_interval,
    check_order,
    on_grid,
    resampled,
    usual_interval,
)
from fedkoopman.errors import InputError

BLOCK_BYTES = 1 << 20
"""Of a text file that are parsed at once; larger blocks leave the processor's cache."""

_JUDGED = 1000
"""Intervals at a segment's start from which it is told whether dt is the right one."""


@dataclass(frozen=True)
class Segment:
    """Consecutive samples, one study-dt apart.

    Attributes:
        name: the segment's, its own within the site; pieces of a cut one are name.1, name.2, …
        observations: (T, m) in the sensor's units, NaN where nothing was observed.
        inputs: known inputs (T, u) that act until each sample, held through gaps; None without.
        start_time: instant of the first sample; without a time column, since the segment's start.
        cut: whether it is a piece of a longer one.
        gaps: how many times all channels are missing, however long.
        channels: names of the observed columns.
        interval: at which its samples were taken, as far as instants tell; None if they do not.
        coming: the inputs from the last sample on (u,), as before where the rows do not tell.
    """

    site: str
    name: str
    file: Path
    observations: np.ndarray
    inputs: np.ndarray | None
    start_time: float
    cut: bool
    gaps: int
    channels: tuple[str, ...]
    interval: float | None
    coming: np.ndarray | None = None


def segments(
    site: SiteFile,
    dt: float,
    *,
    progress: Callable[[int, int], None] | None = None,
    block_bytes: int = BLOCK_BYTES,
    only: Path | None = None,
) -> Iterator[Segment]:
    """Read a site's segments in the order of its files, each only when it is asked for.

    Arguments:
        dt: the study's sampling interval.
        progress: called with the bytes read so far, and how many there are.
        block_bytes: of a CSV file that are parsed at once; the segments do not depend on it.
        only: one of the site's files, where the others are not to be read; its segments have the
            names that they have among all.
    """
    if not 0 < dt < np.inf:
        raise InputError(f"dt is {dt}: give a sampling interval greater than 0")
    files = site.files()
    names = dict(zip(files, _file_names(site, files), strict=True))
    chosen = tuple(path for path in files if only is None or path == only)
    for path, label, run in segment_blocks(site, chosen, block_bytes, progress):
        prefix = "" if len(files) == 1 else f"{names[path]}:"
        base = names[path] if label is None else f"{prefix}{label}"
        for number, piece in enumerate(_pieces(run, dt, site.data.longest), 1):
            yield _segment(site, f"{base}.{number}" if piece.cut else base, piece, dt)


def recorded(site: SiteFile) -> Iterator[Block]:
    """A site's segments as they were recorded: whole, at their own instants, in recorded units."""
    for _, _, run in segment_blocks(site, site.files(), BLOCK_BYTES, None):
        waiting = _Waiting(math.inf)
        for block in run:
            waiting.add(block)
        yield waiting.take(None, cut=False).rows


def _file_names(site: SiteFile, files: tuple[Path, ...]) -> list[str]:
    """Names of the files that are their own within the site: without suffix and folder, or with."""
    stems = [path.stem for path in files]
    if len(set(stems)) == len(stems):
        return stems
    return [
        path.relative_to(site.folder).as_posix() if path.is_relative_to(site.folder) else str(path)
        for path in files
    ]


class _Piece(NamedTuple):
    """Rows that make one segment."""

    rows: Block
    start: int
    """How many rows of the uncut segment come before."""
    cut: bool
    """Whether the uncut segment is longer."""


def _segment(site: SiteFile, name: str, piece: _Piece, dt: float) -> Segment:
    data, rows = site.data, piece.rows
    z, u, times = rows.observed, rows.inputs, rows.times
    interval = None
    if times is not None:
        if data.off_grid == "resample":
            z = resampled(times, z, dt)
        else:
            z = on_grid(times, z, dt, str(rows.source), lambda i: rows.source.row(rows.row + i))
        interval = usual_interval(times)
    z = np.multiply(z, data.scale, order="C")
    z += np.asarray(data.shift)
    acts = None if u is None else acting(u, data.hold, times, dt, len(z))
    return Segment(
        site=site.name,
        name=name,
        file=rows.source.path,
        observations=z,
        inputs=None if acts is None else np.array(acts[:-1], order="C"),
        start_time=piece.start * dt if times is None else float(times[0]),
        cut=piece.cut,
        gaps=_gaps(z),
        channels=rows.channels,
        interval=interval,
        coming=None if acts is None else acts[-1],
    )


def _gaps(z: np.ndarray) -> int:
    """Runs of samples in which nothing was observed."""
    missing = np.isnan(z)
    if not missing.any():
        return 0
    nothing = missing.all(axis=1)
    return int(nothing[0]) + int(np.count_nonzero(nothing[1:] & ~nothing[:-1]))


def _pieces(stream: Iterator[Block], dt: float, longest: int) -> Iterator[_Piece]:
    """Join the blocks of one segment into pieces of at most `longest` samples on the grid.

    A piece leaves as soon as as many samples again are there, and what is left at the end is
    halved, so that no piece is much shorter than the others. Where the pieces are cut depends on
    the rows and their instants only, not on the blocks. A gap at a cut belongs to no piece.

    Arguments:
        stream: blocks with one label; the file's instants must increase.
    """
    waiting = _Waiting(dt)
    for block in stream:
        waiting.add(block)
        while waiting.judged and waiting.samples >= 2 * longest:
            yield waiting.take(longest, cut=True)
    waiting.judge()
    while waiting.samples >= 2 * longest:
        yield waiting.take(longest, cut=True)
    if waiting.samples > longest:
        yield waiting.take((waiting.samples + 1) // 2, cut=True)
    yield waiting.take(None, cut=waiting.taken > 0)


@dataclass
class _Waiting:
    """Rows that have been read and belong to no piece yet."""

    dt: float
    blocks: list[Block] = field(default_factory=list)
    rows: int = 0
    taken: int = 0
    judged: bool = False

    def add(self, block: Block) -> None:
        """Append a block of the same segment, which has rows."""
        if block.times is not None:
            before = self.blocks[-1].times if self.blocks else None
            check_order(
                block.times,
                None if before is None else float(before[-1]),
                lambda i: block.source.row(block.row + i),
            )
        self.blocks.append(block)
        self.rows += len(block.observed)
        if block.times is None or self.rows > _JUDGED:
            self.judge()

    def judge(self) -> None:
        """See, once, whether the first instants fit dt; before that nothing is cut."""
        if not self.judged and self.blocks[0].times is not None:
            first = np.concatenate([b.times for b in self.blocks if b.times is not None])
            check_interval(first[: _JUDGED + 1], self.dt, str(self.blocks[0].source))
        self.judged = True

    @property
    def samples(self) -> int:
        """How many samples of the grid the rows span."""
        first, last = self.blocks[0].times, self.blocks[-1].times
        if first is None or last is None:
            return self.rows
        return math.floor((float(last[-1]) - float(first[0])) / self.dt + 0.5) + 1

    def take(self, samples: int | None, cut: bool) -> _Piece:
        """Remove the rows of the next so many samples of the grid, fewer than all; all, if None."""
        rows = _joined(self.blocks)
        count = self.rows
        if samples is not None:
            end = samples
            if rows.times is not None:
                end = int(np.searchsorted(rows.times, rows.times[0] + (samples - 0.5) * self.dt))
            count = min(max(end, 1), self.rows - 1)
        piece = _Piece(_part(rows, 0, count), self.taken, cut)
        self.blocks = [_part(rows, count, self.rows)]
        self.rows -= count
        self.taken += count
        return piece


def _joined(blocks: list[Block]) -> Block:
    """One block of all rows."""
    if len(blocks) == 1:
        return blocks[0]
    inputs = [block.inputs for block in blocks if block.inputs is not None]
    times = [block.times for block in blocks if block.times is not None]
    return replace(
        blocks[0],
        observed=np.concatenate([block.observed for block in blocks]),
        inputs=np.concatenate(inputs) if inputs else None,
        times=np.concatenate(times) if times else None,
    )


def _part(block: Block, start: int, end: int) -> Block:
    """Some rows of a block."""
    return replace(
        block,
        row=block.row + start,
        observed=block.observed[start:end],
        inputs=None if block.inputs is None else block.inputs[start:end],
        times=None if block.times is None else block.times[start:end],
    )
