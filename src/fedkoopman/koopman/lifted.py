"""A learned model as a system and a sensor, in lifted coordinates, for the filters of `estimation`.

Weights are leaves of these pytrees: models of one shape share what is compiled.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.network import Architecture, Weights, decode, encode
from fedkoopman.sensors import FunctionSensor, Sensor
from fedkoopman.systems import System

__all__ = ["lifted_sensor", "lifted_system"]


def lifted_system(learned: Learned, relift: bool) -> System:
    """y ↦ K y, or with `relift` K φ(φ⁻¹(y)), which is the same where y is a lifted state."""
    weights, architecture = learned.wide, learned.architecture
    step = _Relifted(weights, architecture) if relift else _Linear(weights.operator)
    return System.from_map(step, architecture.components, dt=architecture.depth * learned.dt)


def lifted_sensor(learned: Learned, sensor: Sensor) -> Sensor:
    """y ↦ h(φ⁻¹(y)); of a window, the newest state is seen."""
    seen = _Seen(learned.wide, sensor, learned.architecture)
    return FunctionSensor(seen, sensor.dim, angles=sensor.angles)


class _Linear(eqx.Module):
    """y ↦ K y."""

    operator: Any

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        return self.operator @ y


class _Relifted(eqx.Module):
    """y ↦ K φ(φ⁻¹(y))."""

    weights: Weights
    architecture: Architecture = eqx.field(static=True)

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " lifted"]:
        window = decode(self.architecture, self.weights, y[:, None])
        return (self.weights.operator @ encode(self.architecture, self.weights, window))[:, 0]


class _Seen(eqx.Module):
    """y ↦ h(φ⁻¹(y)), of a window the newest state."""

    weights: Weights
    sensor: Callable
    architecture: Architecture = eqx.field(static=True)

    def __call__(self, y: Float[Array, " lifted"]) -> Float[Array, " observed"]:
        window = decode(self.architecture, self.weights, y[:, None])[:, 0]
        return self.sensor(window[-self.architecture.state_dim :])
