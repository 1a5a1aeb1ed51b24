"""The double pendulum of the paper's measured data."""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from fedkoopman.systems.base import Box, System, uniform
from fedkoopman.systems.solvers import Input, Number


class DoublePendulum(System):
    """Two point masses on massless rods, without friction (eq. (42)).

    The state is (θ₁, ω₁, θ₂, ω₂), upper link first; angles are measured from hanging, in radians.
    With δ = θ₂ − θ₁, M = m₁ + m₂ and D = M − m₂ cos² δ:

        ω̇₁ = (L₁ m₂ ω₁² sin δ cos δ + g m₂ sin θ₂ cos δ + L₂ m₂ ω₂² sin δ − g M sin θ₁) / (L₁ D)
        ω̇₂ = (−L₂ m₂ ω₂² sin δ cos δ + M (g sin θ₁ cos δ − L₁ ω₁² sin δ − g sin θ₂)) / (L₂ D)

    As printed it is the Euler–Lagrange equation of the point masses and conserves their energy. The
    paper gives no initial-state law (it uses measured data); ours is at rest at angles uniform on
    [−π, π]. Angles are not wrapped; `angles=(0, 2)` tells a filter that they are points of the
    circle.

    Arguments:
        length1, length2: L₁, L₂ in metres.
        mass1, mass2: m₁, m₂ in kilograms.
        gravity: g in m/s².
        dt: the sampling interval in seconds; the data's own is 0.002.
    """

    length1: Number = 0.172
    length2: Number = 0.143
    mass1: Number = 0.311
    mass2: Number = 0.111
    gravity: Number = 9.8
    dt: Number = 0.002
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    names: ClassVar[tuple[str, ...]] = ("theta1", "omega1", "theta2", "omega2")
    units: ClassVar[tuple[str, ...]] = ("rad", "rad/s", "rad", "rad/s")
    parameter_names: ClassVar[tuple[str, ...]] = ("length1", "length2", "mass1", "mass2", "gravity")
    positive_parameters: ClassVar[tuple[str, ...]] = ("length1", "length2", "mass1", "mass2")
    largest_step: ClassVar[float] = 0.002
    step_tolerance: ClassVar[float] = 1e-5

    def vector_field(self, x: Float[Array, " 4"], u: Input = None) -> Float[Array, " 4"]:
        """The time derivative at `x`."""
        l1, l2, m2, g = self.length1, self.length2, self.mass2, self.gravity
        m = self.mass1 + m2
        theta1, omega1, theta2, omega2 = (x[i] for i in range(4))
        s, c = jnp.sin(theta2 - theta1), jnp.cos(theta2 - theta1)
        g1, g2 = g * jnp.sin(theta1), g * jnp.sin(theta2)
        a1, a2 = l1 * omega1 * omega1, l2 * omega2 * omega2
        shared = m - m2 * c * c
        return jnp.stack(
            [
                omega1,
                (m2 * (a1 * s * c + g2 * c + a2 * s) - m * g1) / (l1 * shared),
                omega2,
                (m * (g1 * c - a1 * s - g2) - m2 * a2 * s * c) / (l2 * shared),
            ]
        )

    @property
    def initial_box(self) -> Box:
        """At rest, at angles uniform on [−π, π]."""
        return (-math.pi, 0.0, -math.pi, 0.0), (math.pi, 0.0, math.pi, 0.0)

    def initial_state(self, key: PRNGKeyArray) -> Float[Array, " 4"]:
        """A draw from the initial box."""
        return uniform(key, *self.initial_box)


SYSTEM = DoublePendulum
