"""fedkoopman: private, noisy, partial observations of a nonlinear system → one linear model.

Names are loaded on first use (PEP 562): `import fedkoopman` costs milliseconds and loads neither
JAX nor NumPy, and it changes none of the caller's JAX settings.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from fedkoopman.version import __version__

if TYPE_CHECKING:
    from fedkoopman import control, estimation, plot, systems, theory
    from fedkoopman.config.study import Study
    from fedkoopman.errors import InputError
    from fedkoopman.estimation import Estimates, estimate, estimate_parameters
    from fedkoopman.koopman import DMD, EDMD, DeepKoopman, load_model
    from fedkoopman.koopman.kalman import KoopmanFilter
    from fedkoopman.reports.run import write_report
    from fedkoopman.runs.run import Run, run
    from fedkoopman.runs.saved_run import load_run
    from fedkoopman.sensors import FunctionSensor, LinearSensor, observe
    from fedkoopman.systems import System, simulate

__all__ = [
    "DMD",
    "EDMD",
    "DeepKoopman",
    "Estimates",
    "FunctionSensor",
    "InputError",
    "KoopmanFilter",
    "LinearSensor",
    "Run",
    "Study",
    "System",
    "__version__",
    "control",
    "estimate",
    "estimate_parameters",
    "estimation",
    "load_model",
    "load_run",
    "observe",
    "plot",
    "run",
    "simulate",
    "systems",
    "theory",
    "write_report",
]

_SUBPACKAGES = frozenset({"control", "estimation", "plot", "systems", "theory"})
_HOME = {
    "DMD": "koopman",
    "EDMD": "koopman",
    "DeepKoopman": "koopman",
    "Estimates": "estimation",
    "FunctionSensor": "sensors",
    "InputError": "errors",
    "KoopmanFilter": "koopman.kalman",
    "LinearSensor": "sensors",
    "Run": "runs.run",
    "Study": "config.study",
    "System": "systems",
    "estimate": "estimation",
    "estimate_parameters": "estimation",
    "load_model": "koopman",
    "load_run": "runs.saved_run",
    "observe": "sensors",
    "run": "runs.run",
    "simulate": "systems",
    "write_report": "reports.run",
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
