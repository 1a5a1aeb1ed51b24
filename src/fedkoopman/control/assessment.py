"""What can be said of a model before it is controlled: stability, and what inputs can move."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedkoopman.control.linear import linearised
from fedkoopman.control.regulator import LQR
from fedkoopman.control.targets import check_driven
from fedkoopman.koopman.card import state_names

__all__ = ["Facts", "facts"]

Array = NDArray[np.float64]

WEAK = 1e-6
"""A direction that inputs move by less than this share of what they move most is not reached."""
REACH = 200
"""Samples within which inputs act."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Of the linear system about a target.

    Attributes:
        names: of the states.
        eigenvalues: of A, by falling modulus, without those that no input moves and that stay.
        reach: how far unit inputs can move each state within `REACH` samples, (d,).
        rank: how many directions of the lifted space inputs move.
        size: of how many.
        drift: how far the target moves in one step all the same, by state.
        dt: the sampling interval.
        closed: eigenvalues of the closed loop, if there is one.
    """

    names: tuple[str, ...]
    eigenvalues: NDArray[np.complex128]
    reach: Array
    rank: int
    size: int
    drift: Array
    dt: float
    closed: NDArray[np.complex128] | None = None

    @property
    def sentences(self) -> list[str]:
        """In plain words."""
        return [self._stability(), self._control(), *self._target(), *self._loop()]

    def _stability(self) -> str:
        growing = self.eigenvalues[np.abs(self.eigenvalues) > 1 + 1e-6]
        if not len(growing):
            return "By itself the model stays near the target: no mode grows."
        fastest = np.log(np.abs(growing).max()) / self.dt
        modes = "mode grows" if len(growing) == 1 else "modes grow"
        return (
            f"By itself the model leaves the target: {len(growing)} {modes}, the fastest doubles "
            f"in {np.log(2) / fastest:.3g}."
        )

    def _control(self) -> str:
        moved = [n for n, r in zip(self.names, self.reach, strict=True) if r > WEAK * self._most]
        stuck = [n for n in self.names if n not in moved]
        said = f"Inputs move {self.rank} of {self.size} directions of the lifted space"
        if not stuck:
            return f"{said}, and every state."
        return f"{said}; they do not move {', '.join(stuck)}."

    @property
    def _most(self) -> float:
        return float(self.reach.max(initial=0.0)) or 1.0

    def _target(self) -> list[str]:
        drift = float(np.abs(self.drift).max())
        if drift < 1e-6:
            return []
        name = self.names[int(np.abs(self.drift).argmax())]
        return [
            f"The target cannot be held exactly: {name} moves by {drift:.3g} in one step with the "
            "best input."
        ]

    def _loop(self) -> list[str]:
        if self.closed is None:
            return []
        slowest = float(np.abs(self.closed).max(initial=0.0))
        if slowest >= 1:
            return ["The closed loop is not stable."]
        time = np.log(0.05) / np.log(slowest) * self.dt if slowest > 0 else 0.0
        return [f"The closed loop is stable and settles to 5 % within {time:.3g}."]


def facts(model: Any, reference: Any, controller: LQR | None = None) -> Facts:
    """What is known about a target.

    Arguments:
        reference: the state (d,).
        controller: whose closed loop is judged too.
    """
    model = check_driven(model)
    system = linearised(model, reference) if controller is None else controller.system
    gramian, moved = np.zeros_like(system.A), system.B
    for _ in range(REACH):
        gramian += moved @ moved.T
        moved = system.A @ moved
        if not np.isfinite(moved).all() or np.abs(moved).max() > 1e6:
            break
    values = scipy.linalg.eigvalsh(gramian)
    values = values / max(values.max(initial=0.0), 1e-300)
    reach = np.sqrt(np.maximum(np.diagonal(system.C @ gramian @ system.C.T), 0.0))
    poles = np.linalg.eigvals(system.A).astype(np.complex128)
    return Facts(
        names=state_names(model),
        eigenvalues=poles[np.argsort(-np.abs(poles))],
        reach=reach,
        rank=int((values > WEAK**2).sum()),
        size=len(system.A),
        drift=system.target.drift,
        dt=model.dt_,
        closed=None if controller is None else controller.closed,
    )
