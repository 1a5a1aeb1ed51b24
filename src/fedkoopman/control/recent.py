"""The newest states and the inputs between them: what a model with delays is lifted from.

A controller keeps them from sample to sample, so that whoever uses it hands over the newest state
only. Before the first sample, the system is taken to have stood still under the input that acts.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.control.targets import window_of
from fedkoopman.koopman.fitted import Fitted
from fedkoopman.systems.checks import finite_array

__all__ = ["Recent", "at_rest", "with_input", "with_state"]

Array = NDArray[np.float64]


class Recent(NamedTuple):
    """What is kept; of a model without delays, nothing but the newest state."""

    states: Array | None
    """(μ, d), oldest first; None before the first sample."""
    inputs: Array
    """Between the states, (μ − 1, m)."""


def at_rest(model: Fitted, acting: Array) -> Recent:
    """Before the first sample, with the input (m,) that acts."""
    return Recent(None, np.tile(acting, (model.learned_.architecture.window - 1, 1)))


def with_state(model: Fitted, recent: Recent, x: Any, past: Any = None) -> tuple[Array, Recent]:
    """The window (d_X,) that ends with a new state, and what is kept.

    Arguments:
        x: the new state (d,), or a whole window (μ, d) in place of what was kept.
        past: the inputs between the states of a whole window, (μ − 1, m).
    """
    states = finite_array(x, "x")
    if recent.states is not None and states.shape == recent.states.shape[1:]:
        states = np.vstack([recent.states[1:], states])
    window = window_of(model, states, recent.inputs if past is None else past)
    kind = model.learned_.architecture
    count = (kind.window - 1) * kind.inputs
    return window, Recent(window[count:].reshape(kind.window, -1), window[:count].reshape(
        kind.window - 1, kind.inputs
    ))  # fmt: skip


def with_input(recent: Recent, u: Array) -> Recent:
    """After an input was put in."""
    return recent._replace(inputs=np.vstack([recent.inputs, u[None]])[1:])
