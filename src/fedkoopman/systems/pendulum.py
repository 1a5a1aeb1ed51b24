"""The single pendulum, conservative, with a saddle at the top."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.solvers import Input, Number


class Pendulum(System):
    """θ̇ = ω, ω̇ = −(g/L) sin θ (the paper's second system).

    Initial states are at rest at an angle uniform on [0, 2π], as in the paper. θ is 0 when hanging
    and is not wrapped; `angles=(0,)` tells a filter that it is a point of the circle.

    Arguments:
        length: L in metres.
        gravity: g in m/s².
        dt: the sampling interval in seconds.
    """

    length: Number = 1.0
    gravity: Number = 9.8
    dt: Number = 0.02
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("theta", "omega")
    units: ClassVar[tuple[str, ...]] = ("rad", "rad/s")
    parameter_names: ClassVar[tuple[str, ...]] = ("length", "gravity")
    positive_parameters: ClassVar[tuple[str, ...]] = ("length",)
    largest_step: ClassVar[float] = 0.02
    step_tolerance: ClassVar[float] = 1e-7

    def vector_field(self, x: Float[Array, " 2"], u: Input = None) -> Float[Array, " 2"]:
        """The time derivative at `x`."""
        return jnp.stack([x[1], -(self.gravity / self.length) * jnp.sin(x[0])])

    @property
    def initial_box(self) -> Box:
        """At rest, at an angle uniform on [0, 2π]."""
        return (0.0, 0.0), (2 * math.pi, 0.0)

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 2"]:
        """A draw from the initial box."""
        return uniform(key, *self.initial_box)


SYSTEM = Pendulum
