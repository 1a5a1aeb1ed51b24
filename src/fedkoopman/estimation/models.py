"""From a system and a sensor to the functions a filter evaluates on many points at once."""

from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Float

from fedkoopman.estimation.gaussian import Model, Noise
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System


class Batched(NamedTuple):
    """Whether the leaves of the system and of the sensor differ per trajectory (leading axis)."""

    system: bool = False
    sensor: bool = False


class Conditions(NamedTuple):
    """What may change from step to step; `None` where it does not exist."""

    inputs: Float[Array, "b u"] | None = None
    dt: Float[Array, " b"] | None = None
    process_noise: Noise | None = None
    observation_noise: Noise | None = None


SHARED = Batched()
UNCHANGING = Conditions()


def model_of(
    system: System, sensor: Sensor, now: Conditions = UNCHANGING, batched: Batched = SHARED
) -> Model:
    """f and h over arrays of points (points, batch, components)."""
    axis = {True: 0, False: None}
    inputs = None if now.inputs is None else 0
    interval = None if now.dt is None else 0

    def over_points(function: Any, axes: tuple) -> Any:
        inner = jax.vmap(function, in_axes=axes)
        return jax.vmap(inner, in_axes=tuple(0 if i == 1 else None for i in range(len(axes))))

    transition = over_points(
        lambda s, x, u, dt: s.step(x, u, dt), (axis[batched.system], 0, inputs, interval)
    )
    observation = over_points(lambda s, x: s(x), (axis[batched.sensor], 0))
    return Model(
        lambda x: transition(system, x, now.inputs, now.dt),
        lambda x: observation(sensor, x),
        tuple(system.angles),
        tuple(sensor.angles),
    )
