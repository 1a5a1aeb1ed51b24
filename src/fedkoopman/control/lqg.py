"""LQG: a linear controller that sees only what a sensor shows, through a Koopman filter.

At every sample the filter predicts with the input that was put in, corrects with what is observed,
and the controller acts on the estimate. Both work in lifted coordinates.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.control.regulator import LQR
from fedkoopman.errors import InputError
from fedkoopman.estimation import OnlineState
from fedkoopman.koopman.kalman import KoopmanFilter

__all__ = ["LQG", "Remembered"]


class Remembered(NamedTuple):
    """What is known between samples: the estimate, and the input that acts."""

    estimate: OnlineState
    input: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LQG:
    """A `Controller` of observations.

    Attributes:
        lqr: the controller of states.
        filter: from observations to states; of the same model.
    """

    lqr: LQR
    filter: KoopmanFilter

    def __post_init__(self) -> None:
        if not isinstance(self.lqr, LQR) or not isinstance(self.filter, KoopmanFilter):
            raise InputError(
                f"LQG is given a {type(self.lqr).__name__} and a {type(self.filter).__name__}: "
                "give fk.control.lqr(…) and a fk.KoopmanFilter"
            )
        if self.filter.model is not self.lqr.model:
            raise InputError("filter and controller are of different models: make both of one")

    def begin(self) -> Remembered:
        """The filter's first state, and the target's input until the first observation."""
        held = np.clip(self.lqr.system.target.input, self.lqr.u_min, self.lqr.u_max)
        return Remembered(self.filter.first(), held)

    def act(self, state: Remembered, z: Any) -> tuple[NDArray[np.float64], Remembered]:
        """The input after an observation z; NaN components are missing."""
        estimate, _ = self.filter.online.step(state.estimate, z, inputs=state.input)
        u = self.lqr.of_lifted(np.asarray(estimate.mean))
        return u, Remembered(estimate, u)
