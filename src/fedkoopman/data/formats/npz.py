"""NPZ files: each array is a segment or, where the user names columns, a column."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedkoopman.data.arrays import NUMPY_DAMAGE, Arrays, Variables, not_numpy
from fedkoopman.data.row_blocks import Recording
from fedkoopman.errors import InputError
from fedkoopman.paths import shown


class NpzArrays(Arrays):
    """Every array is a segment."""

    def arrays(self) -> tuple[int, Iterator[tuple[str, np.ndarray]]]:
        names = _names(self.path)
        return len(names), ((name, _array(self.path, name)) for name in names)


class NpzVariables(Variables):
    """Every array is a column."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Only the names are known before the arrays are read."""
        return {name: () for name in _names(self.path)}

    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        return {name: _array(self.path, name) for name in names}


def _names(path: Path) -> tuple[str, ...]:
    try:
        # opened here, as NumPy leaves a damaged file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            names = tuple(content.files)
    except (*NUMPY_DAMAGE, AttributeError, TypeError) as error:  # the latter two: an NPY file
        raise not_numpy(shown(path), error) from error
    if not names:
        raise InputError(f"{shown(path)} holds no array: save one array per trajectory")
    return names


def _array(path: Path, name: str) -> np.ndarray:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            found: np.ndarray = content[name]
            return found
    except NUMPY_DAMAGE as error:
        raise not_numpy(shown(path), error) from error


def _open(path: Path, columns: Sequence[str]) -> Recording:
    return NpzVariables(path) if columns else NpzArrays(path)


FORMAT = _open
