"""How a site sees the system: z = h(x) + v.

`SENSORS` holds the kinds of sensors by name; each is a `SensorKind` in a file here, in a package
with an entry point in the group "fedkoopman.sensors", or in a Python file as "file.py:name".
"""

from typing import TYPE_CHECKING, Any

from fedkoopman.lazy import lazy_names
from fedkoopman.registry import Registry
from fedkoopman.sensors.kind import SensorKind

if TYPE_CHECKING:
    from fedkoopman.sensors.base import FunctionSensor, LinearSensor, Sensor, observe

__all__ = ["SENSORS", "FunctionSensor", "LinearSensor", "Sensor", "SensorKind", "observe"]

__getattr__ = lazy_names(__name__)


def _wrong(found: Any) -> str:
    if isinstance(found, SensorKind):
        return ""
    return "is no kind of sensor: bind it to an instance of fedkoopman.sensors.SensorKind"


SENSORS: Registry[SensorKind] = Registry(
    "kind of sensor", "fedkoopman.sensors", "SENSOR", _wrong, group="fedkoopman.sensors"
)
