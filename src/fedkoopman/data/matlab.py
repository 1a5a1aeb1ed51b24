"""MAT files of version 7.3, which are HDF5 files: MATLAB's variables and fields of its structs.

MATLAB stores columns one after the other, so that HDF5 sees its matrices turned. Texts are numbers
there, cells are references, and tables and strings are objects that only MATLAB understands.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedkoopman.data.hdf5 import Hdf5, Place, datasets
from fedkoopman.errors import InputError

_WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_NUMBERS = {"double", "single", "logical"} | _WHOLE
_HIDDEN = ("#refs#/", "#subsystem#/")
"""Where MATLAB keeps what cells and objects refer to."""


class Mat73(Hdf5):
    """Variables by name, fields of structs as "s.x"."""

    def places(self, file: Any) -> Iterator[tuple[str, Place]]:
        for path, data in datasets(file):
            if path.startswith(_HIDDEN) or "MATLAB_sparse" in data.parent.attrs:
                continue
            kind = _class_of(data)
            shape = tuple(data.shape[::-1])
            if data.attrs.get("MATLAB_empty", 0):
                shape = (0, 1)  # the dataset holds the shape in place of numbers
            dtype = np.dtype("U") if kind in ("char", "cell") else data.dtype
            if kind and kind not in (*_NUMBERS, "char", "cell"):
                dtype = np.dtype("V")
            yield path.replace("/", "."), Place(path, shape, dtype, turned=True)

    def variable(self, file: Any, name: str, place: Place) -> Any:
        kind = _class_of(file[place.dataset])
        if place.dtype.kind in "VO":
            raise InputError(
                f"variable {name!r} of {self.title} is a MATLAB {kind or 'object'}, not numbers: "
                "save its columns as vectors of their own"
            )
        if 0 in place.shape:
            return np.empty((0, 1))
        return super().variable(file, name, place)

    def texts(self, data: Any, place: Place) -> np.ndarray:
        """A cell array of texts, or a matrix of characters with a text in every row."""
        if data.dtype.kind != "O":
            return _rows_of(data)
        cells = [data.file[reference] for reference in np.ravel(data[()])]
        none = np.array([], dtype=str)
        found = [_rows_of(cell) if _class_of(cell) == "char" else none for cell in cells]
        return np.array([rows[0] if len(rows) == 1 else "" for rows in found], dtype=str)


def _class_of(data: Any) -> str:
    """What MATLAB says a dataset is; empty for one that MATLAB did not write."""
    kind = data.attrs.get("MATLAB_class", b"")
    return kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)


def _rows_of(data: Any) -> np.ndarray:
    """Every row of a matrix of characters as a text."""
    if data.attrs.get("MATLAB_empty", 0):
        return np.array([], dtype=str)
    codes = np.atleast_2d(np.asarray(data[()], dtype=np.uint16).T)
    return np.array(["".join(map(chr, row)).rstrip() for row in codes], dtype=str)
