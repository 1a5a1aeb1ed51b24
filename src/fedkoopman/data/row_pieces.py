"""The blocks of one segment joined, and cut where they are longer than a segment may be."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fedkoopman.data.row_blocks import Block, Source
from fedkoopman.data.time_grid import check_interval, check_order

_JUDGED = 1000
"""Intervals at a segment's start from which it is told whether dt is the right one."""


@dataclass(frozen=True)
class Piece:
    """Rows that make one segment, as they were recorded.

    Attributes:
        source, channels: as of a block.
        row: the number of the first row in the file, from 1.
        start: how many rows of the uncut segment come before.
        cut: whether the uncut segment is longer.
        observed, inputs, times: as of a block.
    """

    source: Source
    channels: tuple[str, ...]
    row: int
    start: int
    cut: bool
    observed: np.ndarray
    inputs: np.ndarray | None
    times: np.ndarray | None


def pieces(stream: Iterator[Block], dt: float, longest: int) -> Iterator[Piece]:
    """Join the blocks of one segment into pieces of at most `longest` samples on the grid.

    A piece leaves as soon as as many samples again are there, and what is left at the end is
    halved, so that no piece is much shorter than the others. Where the pieces are cut depends on
    the rows and their instants only, not on the blocks. A gap at a cut belongs to no piece.

    Arguments:
        stream: blocks with one label; the file's instants must increase.
        dt: the study's sampling interval.
        longest: samples.
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


def whole(stream: Iterator[Block]) -> Piece:
    """Join the blocks of one segment, on no grid and however many there are.

    Arguments:
        stream: as of `pieces`.
    """
    waiting = _Waiting(math.inf)
    for block in stream:
        waiting.add(block)
    return waiting.take(None, cut=False)


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

    def take(self, samples: int | None, cut: bool) -> Piece:
        """Remove the rows of the next so many samples of the grid, fewer than all; all, if None."""
        rows = _joined(self.blocks)
        count = self.rows
        if samples is not None:
            end = samples
            if rows.times is not None:
                end = int(np.searchsorted(rows.times, rows.times[0] + (samples - 0.5) * self.dt))
            count = min(max(end, 1), self.rows - 1)
        taken, rest = _part(rows, 0, count), _part(rows, count, self.rows)
        piece = Piece(
            source=rows.source,
            channels=rows.channels,
            row=rows.row,
            start=self.taken,
            cut=cut,
            observed=taken.observed,
            inputs=taken.inputs,
            times=taken.times,
        )
        self.blocks = [rest]
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
