"""No equations at all: every observed quantity is locally a polynomial of time.

For a quantity q the state holds q and its first `order` derivatives, and white noise of spectral
density s drives the highest one (Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to
Tracking and Navigation", 6.2). Order 0 is a random walk, 1 nearly constant velocity, 2 nearly
constant acceleration. The one-step map is exact: the exponential of a nilpotent chain.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray

from fedkoopman.errors import InputError, short
from fedkoopman.systems.base import System
from fedkoopman.systems.checks import check_count, real_array
from fedkoopman.systems.solvers import Input, Number, State


class LocalPolynomial(System):
    """q⁽ᵒʳᵈᵉʳ⁾ does a random walk, for each of some named quantities q.

    What a filter can use when only the sensor is known. It has no truth of its own: what makes it
    move is the process noise, which `process_noise` states, and without noise it goes on along the
    polynomial on which it is. Initial states are standard normal, by convention only.

    Arguments:
        states: the names of the quantities, as ("angle",).
        order: how many derivatives of each are in the state.
        dt: the sampling interval.
        state_units: one per quantity, derivatives being per second; or one per state component.
    """

    states: tuple[str, ...] = eqx.field(default=("x",), static=True)
    order: int = eqx.field(default=1, static=True)
    dt: Number = 0.02
    state_units: tuple[str, ...] | None = eqx.field(default=None, static=True)
    angles: tuple[int, ...] = eqx.field(default=(), static=True, kw_only=True)
    substeps: int = eqx.field(default=None, static=True, kw_only=True)

    step_tolerance: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        self.order = check_count(self.order, "order", least=0)
        self.states = _labels(self.states, "states")
        repeated = [name for name in self.names if self.names.count(name) > 1]
        if repeated:
            raise InputError(
                f"states is {short(self.states)}, which names {repeated[0]!r} twice: give each "
                "quantity a name of its own (derivatives are called <name>_d1, <name>_d2, …)"
            )
        if self.state_units is not None:
            self.state_units = _labels(self.state_units, "state_units")
            if len(self.state_units) not in (len(self.states), self.dim):
                raise InputError(
                    f"state_units has {len(self.state_units)} entries but there are "
                    f"{len(self.states)} quantities: give one each, or one for each of the "
                    f"{self.dim} state components"
                )
        super().__post_init__()

    @property
    def names(self) -> tuple[str, ...]:
        """A quantity, its derivatives, the next quantity: angle, angle_d1, …"""
        return tuple(
            name if j == 0 else f"{name}_d{j}"
            for name in self.states
            for j in range(self.order + 1)
        )

    @property
    def units(self) -> tuple[str, ...]:
        """The units given, those of derivatives being per second unless stated."""
        given = self.state_units or ("1",) * len(self.states)
        if len(given) == self.dim:
            return given
        per = ["", "/s", "/s²", "/s³"] + [f"/s^{j}" for j in range(4, self.order + 1)]
        return tuple(f"{unit}{per[j]}" for unit in given for j in range(self.order + 1))

    def vector_field(self, x: State, u: Input = None) -> State:
        """Each component's derivative is the next one; the highest stays."""
        columns = self._derivatives(x)
        return self._joined([*columns[1:], jnp.zeros_like(columns[0])])

    def initial_state(self, key: PRNGKeyArray) -> State:
        """N(0, I), whatever the data will show."""
        return jax.random.normal(key, (self.dim,))

    def step(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """Taylor's polynomial over the interval, which is exact here."""
        h = self.dt if dt is None else dt
        columns = self._derivatives(x)
        after = []
        for j in range(self.order + 1):
            total = columns[-1]
            for i in range(self.order - 1, j - 1, -1):  # Horner's scheme
                total = columns[i] + h / (i - j + 1) * total
            after.append(total)
        return self._joined(after)

    def flow(self, x: State, u: Input = None, dt: Number | None = None) -> State:
        """The same as `step`: there is no other truth."""
        return self.step(x, u, dt)

    def process_noise(self, density: ArrayLike, dt: ArrayLike | None = None) -> NDArray[np.float64]:
        """The covariance over one interval of white noise on the highest derivative.

        With p the order, Q_ij = s h^(2p+1−i−j) / ((2p+1−i−j) (p−i)! (p−j)!); s h at order 0. The
        density s has the unit of the highest derivative squared, per time: over a time t that
        derivative wanders by √(s t).

        Arguments:
            density: s, one for all quantities or one each.
            dt: intervals h, in any shape; None takes the system's own.

        Returns (dim, dim), or (*shape of dt, dim, dim): what `fk.estimate` takes per step.
        """
        count, p = len(self.states), self.order
        s = real_array(density, "density")
        if s.shape not in ((), (count,)):
            raise InputError(
                f"density has shape {s.shape} but there are {count} quantities: give one number, "
                "or one for each"
            )
        h = real_array(self.dt if dt is None else dt, "dt")
        for name, values, good, range_ in (
            ("density", s, s >= 0, "of at least 0"),
            ("dt", h, h > 0, "above 0"),
        ):
            bad = values[~(good & np.isfinite(values))]
            if bad.size:
                raise InputError(f"{name} contains {bad[0]:g}: give finite numbers {range_}")
        i, j = np.indices((p + 1, p + 1))
        power = 2 * p + 1 - i - j
        factorials = np.array([math.factorial(p - k) for k in range(p + 1)], float)
        block = h[..., None, None] ** power / (power * factorials[i] * factorials[j])
        noise = np.zeros((*h.shape, self.dim, self.dim))
        for k, density_k in enumerate(np.broadcast_to(s, (count,))):
            at = slice(k * (p + 1), (k + 1) * (p + 1))
            noise[..., at, at] = density_k * block
        return noise

    def _derivatives(self, x: State) -> list[Array]:
        """One vector over the quantities for each derivative."""
        table = x.reshape(len(self.states), self.order + 1)
        return [table[:, j] for j in range(self.order + 1)]

    def _joined(self, columns: list[Array]) -> State:
        return jnp.stack(columns, axis=1).reshape(self.dim)


def _labels(given: Any, name: str) -> tuple[str, ...]:
    """A tuple of words; one word alone is a mistake, as it would be taken letter by letter."""
    good = isinstance(given, Sequence) and not isinstance(given, str) and len(given) > 0
    if not good or not all(isinstance(word, str) and word.strip() for word in given):
        raise InputError(f'{name} is {short(given)}: give a list of words, as ["angle"]')
    return tuple(str(word) for word in given)


SYSTEM = LocalPolynomial
