"""What a plan of inputs leads to over a horizon, and how that changes with the plan.

Two ways to predict, as in `koopman.rollout`. Lifted once, the state s is y, and s' = K y + B u (and
Σ u_i N_i y): without the N_i, and with a linear decoder, all of it is linear in the plan. Lifted
anew at every step, s is the window x and s' = φ⁻¹(K φ(x) + …): nonlinear, and often right for
longer. Derivatives are exact, from one compiled function.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from fedkoopman.koopman.fitted import Fitted
from fedkoopman.koopman.kind import Kind, Weights

__all__ = ["Horizon", "Path"]

Numbers = NDArray[np.float64]


class Path(NamedTuple):
    """What a plan leads to."""

    states: Numbers
    """x_1 … x_H, (H, d)."""
    slopes: Numbers
    """How they change with the plan, (H d, H m); by rows and columns in the order of time."""


@dataclass(frozen=True, eq=False)
class Horizon:
    """Predictions of one model over a fixed number of steps.

    Attributes:
        relift: whether the state is lifted anew at every step.
        steps: H.
    """

    model: Fitted
    relift: bool
    steps: int

    def start(self, window: Numbers) -> Numbers:
        """The state of the prediction at a window (d_X,)."""
        if self.relift:
            return window
        with jax.enable_x64(True):
            return np.asarray(_lift(self._weights, window, kind=self.model.learned_.architecture))

    def states(self, start: Numbers, plan: Numbers) -> Numbers:
        """x_1 … x_H, (H, d)."""
        with jax.enable_x64(True):
            return np.asarray(_outputs(self._weights, start, plan, **self._chosen))

    def path(self, start: Numbers, plan: Numbers) -> Path:
        """The states with their slopes."""
        with jax.enable_x64(True):
            parts = _slopes(self._weights, start, plan, **self._chosen)
            states, A, B, C = (np.asarray(part) for part in parts)
        return Path(states, condensed(A, B, C))

    def step_slopes(self, start: Numbers, u: Numbers) -> tuple[Numbers, Numbers]:
        """How the next state of the prediction changes with this one (n, n) and with u (n, m)."""
        with jax.enable_x64(True):
            _, A, B, _ = _slopes(self._weights, start, u[None], **self._chosen)
        return np.asarray(A)[0], np.asarray(B)[0]

    @cached_property
    def _weights(self) -> Weights:
        """Where they are computed with: handing them over costs more than a prediction."""
        with jax.enable_x64(True):
            return jax.device_put(self.model.learned_.wide)

    @property
    def _chosen(self) -> dict[str, Any]:
        return {"kind": self.model.learned_.architecture, "relift": self.relift}

    @property
    def size(self) -> int:
        """Numbers in the state of the prediction."""
        kind = self.model.learned_.architecture
        return kind.input_dim if self.relift else kind.components

    @property
    def linear(self) -> bool:
        """Whether states are linear in the plan, whatever the plan: slopes are then the same."""
        kind = self.model.learned_.architecture
        return not self.relift and not kind.bilinear and kind.linear_decoder


def condensed(A: Numbers, B: Numbers, C: Numbers) -> Numbers:
    """Slopes of outputs by the plan, with the states in between eliminated.

    Arguments:
        A, B: of the steps, (H, n, n) and (H, n, m).
        C: of the output after each step, (H, d, n).
    """
    steps, n, m = B.shape
    found = np.zeros((steps, C.shape[1], steps * m))
    moved = np.zeros((n, steps * m))
    for k in range(steps):
        moved = A[k] @ moved
        moved[:, k * m : (k + 1) * m] = B[k]
        found[k] = C[k] @ moved
    return found.reshape(-1, steps * m)


def _step(kind: Kind, relift: bool, weights: Weights, s: Array, u: Array) -> Array:
    """The next state of the prediction."""
    if not relift:
        return kind.advance(weights, s[:, None], u[:, None])[:, 0]
    y = kind.advance(weights, kind.lift(weights, s[:, None]), u[:, None])
    after = kind.decode(weights, y)[:, 0]
    past = (kind.window - 1) * kind.inputs
    if not past:
        return after
    return jnp.concatenate([s[kind.inputs : past], u, after[past:]])


def _output(kind: Kind, relift: bool, weights: Weights, s: Array) -> Array:
    """The newest state x of a state of the prediction."""
    window = s if relift else kind.decode(weights, s[:, None])[:, 0]
    return window[-kind.state_dim :]


def _run(kind: Kind, relift: bool, weights: Weights, start: Array, plan: Array) -> Array:
    """s_0 … s_H."""

    def step(s: Array, u: Array) -> tuple[Array, Array]:
        after = _step(kind, relift, weights, s, u)
        return after, after

    return jnp.concatenate([start[None], jax.lax.scan(step, start, plan)[1]])


@partial(jax.jit, static_argnames="kind")
def _lift(weights: Weights, window: Float[Array, " n"], *, kind: Kind) -> Float[Array, " lifted"]:
    return kind.lift(weights, window[:, None])[:, 0]


@partial(jax.jit, static_argnames=("kind", "relift"))
def _outputs(
    weights: Weights, start: Float[Array, " n"], plan: Array, *, kind: Kind, relift: bool
) -> Float[Array, "steps state"]:
    states = _run(kind, relift, weights, start, plan)
    return jax.vmap(partial(_output, kind, relift, weights))(states[1:])


@partial(jax.jit, static_argnames=("kind", "relift"))
def _slopes(
    weights: Weights, start: Float[Array, " n"], plan: Array, *, kind: Kind, relift: bool
) -> tuple[Array, Array, Array, Array]:
    states = _run(kind, relift, weights, start, plan)
    A, B = jax.vmap(jax.jacfwd(partial(_step, kind, relift, weights), argnums=(0, 1)))(
        states[:-1], plan
    )
    output = partial(_output, kind, relift, weights)
    return jax.vmap(output)(states[1:]), A, B, jax.vmap(jax.jacfwd(output))(states[1:])
