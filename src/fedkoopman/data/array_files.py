"""Arrays from NPY and NPZ files. Python objects, which could run code, are never loaded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np

from fedkoopman.errors import InputError

_DAMAGE = (ValueError, OSError, EOFError, BadZipFile, ZlibError)


def npy_array(path: Path, title: str) -> np.ndarray:
    """The array of an NPY file, mapped: rows are read from disk when they are looked at."""
    try:
        with path.open("rb") as file:
            whole = file.read(6) == b"\x93NUMPY"
        if whole:
            found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
            return found
    except _DAMAGE as error:
        raise _not_numpy(title, error) from error
    raise _not_numpy(title)


def npz_names(path: Path, title: str) -> tuple[str, ...]:
    """The names of the arrays in an NPZ file."""
    try:
        # opened here, as NumPy leaves a damaged file open
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            names = tuple(content.files)
    except (*_DAMAGE, AttributeError, TypeError) as error:  # the latter two: an NPY file
        raise _not_numpy(title, error) from error
    if not names:
        raise InputError(f"{title} holds no array: save one array per trajectory")
    return names


def npz_arrays(path: Path, title: str) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of an NPZ file by name, one in memory at a time."""
    for name in npz_names(path, title):
        yield name, npz_array(path, title, name)


def npz_array(path: Path, title: str, name: str) -> np.ndarray:
    """One array of an NPZ file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            found: np.ndarray = content[name]
            return found
    except _DAMAGE as error:
        raise _not_numpy(title, error) from error


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


def _not_numpy(title: str, error: BaseException | None = None) -> InputError:
    if error is not None and ("Object arrays" in str(error) or "Python objects" in str(error)):
        return InputError(f"{title} holds Python objects, which are never loaded: save float64")
    return InputError(
        f"{title} is not a NumPy file of numbers, or not whole: write it with numpy.save or "
        "numpy.savez"
    )
