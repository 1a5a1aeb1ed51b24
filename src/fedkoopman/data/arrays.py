"""Arrays whose columns have no names: (T, m) for a segment, (B, T, m) for several.

Python objects in a file, which could run code, are never loaded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from fedkoopman.data.row_blocks import Block, Source, Wanted
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

__all__ = ["NUMPY_DAMAGE", "Arrays", "as_samples", "check_numbers", "not_numpy"]

NUMPY_DAMAGE = (ValueError, OSError, EOFError, BadZipFile, ZlibError)
"""What NumPy raises at a file that is not whole, or not its own."""

_ROWS = 65_536
"""Rows that are read from disk at once."""


class Arrays(ABC):
    """A file of arrays, each a segment; a single array may be a batch of segments."""

    names: tuple[str, ...] = ()

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        """Arguments: path: the file. columns: none are named."""
        del columns
        self.path, self.title = path, shown(path)

    @abstractmethod
    def arrays(self) -> tuple[int, Iterator[tuple[str, np.ndarray]]]:
        """How many arrays there are, and each with its name; one in memory at a time."""

    def blocks(self, wanted: Wanted, block_bytes: int) -> Iterator[Block]:
        """As of `row_blocks.Recording`; columns are numbered."""
        del wanted, block_bytes
        count, arrays = self.arrays()
        for i, (name, array) in enumerate(arrays):
            if count > 1 or array.ndim != 3:
                yield from self._segment(name, array, i, count)
                continue
            check_numbers(array, self.title)
            for j, part in enumerate(array):
                yield from self._segment(str(j), part, j, len(array))

    def _segment(self, name: str, array: np.ndarray, place: int, count: int) -> Iterator[Block]:
        source = Source(self.path, f"array {name!r}" if name else "")
        part = as_samples(array, str(source))
        if count > 1 and not len(part):
            raise InputError(f"{source} has shape {part.shape}: it needs at least one sample")
        channels = tuple(f"component {j + 1}" for j in range(part.shape[1]))
        label = name if count > 1 else None
        for start in range(0, max(len(part), 1), _ROWS):
            rows = np.asarray(part[start : start + _ROWS], dtype=np.float64)
            read = (place + min(1.0, (start + _ROWS) / max(len(part), 1))) / count
            yield Block(source, label, start + 1, channels, rows, None, None, read)


def as_samples(array: Any, name: str) -> np.ndarray:
    """An array of numbers (T, m); one dimension is one component.

    Arguments:
        array: as it was read; mapped arrays stay so.
        name: of the array, for messages.
    """
    check_numbers(array, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise InputError(
            f"{name} has shape {array.shape}: a trajectory has shape (steps, components)"
        )
    found: np.ndarray = array
    return found


def check_numbers(array: Any, name: str) -> None:
    """Refuse what does not hold real numbers."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        held = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        held = "a cell array or Python objects" if str(held) == "object" else held
        raise InputError(f"{name} holds {held}, not numbers: save it as float64")


def not_numpy(title: str, error: BaseException | None = None) -> InputError:
    """The error for a file that NumPy cannot read."""
    if error is not None and ("Object arrays" in str(error) or "Python objects" in str(error)):
        return InputError(f"{title} holds Python objects, which are never loaded: save float64")
    return InputError(
        f"{title} is not a NumPy file of numbers, or not whole: write it with numpy.save or "
        "numpy.savez"
    )
