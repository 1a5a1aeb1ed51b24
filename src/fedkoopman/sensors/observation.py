"""Noisy observations of states: z = h(x) + v."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike, NDArray

from fedkoopman.covariance import noise_roots
from fedkoopman.errors import InputError
from fedkoopman.sensors.base import Sensor
from fedkoopman.systems.checks import check_seed, real_array
from fedkoopman.systems.integrate import filled, room_for, trajectory_key

__all__ = ["observe"]

_OBSERVATION = 2


def observe(
    sensor: Sensor, x: ArrayLike, noise: ArrayLike = 0.0, seed: int = 0
) -> NDArray[np.float64]:
    """Observe states: z_k = h(x_k) + v_k, v_k ~ N(0, R), in float64.

    A trajectory's noise does not depend on the size of the batch it is in, nor on what comes after.

    Arguments:
        sensor: h.
        x: states (T, d), or (B, T, d); NaN stays NaN.
        noise: R as a variance, a diagonal, a matrix, or one per step (T, m, m).
        seed: of the noise.

    Returns observations (T, m), or (B, T, m).
    """
    if not isinstance(sensor, Sensor):
        raise InputError(
            f"sensor is a {type(sensor).__name__}: give a LinearSensor or a FunctionSensor"
        )
    states = real_array(x, "x")
    if states.ndim not in (2, 3) or 0 in states.shape:
        raise InputError(f"x has shape {states.shape}: give states (T, d) or (B, T, d)")
    check_seed(seed)
    sensor.check_state(states.shape[-1])
    paths = states if states.ndim == 3 else states[None]
    size, steps = paths.shape[:2]
    room = room_for(steps)
    roots = filled(noise_roots(noise, sensor.dim, steps, size, "noise"), 1, room)
    out = np.empty((size, steps, sensor.dim))
    with jax.enable_x64(True):
        # One trajectory per call, as in `simulate`: bit for bit the same in a batch of any size.
        for b in range(size):
            key = trajectory_key(seed, b)
            longer = np.pad(paths[b], [(0, room - steps), (0, 0)])
            z = _observe(sensor, longer, roots[b if len(roots) > 1 else 0], key)
            out[b] = np.asarray(z)[:steps]
    return out if states.ndim == 3 else out[0]


@jax.jit
def _observe(
    sensor: Sensor,
    x: Float[Array, "room state"],
    roots: Float[Array, "room_or_one observed observed"],
    key: PRNGKeyArray,
) -> Float[Array, "room observed"]:
    key = jax.random.fold_in(key, _OBSERVATION)

    def draw(k: Array) -> Float[Array, " observed"]:
        return jax.random.normal(jax.random.fold_in(key, k), (sensor.dim,))

    v = jax.vmap(draw)(jnp.arange(x.shape[0]))
    return jax.vmap(sensor)(x) + jnp.sum(roots * v[:, None, :], axis=-1)
