"""Closed loops: a controller, and the true system that it acts on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from fedkoopman.control.controller import Controller
from fedkoopman.errors import ComputationError, InputError
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_count, finite_array, real_array
from fedkoopman.user_code import calling, finished

__all__ = ["ClosedLoop", "closed_loop"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClosedLoop:
    """What happened.

    Attributes:
        states: x_0 … x_T of the true system, (T + 1, n).
        inputs: u_0 … u_{T−1}, (T, m).
        seen: what the controller was given before each input, and what it would be given next,
            (T + 1, d).
        dt: the sampling interval.
    """

    states: Array
    inputs: Array
    seen: Array
    dt: float

    @property
    def time(self) -> Array:
        """Of the states."""
        return np.arange(len(self.states), dtype=np.float64) * self.dt


def closed_loop(
    system: System,
    controller: Controller,
    initial: Any,
    steps: int,
    *,
    seen: Callable[[Array], Any] | None = None,
) -> ClosedLoop:
    """Let a controller act on a system.

    Arguments:
        system: with inputs; its own dt is the controller's.
        initial: its first state, (n,).
        steps: how many samples.
        seen: from the true state (n,) to what the controller is given: the model's state, or of
            a controller with a filter an observation; None gives the state itself.
    """
    if not isinstance(system, System) or not system.input_dim:
        raise InputError("the system takes no inputs: give a fk.System with input_dim > 0")
    if not hasattr(controller, "act"):
        raise InputError(
            f"controller is a {type(controller).__name__}: give an LQR, LQG or MPC, or what has "
            "begin() and act(state, x)"
        )
    x, steps = finite_array(initial, "initial"), check_count(steps, "steps")
    if x.shape != (system.dim,):
        raise InputError(f"initial has shape {x.shape}: give {system.dim} numbers")
    states, inputs, shown, memory = [x], [], [_shown(seen, x)], controller.begin()
    for k in range(steps):
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is told below
            u, memory = controller.act(memory, shown[-1])
        with jax.enable_x64(True):
            x = np.asarray(_step(system, x, u))
        if not np.isfinite(x).all():
            raise ComputationError(
                f"the closed loop is no longer finite after {k} steps: the controller drives the "
                "system apart; give a larger R, or a model that knows such states"
            )
        states.append(x)
        inputs.append(u)
        shown.append(_shown(seen, x))
    return ClosedLoop(np.array(states), np.array(inputs), np.array(shown), float(system.dt))


def _shown(seen: Callable[[Array], Any] | None, x: Array) -> Array:
    if seen is None:
        return x
    with calling(seen, "the function `seen` failed"):
        found = finished(seen(x))
    return real_array(found, "what `seen` returned")


@jax.jit
def _step(system: System, x: Any, u: Any) -> Any:
    return system.step(x, u)
