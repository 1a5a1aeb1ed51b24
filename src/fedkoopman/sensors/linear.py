"""Kind "linear": z = (x − offset) matrixᵀ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.rules import Matrix, Real, Row
from fedkoopman.sensors.kind import ANGLES, SensorKind


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> Any:
    from fedkoopman.sensors.base import LinearSensor

    return LinearSensor(**values)


SENSOR = SensorKind(
    _make,
    {
        "matrix": Matrix(),
        "offset": Row(Real(), "a list of numbers, one per state"),
        "angles": ANGLES,
    },
    required=("matrix",),
    observed=lambda values, _: len(values["matrix"]),
)
