"""Lorenz's convection model of 1963, the paper's default system."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.solvers import Input, Number


class Lorenz63(System):
    """ẋ₁ = a (x₂ − x₁), ẋ₂ = x₁ (b − x₃) − x₂, ẋ₃ = x₁ x₂ − c x₃ (the paper's Section V-A).

    Initial states are uniform on [−10, 10]³. The one-step map is a single RK4 step: over 0.02 it
    differs from the truth by 2e-3 at most on the attractor (root mean square 1.3e-4) and by 1.1e-2
    at most on the way there, which is far below the paper's process noise of 1.

    Arguments:
        a: the Prandtl number (σ elsewhere).
        b: the Rayleigh number over its critical value (ρ elsewhere).
        c: the aspect ratio (β elsewhere).
        dt: the sampling interval.
    """

    a: Number = 10.0
    b: Number = 28.0
    c: Number = 8.0 / 3.0
    dt: Number = 0.02
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("x1", "x2", "x3")
    units: ClassVar[tuple[str, ...]] = ("1", "1", "1")
    parameter_names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    largest_step: ClassVar[float] = 0.02
    step_tolerance: ClassVar[float] = 2e-2

    def vector_field(self, x: Float[Array, " 3"], u: Input = None) -> Float[Array, " 3"]:
        """The time derivative at `x`."""
        return jnp.stack(
            [self.a * (x[1] - x[0]), x[0] * (self.b - x[2]) - x[1], x[0] * x[1] - self.c * x[2]]
        )

    @property
    def initial_box(self) -> Box:
        """Uniform on [−10, 10]³."""
        return (-10.0,) * 3, (10.0,) * 3

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 3"]:
        """A draw from the initial box."""
        return uniform(key, *self.initial_box)


SYSTEM = Lorenz63
