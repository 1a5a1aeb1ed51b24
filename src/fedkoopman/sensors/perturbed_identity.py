"""Kind "perturbed-identity": the double pendulum's client, (I + Ξ) x."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.rules import SEED, Real
from fedkoopman.sensors.kind import SensorKind


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> Any:
    from fedkoopman.sensors.base import LinearSensor

    return LinearSensor.perturbed_identity(state_dim, seed=seed, **values)


SENSOR = SensorKind(
    _make, {"spread": Real(0.0), "seed": SEED}, random=True, observed=lambda _, state_dim: state_dim
)
