"""MAT files of every version: variables that are columns, or one matrix of observations."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from fedkoopman.data.arrays import Variables
from fedkoopman.data.matlab import Mat73
from fedkoopman.data.row_blocks import Recording
from fedkoopman.errors import InputError

_HDF5 = b"\x89HDF\r\n\x1a\n"


class Mat(Variables):
    """What MATLAB saves with the option -v7 or an older one."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        from scipy.io import whosmat

        return {name: tuple(shape) for name, shape, _ in self._read(whosmat)}

    def load(self, names: Sequence[str]) -> Mapping[str, Any]:
        from scipy.io import loadmat

        found: Mapping[str, Any] = self._read(lambda file: loadmat(file, variable_names=names))
        return found

    def _read(self, read: Callable[[BinaryIO], Any]) -> Any:
        with self.path.open("rb") as file:
            try:
                return read(file)
            except Exception as error:  # whatever a damaged file makes of SciPy's parser
                raise InputError(
                    f"{self.title} is not a MAT file, or not whole: save it in MATLAB again"
                ) from error


def _open(path: Path, columns: Sequence[str]) -> Recording:
    """By what the file begins with: version 7.3 is HDF5."""
    with path.open("rb") as file:
        head = file.read(1024)
    newer = head.startswith(b"MATLAB 7.3") or _HDF5 in (head[:8], head[512:520])
    return Mat73(path, columns) if newer else Mat(path, columns)


FORMAT = _open
