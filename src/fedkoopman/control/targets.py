"""Where a controller leads to: a state, and the input that holds the system there.

The input that moves the state least from x is found by Gauss-Newton steps:

    u = argmin ‖ φ⁻¹(K φ(X) + B u + Σ u_i N_i φ(X)) − x ‖

where X is the window in which x and, with delays, u have stood for long. Without delays the model
is affine in u, and one step is enough where φ⁻¹ is linear. What is left over says whether the state
can be held at all.
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

STEPS = 30
"""Gauss-Newton steps at most."""


@dataclass(frozen=True, eq=False)
class Target:
    """A state to be held.

    Attributes:
        state: x (d,).
        input: u (m,) that holds it, as well as one can.
        window: of this state and this input, as φ takes it, (d_X,).
        lifted: φ of the window, (O,).
        drift: how far the model moves from x in one step all the same, (d,).
    """

    state: Array
    input: Array
    window: Array
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


def window_of(model: Fitted, x: Any, past: Any) -> Array:
    """A state, or a window of states, as φ takes it, (d_X,).

    Arguments:
        x: (d,); a model with delays also takes (μ, d). A single state stands for a window of it.
        past: inputs between the states of a window, (μ − 1, m).
    """
    kind = model.learned_.architecture
    states = finite_array(x, "x")
    if states.shape == (kind.state_dim,):
        states = np.tile(states, (kind.window, 1))
    if states.shape != (kind.window, kind.state_dim):
        shape = (kind.state_dim,) if kind.window == 1 else (kind.window, kind.state_dim)
        raise InputError(f"x has shape {states.shape}: give a state of shape {shape}")
    count = (kind.window - 1) * kind.inputs
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
    d = model.learned_.architecture.state_dim
    x = finite_array(state, "reference")
    if x.shape != (d,):
        raise InputError(
            f"the reference has shape {x.shape}: give one number for each of {d} states"
        )
    if input is not None:
        u = finite_array(input, "input")
        if u.shape != (model.n_inputs_,):
            raise InputError(f"input has shape {u.shape}: give {model.n_inputs_} numbers")
        return _standing(model, x, u)
    best = _standing(model, x, np.zeros(model.n_inputs_))
    for _ in range(STEPS):
        slope = _drift_slope(model, best)
        change = -np.linalg.pinv(slope, rcond=1e-10) @ best.drift
        found = _standing(model, x, best.input + change)
        if not np.linalg.norm(found.drift) < np.linalg.norm(best.drift):
            break
        best = found
    return best


def _standing(model: Fitted, x: Array, u: Array) -> Target:
    """A state under an input that has acted for long."""
    learned = model.learned_
    window = window_of(model, x, np.tile(u, (learned.architecture.window - 1, 1)))
    y = learned.lift(window[None])[0]
    return Target(x, u, window, y, learned.lower(learned.step(y[None], u[None]))[0] - x)


def _drift_slope(model: Fitted, at: Target) -> Array:
    """How the drift changes with the input, (d, m)."""
    learned = model.learned_
    kind = learned.architecture
    moves, count = learned.drive(at.lifted), (kind.window - 1) * kind.inputs
    if count:  # the input also stands in the window
        lifts = learned.lift_slope(at.window[None])[0, :, :count]
        earlier = lifts.reshape(len(lifts), -1, kind.inputs).sum(axis=1)
        moves = moves + learned.step_matrix(at.input) @ earlier
    ahead = learned.step(at.lifted[None], at.input[None])
    slope: Array = learned.lower_slope(ahead)[0] @ moves
    return slope
