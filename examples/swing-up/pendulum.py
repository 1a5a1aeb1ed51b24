"""The pendulum of this example: θ̈ = −9.8 sin θ − 0.2 θ̇ + u, with a motor of |u| ≤ 5.

The motor alone cannot lift it: that takes 9.8. The laboratories do not know the equation; it makes
their recordings, and stands for the real pendulum when a controller is tried.
"""

import jax.numpy as jnp
import numpy as np

import fedkoopman as fk

DT, STRONGEST = 0.05, 5.0


def field(x, u):
    """ẋ."""
    return jnp.array([x[1], -9.8 * jnp.sin(x[0]) - 0.2 * x[1] + u[0]])


SYSTEM = fk.System.from_function(
    field, dim=2, dt=DT, names=("theta", "omega"), units=("rad", "rad/s"), input_dim=1
)


def seen(x):
    """What an encoder and a gyroscope show: cos θ, sin θ (θ = π is upright) and the rate."""
    return np.stack([np.cos(x[..., 0]), np.sin(x[..., 0]), x[..., 1]], axis=-1)
