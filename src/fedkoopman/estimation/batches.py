"""Cut a large or ragged batch into equal pieces and run them on all cores."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

Progress = Callable[[int, int], None]
"""Called with (trajectories done, trajectories in all)."""


def pieces(lengths: np.ndarray, widest: int) -> Iterator[np.ndarray]:
    """Row numbers of each piece, at most `widest` each.

    Trajectories are grouped by length rounded up to a power of two, so that padding at most doubles
    the work and the number of compiled shapes stays logarithmic; within a group the pieces are of
    one width (the last is filled up by repeating a row), so that one compilation serves them all.
    """
    if len(lengths) <= widest and (lengths == lengths[0]).all():
        yield np.arange(len(lengths))
        return
    bucket = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    for size in np.unique(bucket):
        rows = np.flatnonzero(bucket == size)
        count = -(-len(rows) // widest)
        width = -(-len(rows) // count)
        for start in range(0, len(rows), width):
            piece = rows[start : start + width]
            yield np.concatenate([piece, np.repeat(piece[-1:], width - len(piece))])


def cores() -> int:
    """The cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


def run_pieces(
    run: Callable[[np.ndarray], bool], work: list[np.ndarray], progress: Progress | None
) -> None:
    """Call `run` on every piece; the first call compiles, and says whether others may overlap.

    A piece that is one kernel runs on one core and releases Python's lock, so threads use all
    cores. What XLA already spreads over the cores must not compete with itself, so it
    runs piece by piece.
    """
    if len(work) == 1 and progress is None:
        run(work[0])
        return
    total = len(np.unique(np.concatenate(work)))
    done: set[int] = set()

    def finish(piece: np.ndarray) -> None:
        done.update(piece.tolist())
        if progress is not None:
            progress(len(done), total)

    overlap = run(work[0])
    finish(work[0])
    with ThreadPoolExecutor(cores() if overlap else 1) as pool:
        for piece, _ in zip(work[1:], pool.map(run, work[1:]), strict=True):
            finish(piece)
