"""The Van der Pol oscillator, a limit cycle in two dimensions."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.solvers import Input, Number


class VanDerPol(System):
    """ẋ₁ = x₂, ẋ₂ = a (1 − x₁²) x₂ − x₁ (the paper's first system).

    Initial states are uniform on [−2, 2]².

    Arguments:
        a: the damping a.
        dt: the sampling interval.
    """

    a: Number = 2.0
    dt: Number = 0.02
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("x1", "x2")
    units: ClassVar[tuple[str, ...]] = ("1", "1")
    parameter_names: ClassVar[tuple[str, ...]] = ("a",)
    largest_step: ClassVar[float] = 0.02
    step_tolerance: ClassVar[float] = 1e-6

    def vector_field(self, x: Float[Array, " 2"], u: Input = None) -> Float[Array, " 2"]:
        """The time derivative at `x`."""
        return jnp.stack([x[1], self.a * (1 - x[0] * x[0]) * x[1] - x[0]])

    @property
    def initial_box(self) -> Box:
        """Uniform on [−2, 2]²."""
        return (-2.0, -2.0), (2.0, 2.0)

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 2"]:
        """A draw from the initial box."""
        return uniform(key, *self.initial_box)


SYSTEM = VanDerPol
