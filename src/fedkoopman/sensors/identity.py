"""Kind "identity": every state as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.sensors.kind import ANGLES, SensorKind


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> Any:
    from fedkoopman.sensors.base import LinearSensor

    return LinearSensor.identity(state_dim, **values)


SENSOR = SensorKind(_make, {"angles": ANGLES}, observed=lambda _, state_dim: state_dim)
