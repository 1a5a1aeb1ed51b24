"""NPY files, mapped: rows are read from disk when they are looked at."""

from collections.abc import Iterator

import numpy as np

from fedkoopman.data.arrays import NUMPY_DAMAGE, Arrays, not_numpy


class Npy(Arrays):
    """One array without a name."""

    def arrays(self) -> tuple[int, Iterator[tuple[str, np.ndarray]]]:
        try:
            with self.path.open("rb") as file:
                whole = file.read(6) == b"\x93NUMPY"
            if whole:
                found: np.ndarray = np.load(self.path, mmap_mode="r", allow_pickle=False)
                return 1, iter([("", found)])
        except NUMPY_DAMAGE as error:
            raise not_numpy(self.title, error) from error
        raise not_numpy(self.title)


FORMAT = Npy
