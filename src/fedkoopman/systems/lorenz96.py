"""Lorenz's ring of 1996, a chaotic system of any dimension."""

from typing import ClassVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from fedkoopman.errors import InputError
from fedkoopman.systems.base import System
from fedkoopman.systems.checks import check_dim
from fedkoopman.systems.solvers import Input, Number, State


class Lorenz96(System):
    """ẋᵢ = (xᵢ₊₁ − xᵢ₋₂) xᵢ₋₁ − xᵢ + F on a ring (Lorenz, ECMWF seminar on predictability, 1996).

    Initial states are the unstable rest state F with a standard normal perturbation.

    Arguments:
        dim: the number of components, at least 4.
        forcing: F; 8 is chaotic.
        dt: the sampling interval.
    """

    dim: int = eqx.field(default=20, static=True)
    forcing: Number = 8.0
    dt: Number = 0.02
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    parameter_names: ClassVar[tuple[str, ...]] = ("forcing",)
    largest_step: ClassVar[float] = 0.02
    step_tolerance: ClassVar[float] = 5e-3

    def __post_init__(self) -> None:
        check_dim(self.dim, "dim")
        if self.dim < 4:
            raise InputError(f"dim is {self.dim}: the Lorenz96 ring needs at least 4 components")
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """x1 … x<dim>."""
        return tuple(f"x{i}" for i in range(1, self.dim + 1))

    @property
    def units(self) -> tuple[str, ...]:
        """All without unit."""
        return ("1",) * self.dim

    def vector_field(self, x: State, u: Input = None) -> State:
        """The time derivative at `x`."""
        # Constant gathers fuse; the concatenates of jnp.roll cost twice as much in a batch.
        i = np.arange(self.dim)
        ahead, before, last = x[(i + 1) % self.dim], x[i - 1], x[i - 2]
        return (ahead - last) * before - x + self.forcing

    def initial_state(self, key: PRNGKeyArray) -> State:
        """N(F, I)."""
        return self.forcing + jax.random.normal(key, (self.dim,))


SYSTEM = Lorenz96
