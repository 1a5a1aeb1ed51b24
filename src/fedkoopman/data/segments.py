"""A site's segments, one after the other, from files of any size.

    for segment in segments(SiteFile.load("lab-a/site.toml"), dt=0.02):
        segment.name, segment.observations

Memory is bounded by the longest segment, and that by `data.longest`: longer segments are cut.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np

from fedkoopman.config.site_file import SiteFile
from fedkoopman.data.row_blocks import Block, blocks
from fedkoopman.data.row_pieces import Piece, pieces, whole
from fedkoopman.data.time_grid import held, on_grid, resampled, usual_interval
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

__all__ = ["Segment", "recorded", "segments"]

BLOCK_BYTES = 1 << 20
"""Of a text file that are parsed at once; larger blocks leave the processor's cache."""

PLAUSIBLE = 1e100
"""Values beyond are no measurements, and would overflow where they are squared."""

_NONE = np.empty((0, 0))


@dataclass(frozen=True)
class Segment:
    """Consecutive samples, one study-dt apart.

    Attributes:
        site: the site's name.
        name: the segment's, its own within the site; pieces of a cut one are name.1, name.2, …
        file: where it was recorded.
        observations: (T, m) in the sensor's units, NaN where nothing was observed.
        inputs: known inputs (T, u), held through gaps; None without.
        start_time: instant of the first sample; without a time column, since the segment's start.
        cut: whether it is a piece of a longer one.
        gaps: how many times all channels are missing, however long.
        channels: names of the observed columns.
        interval: at which its samples were taken, as far as instants tell; None if they do not.
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
        site: what to read.
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
    for path, label, run in _runs(site, chosen, block_bytes, progress):
        prefix = "" if len(files) == 1 else f"{names[path]}:"
        base = names[path] if label is None else f"{prefix}{label}"
        for number, piece in enumerate(pieces(run, dt, site.data.longest), 1):
            yield _segment(site, f"{base}.{number}" if piece.cut else base, piece, dt)


def recorded(site: SiteFile) -> Iterator[tuple[str | None, Piece]]:
    """A site's segments as they were recorded: whole, at their own instants, in recorded units.

    Each comes with its name in the file, which is None where the file is one segment.
    """
    for _, label, run in _runs(site, site.files(), BLOCK_BYTES, None):
        yield label, whole(run)


def _runs(
    site: SiteFile,
    files: tuple[Path, ...],
    block_bytes: int,
    progress: Callable[[int, int], None] | None,
) -> Iterator[tuple[Path, str | None, Iterator[Block]]]:
    """The checked blocks of each segment, with its file and its name there."""
    stream = _blocks(site, files, block_bytes, progress)
    stream = _checked(_alike(site, stream), site.data.inputs)
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


def _file_names(site: SiteFile, files: tuple[Path, ...]) -> list[str]:
    """Names of the files that are their own within the site: without suffix and folder, or with."""
    stems = [path.stem for path in files]
    if len(set(stems)) == len(stems):
        return stems
    return [
        path.relative_to(site.folder).as_posix() if path.is_relative_to(site.folder) else str(path)
        for path in files
    ]


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
        for block in blocks(path, site.data, block_bytes):
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
            first = replace(block, observed=_NONE, inputs=None, times=None)
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


def _checked(stream: Iterator[Block], inputs: tuple[str, ...]) -> Iterator[Block]:
    """Refuse values that cannot be: infinite or beyond all measure, and inputs that are missing.

    Arguments:
        stream: blocks as they were recorded.
        inputs: names of the input columns.
    """
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


def _segment(site: SiteFile, name: str, piece: Piece, dt: float) -> Segment:
    data = site.data
    z, u, times = piece.observed, piece.inputs, piece.times
    interval = None
    if times is not None:
        if data.off_grid == "resample":
            z = resampled(times, z, dt)
        else:
            z = on_grid(times, z, dt, str(piece.source), lambda i: piece.source.row(piece.row + i))
        u = None if u is None else held(times, u, dt, len(z))
        interval = usual_interval(times)
    z = np.multiply(z, data.scale, order="C")
    z += np.asarray(data.shift)
    return Segment(
        site=site.name,
        name=name,
        file=piece.source.path,
        observations=z,
        inputs=None if u is None else np.array(u, order="C"),
        start_time=piece.start * dt if times is None else float(times[0]),
        cut=piece.cut,
        gaps=_gaps(z),
        channels=piece.channels,
        interval=interval,
    )


def _gaps(z: np.ndarray) -> int:
    """Runs of samples in which nothing was observed."""
    missing = np.isnan(z)
    if not missing.any():
        return 0
    nothing = missing.all(axis=1)
    return int(nothing[0]) + int(np.count_nonzero(nothing[1:] & ~nothing[:-1]))
