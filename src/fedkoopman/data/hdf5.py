"""HDF5 files: datasets by their paths, read in pieces. Nothing but the file itself is opened.

An HDF5 file may point into other files (external links, external and virtual datasets): such are
never followed. Read with h5py.
"""

import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.data.arrays import ROWS, Stored, Variables
from fedkoopman.data.foreign import Damaged, package, reading
from fedkoopman.errors import InputError
from fedkoopman.paths import shown

MOST_PICKED = 1000
"""A matrix with more columns has no names for each."""

_HEAP = b"GCOL\x01\x00\x00\x00"
_LARGE, _SQUEEZED = 10**8, 2000
"""A dataset of so many bytes that is stored in this fraction of them holds next to nothing: gzip
squeezes by 1032 at most. Such a file could keep us reading fill values for days."""


@dataclass(frozen=True)
class Place:
    """Where a variable is in the file.

    Attributes:
        dataset: its path.
        shape: of the variable, as users see it.
        dtype: of its entries, of which texts are "U".
        field: of a compound dataset; empty for the whole.
        column: of a matrix; None for all.
        turned: whether the file's axes are in the opposite order, as MATLAB writes them.
    """

    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    field: str = ""
    column: int | None = None
    turned: bool = False


class Rows(Stored):
    """A dataset, or one column or field of it, as (T, m)."""

    def __init__(self, path: Path, place: Place, chunks: tuple[int, ...] | None) -> None:
        self.path, self.place = path, place
        rows, width = (*place.shape, 1)[:2]
        # a row of numbers is a vector
        self.across = rows == 1 and len(place.shape) == 2 and place.column is None
        shape = (width, 1) if self.across else (rows, 1 if place.column is not None else width)
        along = (chunks or (ROWS,))[-1 if len(place.shape) > 1 and self._last else 0]
        super().__init__(shape, place.dtype, -(-ROWS // along) * along)  # whole chunks

    @property
    def _last(self) -> bool:
        """Whether time is the last axis in the file."""
        return self.across != self.place.turned

    def read(self, start: int, stop: int) -> np.ndarray:
        place, cut = self.place, slice(start, stop)
        with opened(self.path) as file:
            data = file[place.dataset]
            data = data.fields(place.field) if place.field else data
            if len(place.shape) == 1:
                part = data[cut]
            elif place.column is None:
                part = data[:, cut].T if self._last else data[cut]
            else:
                part = data[cut, place.column]
        return np.asarray(part).reshape(stop - start, self.shape[1])


class Hdf5(Variables):
    """Variables are datasets, as "group/name", and columns of matrices, as "name[0]"."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shapes of datasets of numbers; columns of matrices and texts are never meant unasked."""
        with opened(self.path) as file:
            self._places = dict(self.places(file))
        meant = {
            name: place.column is None and not place.field and place.dtype.kind in "fiub"
            for name, place in self._places.items()
        }
        return {name: self._places[name].shape if meant[name] else () for name in self._places}

    def places(self, file: Any) -> Iterator[tuple[str, Place]]:
        """Every variable of an open file, with where it is."""
        for path, data in datasets(file):
            place = Place(path, data.shape, text_or(data.dtype))
            if data.dtype.names and data.ndim == 1:  # a table, as PyTables and pandas write them
                for field in data.dtype.names:
                    kind = text_or(data.dtype[field])
                    yield f"{path}.{field}", replace(place, dtype=kind, field=field)
                continue
            yield path, place
            if data.ndim == 2 and 1 < data.shape[1] <= MOST_PICKED and place.dtype.kind in "fiub":
                for j in range(data.shape[1]):
                    yield f"{path}[{j}]", replace(place, column=j)

    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        with opened(self.path) as file:
            return {name: self.variable(file, name, self._places[name]) for name in names}

    def variable(self, file: Any, name: str, place: Place) -> Any:
        """Numbers to be read later, texts as they are, or an empty array of what is neither."""
        data, where = file[place.dataset], f"variable {name!r} of {self.title}"
        if data.external or data.is_virtual:
            raise InputError(f"{where} is kept in other files, which are not read: copy it into it")
        stored = data.id.get_storage_size()
        if data.nbytes > _LARGE and data.nbytes > _SQUEEZED * stored:
            raise InputError(
                f"{where} has {data.size:,} numbers of which {stored:,} bytes are stored: save it "
                "with the length that was written"
            )
        if place.dtype.kind == "U":
            return self.texts(data, place)
        if place.dtype.kind not in "fiub":
            return np.empty(0, place.dtype)
        if not 0 < len(place.shape) < 3:
            return np.broadcast_to(np.zeros((), place.dtype), place.shape)  # refused by its shape
        return Rows(self.path, place, data.chunks)

    def texts(self, data: Any, place: Place) -> np.ndarray:
        """The texts of a dataset, or of one field of it."""
        if data.dtype.kind != "S" and not (place.field and data.dtype[place.field].kind == "S"):
            self._check_texts(data)
        values = data.fields(place.field)[()] if place.field else data[()]
        decoded = [t.decode() if isinstance(t, bytes) else str(t) for t in np.ravel(values)]
        return np.array(decoded, dtype=str)

    def _check_texts(self, data: Any) -> None:
        """Refuse texts of any length that claim to be longer than the file, or cannot be told.

        The HDF5 library believes them, and takes gigabytes of memory.
        """
        offset, each = data.id.get_offset(), np.dtype([("n", "<u4"), ("at", "<u8"), ("i", "<u4")])
        if offset is None or data.id.get_storage_size() != each.itemsize * data.size:
            raise InputError(
                f"{data.name!r} in {self.title} holds texts of any length within chunks or tables: "
                "save texts of a fixed length (in h5py, dtype 'S20'), or numbers"
            )
        told = np.fromfile(self.path, each, data.size, offset=offset)["n"]
        if told.sum(dtype=np.uint64) > self.path.stat().st_size:
            raise Damaged(f"a text in {data.name!r} is longer than the file")
        _check_heaps(self.path)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open file of h5py; what it raises is told as what is wrong with the file."""
    title, matlab = shown(path), path.suffix.lower() == ".mat"
    h5py = package("h5py", "hdf5", title)
    kind = "a MAT file of version 7.3" if matlab else "an HDF5 file"
    with reading(title, kind, "write it again"), h5py.File(path, "r") as file:
        yield file


def datasets(file: Any) -> Iterator[tuple[str, Any]]:
    """All datasets that have a shape, with their paths; links are not followed."""
    found: list[tuple[str, Any]] = []
    file.visititems(lambda path, item: found.append((path, item)))
    for path, item in found:
        # a name that is no text comes as bytes; groups have no shape
        if isinstance(path, str) and getattr(item, "shape", None) is not None:
            yield path, item


def text_or(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type of texts as "U", any other as it is."""
    about: dict[str, Any] = dict(dtype.metadata or {})
    return np.dtype("U") if dtype.kind == "S" or about.get("vlen") in (str, bytes) else dtype


def _check_heaps(path: Path) -> None:
    """Refuse a file whose heaps of texts are damaged, in which the HDF5 library may never end.

    A heap is a row of texts, each after 16 bytes that end with its length, and filled up to 8
    bytes. An entry 0 is the rest of the heap.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        start = raw.find(_HEAP)
        while start >= 0:
            end = start + int.from_bytes(raw[start + 8 : start + 16], "little")
            at = start + 16
            while at + 16 <= min(end, len(raw)):
                entry = int.from_bytes(raw[at : at + 2], "little")
                length = int.from_bytes(raw[at + 8 : at + 16], "little")
                at += 16 + -(-length // 8) * 8 if entry else length or len(raw)
            if at > end or end > len(raw) or end - at >= 16:
                raise Damaged(f"its texts at byte {start:,} are damaged")
            start = raw.find(_HEAP, start + 1)
