"""A system: Rössler's attractor, ẋ₁ = −x₂ − x₃, ẋ₂ = x₁ + a x₂, ẋ₃ = b + x₃ (x₁ − c).

Reference: O. E. Rössler, "An equation for continuous chaos", Physics Letters A 57 (1976).
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import System, uniform
from fedkoopman.systems.solvers import Number

__all__ = ["SYSTEM", "Rossler"]


class Rossler(System):
    """One spiral that folds back into itself; initial states are uniform on [−5, 5]² × [0, 1].

    Arguments:
        a, b, c: the three constants.
        dt: the sampling interval.
    """

    a: Number = 0.2
    b: Number = 0.2
    c: Number = 5.7
    dt: Number = 0.05
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("x1", "x2", "x3")
    units: ClassVar[tuple[str, ...]] = ("1", "1", "1")
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    largest_step: ClassVar[float] = 0.05
    """A longer sampling interval is divided into several steps of the filters' one-step map."""
    step_tolerance: ClassVar[float] = 1e-3
    """How far one such step may be from the truth; the law suite measures it."""

    def vector_field(
        self, x: Float[Array, " 3"], u: Float[Array, " input"] | None = None
    ) -> Float[Array, " 3"]:
        """The time derivative at the state `x`; there is no input."""
        return jnp.stack([-x[1] - x[2], x[0] + self.a * x[1], self.b + x[2] * (x[0] - self.c)])

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 3"]:
        """A random state at which a trajectory starts."""
        return uniform(key, (-5.0, -5.0, 0.0), (5.0, 5.0, 1.0))


SYSTEM = Rossler
