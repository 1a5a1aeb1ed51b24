"""Bases of formats that are read array by array: arrays without names, and named variables.

Arrays have the shape (T, m) for a segment or (B, T, m) for several. Python objects in a file, which
could run code, are never loaded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from fedkoopman.data.row_blocks import BOOKKEEPING, Block, Source, Wanted
from fedkoopman.errors import InputError, unknown_name
from fedkoopman.paths import shown

NUMPY_DAMAGE = (ValueError, OSError, EOFError, BadZipFile, ZlibError)
"""What NumPy raises at a file that is not whole, or not its own."""

ROWS = 65_536
"""Rows that are read from disk at once."""

_LISTED = 20
"""Variables that a message names, at most."""


class Stored(ABC):
    """A matrix (T, m) of which some rows at a time are read from disk.

    Attributes:
        shape: (T, m); a vector has m = 1.
        dtype: of what is stored.
        step: how many rows are best read at once.
    """

    ndim = 2

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], step: int = ROWS) -> None:
        self.shape, self.dtype, self.step = shape, dtype, step

    @abstractmethod
    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows from one to before another."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, _ = rows.indices(len(self))
        return self.read(start, stop)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.asarray(self.read(0, len(self)), dtype)


class Arrays(ABC):
    """A file of arrays, each a segment; a single array may be a batch of segments."""

    names: tuple[str, ...] = ()

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        del columns  # none are named
        self.path, self.title = path, shown(path)

    @abstractmethod
    def arrays(self) -> tuple[int, Iterator[tuple[str, np.ndarray]]]:
        """How many arrays there are, and each with its name; one in memory at a time."""

    def blocks(self, wanted: Wanted, block_bytes: int) -> Iterator[Block]:
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
        for start in range(0, max(len(part), 1), ROWS):
            rows = np.asarray(part[start : start + ROWS], dtype=np.float64)
            read = (place + min(1.0, (start + ROWS) / max(len(part), 1))) / count
            yield Block(source, label, start + 1, channels, rows, None, None, read)


class Variables(ABC):
    """A file of variables: vectors of one length; a single observed one may be (T, m)."""

    def __init__(self, path: Path, columns: Sequence[str] = ()) -> None:
        del columns  # which `blocks` is told again
        self.path, self.title = path, shown(path)
        self._shapes = self.shapes()
        self.names = tuple(self._shapes)

    @abstractmethod
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the variables; () where a shape is not known before reading."""

    @abstractmethod
    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Read variables that are there: arrays, or `Stored` ones of which rows are read later."""

    def blocks(self, wanted: Wanted, block_bytes: int) -> Iterator[Block]:
        del block_bytes
        aside = (*wanted.inputs, *filter(None, [wanted.time]))
        observed = wanted.columns or self._only((*aside, wanted.segment))
        needed = (*observed, *aside, *filter(None, [wanted.segment]))
        for name in needed:
            if name not in self.names:
                raise unknown_name(f"variable of {self.title}", name, self.names)
        found = self.load(needed)
        columns = self._columns(found, observed, aside)
        rows, width = columns[0].shape
        channels = observed if width == 1 else tuple(f"{observed[0]} {j + 1}" for j in range(width))
        starts, labels = [0], None
        if wanted.segment:
            labels = self._labels(found[wanted.segment], wanted.segment, rows)
            starts += (np.flatnonzero(labels[1:] != labels[:-1]) + 1).tolist()
        step = max(getattr(column, "step", ROWS) for column in columns)
        for start, end in _pieces([*starts, rows], step):
            label = None if labels is None else str(labels[start])
            parts = [np.asarray(column[start:end], dtype=np.float64) for column in columns]
            values, read = np.concatenate(parts, axis=1), end / max(rows, 1)
            yield Block.of_columns(
                Source(self.path), label, start + 1, channels, values, wanted, read
            )

    def _columns(
        self, found: Mapping[str, Any], observed: tuple[str, ...], aside: tuple[str, ...]
    ) -> list[np.ndarray | Stored]:
        """The observed variables and the others, each (T, 1), or (T, m) where one is observed."""
        parts: dict[str, np.ndarray | Stored] = {}
        for name in (*observed, *aside):
            parts[name] = part = _column(found[name], f"variable {name!r} of {self.title}")
            if part.shape[1] != 1 and (name,) != observed:
                raise InputError(
                    f"variable {name!r} of {self.title} has shape {part.shape}: give a vector, one "
                    "number per sample"
                )
            if len(part) != len(parts[observed[0]]):
                raise InputError(
                    f"variable {name!r} of {self.title} has {len(part)} samples but "
                    f"{observed[0]!r} has {len(parts[observed[0]])}: give them the same length"
                )
        return list(parts.values())

    def _only(self, aside: Sequence[str]) -> tuple[str, ...]:
        """The one variable that can be the observations; single numbers are settings."""
        names = [name for name in self.names if name not in (*aside, *BOOKKEEPING)]
        arrays = [name for name in names if np.prod(self._shapes[name]) > 1] or names
        if len(arrays) != 1:
            more = len(arrays) - _LISTED
            listed = " ".join(", ".join(arrays[:_LISTED]).split())
            listed += f" and {more} more" if more > 0 else ""
            raise InputError(
                f"{self.title} holds not one variable of observations but {listed or 'none'}: name "
                "the observed ones by data.columns"
            )
        return tuple(arrays)

    def _labels(self, array: Any, name: str, rows: int) -> np.ndarray:
        """The name of each row's segment, given as numbers, texts or a cell array of texts."""
        flat = np.asarray(array)
        if flat.dtype.kind == "O":
            cells = [np.asarray(cell).ravel() for cell in flat.ravel()]
            texts = [str(c[0]) if c.size == 1 and c.dtype.kind == "U" else "" for c in cells]
            flat = np.array(texts)
        if flat.dtype.kind not in "fiubU" or flat.size != rows:
            raise InputError(
                f"variable {name!r} of {self.title} names the segments of {flat.size} samples but "
                f"there are {rows}: save one number or text per sample"
            )
        flat = flat.ravel()
        if flat.dtype.kind == "f":
            values, where = np.unique(flat, return_inverse=True)
            named = ["" if np.isnan(v) else repr(float(v)).removesuffix(".0") for v in values]
            labels = np.array(named)[where]
        else:
            labels = np.char.strip(flat.astype(str))
        if "" in labels:
            row = int(np.argmax(labels == "")) + 1
            raise InputError(
                f"variable {name!r} of {self.title} is blank in row {row}: say which segment the "
                "row belongs to"
            )
        return labels


def _pieces(marks: Sequence[int], step: int) -> Iterator[tuple[int, int]]:
    """From each mark to the next, in pieces of at most `step` rows."""
    for start, end in pairwise(marks):
        for at in range(start, max(end, start + 1), step):
            yield at, min(at + step, end)


def _column(array: Any, name: str) -> np.ndarray | Stored:
    """A row or a column of numbers (MATLAB knows no other vectors) as (T, 1), a matrix as it is."""
    if isinstance(array, Stored):
        check_numbers(array, name)
        return array
    found = as_samples(array, name)
    return found.T if found.shape[0] == 1 else found


def as_samples(array: Any, name: str) -> np.ndarray:
    """An array of numbers (T, m), mapped if it was; one dimension is one component."""
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
    if not isinstance(array, np.ndarray | Stored) or array.dtype.kind not in "fiub":
        held = array.dtype if isinstance(array, np.ndarray | Stored) else type(array).__name__
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
