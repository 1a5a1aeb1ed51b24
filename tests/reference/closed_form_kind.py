"""A model kind without losses: the extension's linear one, with K in closed form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedkoopman.koopman.kind import Kind
from reference.extension import member

Linear = member("linear", "KIND")


@dataclass(frozen=True)
class LeastSquares(Linear):
    """K by least squares, with the features as they are drawn."""

    name: ClassVar[str] = "least-squares"

    losses = Kind.losses  # it has none

    def solved(self, weights: Mapping[str, Any], x: Any) -> Any:
        """The weights for one trajectory (T, d)."""
        y = np.asarray(self.lift(weights, x.T))
        operator = np.linalg.lstsq(y[:, :-1].T, y[:, 1:].T, rcond=None)[0].T
        return {**weights, "operator": operator.astype(y.dtype)}
