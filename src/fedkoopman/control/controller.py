"""What a controller is: from its own state and the system's to an input."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Controller(Protocol):
    """Acts once per sample. Its state is what it remembers; nobody else looks into it."""

    def begin(self) -> Any:
        """The state before the first sample."""
        ...

    def act(self, state: Any, x: Any) -> tuple[Array, Any]:
        """The input (m,) from now to the next sample, and the next state.

        Arguments:
            x: the system's newest state (d,); of a controller with a filter, what is observed.
        """
        ...
