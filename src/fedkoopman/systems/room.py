"""How many steps to compile for: calls that differ in their length alone share what is compiled.

Compiling a solver takes seconds, and a trajectory's first steps do not depend on those after them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["filled", "room_for"]

LEAST = 512
"""Steps for which the shortest trajectories are compiled as well."""


def room_for(steps: int) -> int:
    """The length to compile for, at least `steps`: a power of two."""
    return max(LEAST, 1 << (steps - 1).bit_length())


def filled(values: NDArray[np.float64] | None, axis: int, room: int) -> Any:
    """Values per step, with zeros for the steps that are not asked for.

    Arguments:
        values: None, or an array with steps, or one value for all of them, along `axis`.
    """
    if values is None or values.shape[axis] == 1:
        return values
    wider = [(0, room - size if i == axis else 0) for i, size in enumerate(values.shape)]
    return np.pad(values, wider)
