"""Where a controller leads to: a state, and the input that holds the system there.

The model is affine in u, so the input that moves the state least from x is least squares:

    u = argmin ‖ φ⁻¹(K φ(x) + B u + Σ u_i N_i φ(x)) − x ‖

with φ⁻¹ replaced by its tangent. What is left says whether the state can be held at all.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.systems.checks import finite_array

__all__ = ["Target", "check_driven", "target", "window_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Target:
    """A state to be held.

    Attributes:
        state: x (d,).
        input: u (m,) that holds it, as well as one can.
        lifted: φ(x) (O,).
        drift: how far the model moves from x in one step all the same, (d,).
    """

    state: Array
    input: Array
    lifted: Array
    drift: Array


def check_driven(model: Any) -> Fitted:
    """The model, if it is one and has inputs."""
    if not isinstance(model, Fitted):
        raise InputError(
            f"model is a {type(model).__name__}: give a fitted model, or fk.load_model(file)"
        )
    if not model.n_inputs_:
        raise InputError("the model has no inputs, so nothing can be controlled: fit it with U=…")
    return model


def window_of(model: Fitted, x: Any, past: Any = None) -> Array:
    """A state, or a window of states, as φ takes it, (d_X,).

    Arguments:
        x: (d,); a model with delays also takes (μ, d). A single state stands for a window of it.
        past: inputs between the states of a window, (μ − 1, m); None: usual ones.
    """
    learned = model.learned_
    kind = learned.architecture
    states = finite_array(x, "x")
    if states.shape == (kind.state_dim,):
        states = np.tile(states, (kind.window, 1))
    if states.shape != (kind.window, kind.state_dim):
        shape = (kind.state_dim,) if kind.window == 1 else (kind.window, kind.state_dim)
        raise InputError(f"x has shape {states.shape}: give a state of shape {shape}")
    count = (kind.window - 1) * kind.inputs
    if past is None:
        before = learned.reference_window[0, :count]
    else:
        before = finite_array(past, "past").ravel()
        if len(before) != count:
            raise InputError(
                f"past has {len(before)} numbers: give the {kind.window - 1} inputs between the "
                "states of a window"
            )
    return np.concatenate([before, states.ravel()])


def target(model: Any, state: Any, input: Any = None) -> Target:
    """The state to be held, and the input for it.

    Arguments:
        state: (d,).
        input: (m,), where it is known; None finds it.
    """
    model = check_driven(model)
    learned, d = model.learned_, model.learned_.architecture.state_dim
    x = finite_array(state, "reference")
    if x.shape != (d,):
        raise InputError(
            f"the reference has shape {x.shape}: give one number for each of {d} states"
        )
    window = window_of(model, x)
    y = learned.lift(window[None])[0]
    still = learned.step(y[None])[0]
    moves = drive_matrix(model, y)
    slope = learned.lower_slope(still[None])[0]
    rest = learned.lower(still[None])[0] - x
    if input is None:
        u = -np.linalg.pinv(slope @ moves, rcond=1e-10) @ rest
    else:
        u = finite_array(input, "input")
        if u.shape != (model.n_inputs_,):
            raise InputError(f"input has shape {u.shape}: give {model.n_inputs_} numbers")
    ahead = learned.lower((still + moves @ u)[None])[0]
    return Target(x, u, y, ahead - x)


def drive_matrix(model: Fitted, y: Array) -> Array:
    """What an input does at a lifted state, B + [N_1 y, N_2 y, …], (O, m)."""
    learned = model.learned_
    if not learned.architecture.bilinear:
        return learned.input_matrix
    return learned.input_matrix + np.stack([n @ y for n in learned.input_products], axis=1)
