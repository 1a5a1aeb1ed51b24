"""Named variables as columns, from MAT and NPZ files, which are read as a whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fedkoopman.data.array_files import as_samples, npz_array, npz_names
from fedkoopman.data.tables import BOOKKEEPING
from fedkoopman.errors import InputError, unknown_name

_HDF5 = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class Variables:
    """Columns made of variables.

    Attributes:
        channels: names of the observed columns.
        values: (T, k) float64: the observed columns, the inputs, the time.
        labels: the segment of each row; None without.
    """

    channels: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None


def find_variable(path: Path, title: str, wanted: str | None, otherwise: str) -> str | None:
    """The variable `wanted`, which must exist, or `otherwise` if it does, or None."""
    known = _shapes(path, title)
    if wanted is None:
        return otherwise if otherwise in known else None
    if wanted in known:
        return wanted
    raise unknown_name(f"variable of {title}", wanted, known)


def read_variables(
    path: Path,
    title: str,
    columns: tuple[str, ...],
    inputs: tuple[str, ...],
    segment: str | None,
    time: str | None,
) -> Variables:
    """Read variables that are vectors of one length; a single observed one may be (T, m).

    Arguments:
        path: a MAT or NPZ file.
        title: what messages call it.
        columns: the observed variables; if empty, the only one that there is.
        inputs: variables of known inputs.
        segment: the variable that names each row's segment.
        time: the variable with the sampling instants.
    """
    aside = (*inputs, *filter(None, [time]))
    known = _shapes(path, title)
    observed = columns or _only_variable(known, title, (*aside, segment))
    wanted = (*observed, *aside, *filter(None, [segment]))
    for name in wanted:
        if name not in known:
            raise unknown_name(f"variable of {title}", name, known)
    found = _load(path, title, wanted)

    parts = {}
    for name in (*observed, *aside):
        parts[name] = part = _column(found[name], f"variable {name!r} of {title}")
        if part.shape[1] != 1 and (name,) != observed:
            raise InputError(
                f"variable {name!r} of {title} has shape {part.shape}: give a vector, one number "
                "per sample"
            )
        if len(part) != len(parts[observed[0]]):
            raise InputError(
                f"variable {name!r} of {title} has {len(part)} samples but {observed[0]!r} has "
                f"{len(parts[observed[0]])}: give them the same length"
            )
    values = np.column_stack(list(parts.values())).astype(np.float64, copy=False)
    width = parts[observed[0]].shape[1]
    channels = observed if width == 1 else tuple(f"{observed[0]} {j + 1}" for j in range(width))
    labels = _labels(found[segment], segment, title, len(values)) if segment else None
    return Variables(channels, values, labels)


def _shapes(path: Path, title: str) -> dict[str, tuple[int, ...]]:
    """The shapes of a MAT file's variables; of an NPZ file only the names are known."""
    if path.suffix.lower() == ".npz":
        return {name: () for name in npz_names(path, title)}
    from scipy.io import whosmat

    return {name: tuple(shape) for name, shape, _ in _mat(path, title, whosmat)}


def _load(path: Path, title: str, names: tuple[str, ...]) -> dict[str, Any]:
    if path.suffix.lower() == ".npz":
        return {name: npz_array(path, title, name) for name in names}
    from scipy.io import loadmat

    found: dict[str, Any] = _mat(path, title, lambda file: loadmat(file, variable_names=names))
    return found


def _mat(path: Path, title: str, read: Callable[[BinaryIO], Any]) -> Any:
    with path.open("rb") as file:
        head = file.read(1024)
        if head.startswith(b"MATLAB 7.3") or _HDF5 in (head[:8], head[512:520]):
            raise InputError(
                f"{title} is a MAT file of version 7.3, which we do not read: save it in MATLAB "
                "with the option -v7"
            )
        file.seek(0)
        try:
            return read(file)
        except Exception as error:  # whatever a damaged file makes of SciPy's parser
            raise InputError(
                f"{title} is not a MAT file, or not whole: save it in MATLAB with the option -v7"
            ) from error


def _only_variable(
    shapes: dict[str, tuple[int, ...]], title: str, aside: Sequence[str | None]
) -> tuple[str, ...]:
    """The one variable that can be the observations; single numbers are settings."""
    names = [name for name in shapes if name not in (*aside, *BOOKKEEPING)]
    arrays = [name for name in names if np.prod(shapes[name]) > 1] or names
    if len(arrays) != 1:
        listed = ", ".join(arrays) or "none"
        raise InputError(
            f"{title} holds not one variable of observations but {listed}: name the observed ones "
            "as columns"
        )
    return tuple(arrays)


def _column(array: Any, name: str) -> np.ndarray:
    """A row or a column of numbers (MATLAB knows no other vectors) as (T, 1), a matrix as it is."""
    found = as_samples(array, name)
    return found.T if found.shape[0] == 1 else found


def _labels(array: Any, name: str, title: str, rows: int) -> np.ndarray:
    """The name of each row's segment, given as numbers, texts or a cell array of texts."""
    flat = np.asarray(array)
    if flat.dtype.kind == "O":
        cells = [np.asarray(cell).ravel() for cell in flat.ravel()]
        texts = [str(c[0]) if c.size == 1 and c.dtype.kind == "U" else "" for c in cells]
        flat = np.array(texts)
    if flat.dtype.kind not in "fiubU" or flat.size != rows:
        raise InputError(
            f"variable {name!r} of {title} names the segments of {flat.size} samples but there "
            f"are {rows}: save one number or text per sample"
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
            f"variable {name!r} of {title} is blank in row {row}: say which segment the row "
            "belongs to"
        )
    return labels
