"""Linear-quadratic control in the lifted space: u = u* − F (φ(x) − φ(x*)).

F makes Σ (x − x*)ᵀ Q (x − x*) + (u − u*)ᵀ R (u − u*) least for the linear system of
`control.linear`; the cost of the states goes through the decoder, Cᵀ Q C. The Riccati equation is
SciPy's.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedkoopman.control.linear import LinearSystem, linearised
from fedkoopman.control.recent import Recent, at_rest, with_input, with_state
from fedkoopman.control.targets import check_driven
from fedkoopman.covariance import one_covariance
from fedkoopman.errors import ComputationError, InputError, short
from fedkoopman.koopman.fitted import Fitted

__all__ = ["LQR", "lqr", "weight"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LQR:
    """A linear `Controller`; it remembers only the window of a model with delays.

    Attributes:
        model: of the system.
        system: its linear system about the target.
        gain: F in the subspace's coordinates, (m, r).
        cost: the solution P of the Riccati equation, (r, r).
        u_min, u_max: to which inputs are cut, (m,).
    """

    model: Fitted
    system: LinearSystem
    gain: Array
    cost: Array
    u_min: Array
    u_max: Array

    def begin(self) -> Recent:
        """Before the first sample; the target's input acts."""
        return at_rest(self.model, np.clip(self.system.target.input, self.u_min, self.u_max))

    def act(self, state: Recent, x: Any, past: Any = None) -> tuple[Array, Recent]:
        """The input at a state, or at the end of a window with its past inputs."""
        window, recent = with_state(self.model, state, x, past)
        u = self.of_lifted(self.model.learned_.lift(window[None])[0])
        return u, with_input(recent, u)

    def __call__(self, x: Any, past: Any = None) -> Array:
        """The input at a state, from which nothing is remembered."""
        return self.act(self.begin(), x, past)[0]

    def of_lifted(self, y: Array) -> Array:
        """The input at a lifted state."""
        at = self.system.target
        u = at.input - self.gain @ (self.system.basis.T @ (y - at.lifted))
        return np.clip(u, self.u_min, self.u_max)

    @property
    def state_gain(self) -> Array:
        """F of the newest state, (m, d), to first order about the target."""
        at, d = self.system.target, len(self.system.target.state)
        slope = self.model.learned_.lift_slope(at.window[None])[0]
        return self.gain @ self.system.basis.T @ slope[:, -d:]

    @property
    def closed(self) -> NDArray[np.complex128]:
        """Eigenvalues of the closed loop."""
        found = np.linalg.eigvals(self.system.A - self.system.B @ self.gain)
        return found.astype(np.complex128)


def lqr(
    model: Any,
    reference: Any,
    Q: Any = 1.0,
    R: Any = 1.0,
    *,
    input: Any = None,
    u_min: Any = -np.inf,
    u_max: Any = np.inf,
) -> LQR:
    """The linear controller that holds a state.

    Arguments:
        reference: the state to be held, (d,).
        Q: weight of the states: a number, a diagonal (d,) or a matrix.
        R: weight of the inputs, likewise; above 0.
        input: the input that holds it; None finds one.
        u_min, u_max: to which inputs are cut, one for all or one each.
    """
    model = check_driven(model)
    system = linearised(model, reference, input)
    d, m = len(system.C), model.n_inputs_
    Q, R = weight(Q, d, "Q"), weight(R, m, "R", above=True)
    try:
        P = scipy.linalg.solve_discrete_are(system.A, system.B, system.C.T @ Q @ system.C, R)
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ComputationError(
            f"the Riccati equation has no solution ({error}): a part of the model grows and no "
            "input moves it, see fk.control.facts; give more data, or another model kind"
        ) from error
    gain = np.linalg.solve(R + system.B.T @ P @ system.B, system.B.T @ P @ system.A)
    low, high = bounds(u_min, u_max, m, "u_min", "u_max")
    return LQR(model, system, gain, P, low, high)


def weight(value: Any, dim: int, name: str, above: bool = False) -> Array:
    """A weight as a matrix; numbers below 0, and with `above` 0 too, are refused."""
    found = one_covariance(value, dim, name)
    if above and np.linalg.eigvalsh(found)[0] <= 0:
        raise InputError(f"{name} has directions of weight 0: give a weight above 0 for each input")
    return found


def bounds(low: Any, high: Any, dim: int, low_name: str, high_name: str) -> tuple[Array, Array]:
    """Bounds, one for all components or one each."""
    found = []
    for value, name in ((low, low_name), (high, high_name)):
        try:
            array = np.asarray(value, np.float64)
        except (TypeError, ValueError):
            raise InputError(f"{name} is {short(value)}: give a number, or {dim} of them") from None
        if array.shape not in ((), (dim,)):
            raise InputError(f"{name} has shape {array.shape}: give a number, or {dim} of them")
        if np.isnan(array).any():
            raise InputError(f"{name} has NaN: give numbers, ±inf where there is no bound")
        found.append(np.broadcast_to(array, (dim,)).copy())
    if (found[0] == np.inf).any() or (found[1] == -np.inf).any():
        wrong = low_name if (found[0] == np.inf).any() else high_name
        raise InputError(f"{wrong} leaves nothing: give a finite bound, or none")
    if (found[0] > found[1]).any():
        raise InputError(f"{low_name} is above {high_name}: give a lower and a higher bound")
    return found[0], found[1]
