"""Mean and covariance of the states in which a system starts.

A filter that is told them begins each segment without bias. Exact where the law is uniform on a box
(x̂_0 the middle, P̂_0 = diag((b − a)² / 12)); otherwise from a large draw that is always the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.systems.base import System
from fedkoopman.systems.integrate import simulate, trajectory_key

DRAWS = 1 << 16
"""From which moments are known to half a percent of a standard deviation."""
TRAJECTORIES, PIECES = 16, 16
"""Simulated where segments do not all begin with a start of the system."""


class InitialLaw(NamedTuple):
    """What is expected of the state one step before a segment's first sample."""

    mean: NDArray[np.float64]  # (d,)
    cov: NDArray[np.float64]  # (d, d)


def initial_law(system: System) -> InitialLaw:
    """The moments of `System.initial_state`."""
    box = system.initial_box if _describes_the_draws(type(system)) else None
    if box is not None:
        low, high = (np.asarray(corner, np.float64) for corner in box)
        return InitialLaw((low + high) / 2, np.diag((high - low) ** 2 / 12))
    with jax.enable_x64(True):
        drawn = np.asarray(_draws(system))
    if not np.isfinite(drawn).all():
        raise InputError(
            "the system's initial_state draws states that are not finite: mend it, or give "
            "estimation.initial_mean and estimation.initial_cov"
        )
    return law_of_states([drawn])


def later_law(system: System, steps: int, restart: int) -> InitialLaw:
    """The moments of the states in which segments begin, where the system starts anew only after
    several of them: as many start in its later states as in an initial one.

    Arguments:
        steps: samples of a segment.
        restart: segments between two starts; of more than `PIECES` the first are looked at.
    """
    if restart == 1:
        return initial_law(system)
    length = steps * (min(restart, PIECES) - 1)
    return law_of_states(list(simulate(system, length, seed=0, batch=TRAJECTORIES)[:, ::steps]))


def law_of_states(states: Sequence[NDArray[np.float64]]) -> InitialLaw:
    """The moments of given states, arrays (T_i, d)."""
    whole = np.concatenate(list(states))
    return InitialLaw(whole.mean(axis=0), np.cov(whole.T, ddof=0).reshape((whole.shape[1],) * 2))


def _describes_the_draws(kind: type[System]) -> bool:
    """Whether the box belongs to the draws: a subclass may have changed the draws alone."""
    box, draws = (
        next(one for one in kind.__mro__ if name in vars(one))
        for name in ("initial_box", "initial_state")
    )
    return issubclass(box, draws)


@jax.jit
def _draws(system: System) -> Array:
    keys = jax.random.split(trajectory_key(0, 0), DRAWS)
    return jax.vmap(lambda key: jnp.asarray(system.initial_state(key), float))(keys)
