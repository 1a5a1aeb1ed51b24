"""What can be said of a model before it is controlled: stability, and what inputs can move.

Whether a target is stable is told from one step of the model, x ↦ φ⁻¹(K φ(x) + …), and its slope at
the target. The eigenvalues of K itself would not tell it: they are those of all functions in the
lift, over the whole range of the training. What inputs move is told in the lifted space, of the
linear system of `control.linear`: it is what the
controllability Gramian Σ_k Aᵏ B Bᵀ (Aᵀ)ᵏ reaches. Where A grows it is divided by its spectral
radius first: that changes no direction that inputs reach, and what grows does not hide the rest.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedkoopman.control.horizon import Horizon
from fedkoopman.control.linear import LinearSystem, linearised
from fedkoopman.control.regulator import LQR
from fedkoopman.control.targets import Target, check_driven
from fedkoopman.koopman.card import input_names, state_names
from fedkoopman.koopman.fitted import Fitted

__all__ = ["Facts", "facts"]

Array = NDArray[np.float64]
Complex = NDArray[np.complex128]

WEAK = 1e-6
"""A direction that inputs move by less than this share of what they move most is not reached."""
GROWS = 1 + 1e-6
REACH = 200
"""Samples within which inputs act."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Of a model about a target.

    Attributes:
        names, input_names: of the states and inputs.
        eigenvalues: of one step's slope at the target, by falling modulus.
        unmoved: eigenvalues of modes that grow, show in the states, and are moved by no input.
        reach: how far unit inputs can move each state within `REACH` samples, growth apart, (d,).
        rank: how many directions of the lifted space inputs move.
        size: of how many.
        target: with the input that holds it, and how far it moves in one step all the same.
        u_min, u_max: bounds of the inputs, as far as there are some, (m,).
        dt: the sampling interval.
        closed: eigenvalues of the same step with a linear controller, if there is one.
    """

    names: tuple[str, ...]
    input_names: tuple[str, ...]
    eigenvalues: Complex
    unmoved: Complex
    reach: Array
    rank: int
    size: int
    target: Target
    u_min: Array
    u_max: Array
    dt: float
    closed: Complex | None = None

    @property
    def sentences(self) -> list[str]:
        """In plain words."""
        return [self._stability(), self._control(), *self._lost(), *self._target(), *self._loop()]

    def _stability(self) -> str:
        sizes = np.abs(self.eigenvalues)
        growing = sizes[sizes > GROWS]
        if not len(growing):
            return "By itself the model stays near the target: no mode grows."
        count = len(growing)
        modes = "1 mode grows and" if count == 1 else f"{count} modes grow, the fastest"
        return (
            f"By itself the model leaves the target: {modes} doubles in "
            f"{self._time(np.log(2) / np.log(growing.max()))}."
        )

    def _control(self) -> str:
        most = float(self.reach.max(initial=0.0)) or 1.0
        stuck = [n for n, r in zip(self.names, self.reach, strict=True) if r <= WEAK * most]
        said = f"Inputs move {self.rank} of {self.size} directions of the lifted space"
        if not stuck:
            return f"{said}, and every state."
        return f"{said}; they do not move {', '.join(stuck)}."

    def _lost(self) -> list[str]:
        if not len(self.unmoved):
            return []
        modes = "a mode grows" if len(self.unmoved) == 1 else f"{len(self.unmoved)} modes grow"
        return [f"No controller can hold this target for long: {modes} that no input moves."]

    def _target(self) -> list[str]:
        found, drift = [], np.abs(self.target.drift)
        if drift.max() > 1e-6 * (1 + np.abs(self.target.state).max()):
            found.append(
                f"The target cannot be held exactly: {self.names[int(drift.argmax())]} moves by "
                f"{drift.max():.3g} in one step with the best input."
            )
        edges = zip(self.input_names, self.target.input, self.u_min, self.u_max, strict=True)
        found += [
            f"Holding the target takes {name} = {u:.4g}, which is outside of its bounds, "
            f"{low:.4g} to {high:.4g}."
            for name, u, low, high in edges
            if not low - 1e-6 * (1 + abs(low)) <= u <= high + 1e-6 * (1 + abs(high))
        ]
        return found

    def _loop(self) -> list[str]:
        if self.closed is None:
            return []
        slowest = float(np.abs(self.closed).max(initial=0.0))
        if slowest >= 1:
            return ["Under linear control (LQR) the model's closed loop is not stable."]
        samples = np.log(0.05) / np.log(slowest) if slowest > 0 else 0.0
        return [
            "Under linear control (LQR) the model's closed loop is stable, and what disturbs it "
            f"is down to 5 % within {self._time(samples)}."
        ]

    def _time(self, samples: float) -> str:
        return f"{samples * self.dt:.3g} ({samples:.3g} samples)"


def facts(model: Any, reference: Any, controller: LQR | None = None) -> Facts:
    """What is known about a target.

    Arguments:
        reference: the state (d,); not needed with a controller, which has one.
        controller: whose closed loop and bounds are judged too.
    """
    model = check_driven(model)
    system = linearised(model, reference) if controller is None else controller.system
    A = system.A / max(1.0, float(np.abs(np.linalg.eigvals(system.A)).max(initial=0.0)))
    gramian, moved = np.zeros_like(A), system.B
    for _ in range(REACH):
        gramian += moved @ moved.T
        moved = A @ moved
    values = scipy.linalg.eigvalsh(gramian)
    values = values / max(values.max(initial=0.0), 1e-300)
    poles, closed = _poles(model, system, controller)
    free = np.full(model.n_inputs_, np.inf)
    return Facts(
        names=state_names(model),
        input_names=input_names(model),
        eigenvalues=poles[np.argsort(-np.abs(poles))],
        unmoved=_unmoved(model, system),
        reach=np.sqrt(np.maximum(np.diagonal(system.C @ gramian @ system.C.T), 0.0)),
        rank=int((values > WEAK**2).sum()),
        size=len(system.A),
        target=system.target,
        u_min=-free if controller is None else controller.u_min,
        u_max=free if controller is None else controller.u_max,
        dt=model.dt_,
        closed=closed,
    )


def _poles(
    model: Fitted, system: LinearSystem, controller: LQR | None
) -> tuple[Complex, Complex | None]:
    """Eigenvalues of one step of the model at the target: by itself, and with a controller."""
    at = system.target
    A, B = Horizon(model, relift=True, steps=1).step_slopes(at.window, at.input)
    alone = np.linalg.eigvals(A).astype(np.complex128)
    if controller is None:
        return alone, None
    slope = model.learned_.lift_slope(at.window[None])[0]
    steered = A - B @ controller.gain @ system.basis.T @ slope
    return alone, np.linalg.eigvals(steered).astype(np.complex128)


def _unmoved(model: Fitted, system: LinearSystem) -> Complex:
    """Modes that were left out of the system although they grow and show in the states."""
    lost = system.left_out[np.abs(system.left_out) > GROWS].astype(np.complex128)
    if not len(lost):
        return lost
    values, right = np.linalg.eig(model.learned_.step_matrix(system.target.input))
    slope = model.learned_.lower_slope(system.target.lifted[None])[0]
    shown = np.abs(slope @ right).max(axis=0) > WEAK * np.linalg.norm(slope)
    return np.array([v for v in lost if shown[np.abs(values - v).argmin()]], np.complex128)
