"""fedkoopman: from private, noisy, partial observations of one nonlinear system to its states.

Names are loaded on first use (PEP 562): `import fedkoopman` costs milliseconds and loads neither
JAX nor NumPy, and it changes none of the caller's JAX settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedkoopman import estimation, systems
    from fedkoopman.errors import InputError
    from fedkoopman.estimation import Estimates, estimate, estimate_parameters
    from fedkoopman.sensors import FunctionSensor, LinearSensor, observe
    from fedkoopman.systems import System, simulate

__version__ = "0.1.0"

__all__ = [
    "Estimates",
    "FunctionSensor",
    "InputError",
    "LinearSensor",
    "System",
    "__version__",
    "estimate",
    "estimate_parameters",
    "estimation",
    "observe",
    "simulate",
    "systems",
]

_SUBPACKAGES = frozenset({"estimation", "systems"})
_HOME = {
    "Estimates": "estimation",
    "FunctionSensor": "sensors",
    "InputError": "errors",
    "LinearSensor": "sensors",
    "System": "systems",
    "estimate": "estimation",
    "estimate_parameters": "estimation",
    "observe": "sensors",
    "simulate": "systems",
}


def __getattr__(name: str) -> object:
    if name in _SUBPACKAGES:
        return import_module(f"{__name__}.{name}")
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
