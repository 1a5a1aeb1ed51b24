"""Arrays that lie in a temporary file, not in memory, and are gone when nobody looks at them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError

__all__ = ["SpilledArrays"]


class SpilledArrays:
    """Takes arrays one by one, and gives them back when all are there.

    with SpilledArrays() as shelf:
        shelf.keep(states)
        kept = shelf.arrays()
    """

    def __init__(self) -> None:
        """Open the file, which has no name that anybody could see."""
        with _told():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed on exit
        self._shapes: list[tuple[int, ...]] = []

    def __enter__(self) -> "SpilledArrays":
        """The shelf itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file; arrays that were given back keep what they need of it."""
        with suppress(OSError):  # of a full disk, told before
            self._file.close()

    def keep(self, array: NDArray[np.float64]) -> None:
        """Put an array at the end."""
        with _told():
            self._file.write(np.ascontiguousarray(array, np.float64).tobytes())
            self._file.flush()
        self._shapes.append(array.shape)

    def arrays(self) -> tuple[NDArray[np.float64], ...]:
        """All arrays in order, read from the file when they are looked at.

        They share one mapping: with one each, a thousand segments would take a thousand handles.
        """
        sizes = [int(np.prod(shape)) for shape in self._shapes]
        if not sum(sizes):
            return tuple(np.empty(shape) for shape in self._shapes)
        with _told():
            whole = np.asarray(np.memmap(self._file, np.float64, "r"))
        parts = np.split(whole, np.cumsum(sizes)[:-1])
        return tuple(part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True))


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ComputationError(
            f"cannot keep estimated states in a temporary file: {error.strerror or error}: make "
            "room, or set TMPDIR to a directory that has some"
        ) from error
