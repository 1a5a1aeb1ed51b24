"""Kind "random-frame": the paper's client, rows of a random orthonormal frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.rules import SEED
from fedkoopman.sensors.kind import OBSERVED, SensorKind


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> Any:
    from fedkoopman.sensors.base import LinearSensor

    return LinearSensor.random_frame(state_dim, seed=seed, **values)


SENSOR = SensorKind(
    _make,
    {"observed": OBSERVED, "seed": SEED},
    random=True,
    observed=lambda values, state_dim: values.get("observed", state_dim and state_dim - 1),
    former_names={"dim": "observed"},
)
