"""Kind "function": z = h(x), with h in a Python file and written with `jax.numpy`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedkoopman.rules import Choice
from fedkoopman.sensors.kind import ANGLES, OBSERVED, SensorKind
from fedkoopman.user_code import load_object, plain_function


def _make(values: Mapping[str, Any], state_dim: int, seed: int, folder: Path) -> Any:
    from fedkoopman.sensors.base import FunctionSensor

    h = plain_function(load_object(values["function"], folder), values["function"], "h(x)")
    return FunctionSensor(h, values["observed"], angles=values.get("angles", ()))


SENSOR = SensorKind(
    _make,
    {"function": Choice((), "file.py:function"), "observed": OBSERVED, "angles": ANGLES},
    required=("function", "observed"),
    former_names={"dim": "observed"},
)
