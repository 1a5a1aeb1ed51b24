"""What is observed: dynamical systems, their truth and their one-step maps.

`SYSTEMS` holds them by name; each is a `System` in a file here that binds `SYSTEM`, or in a package
with an entry point in the group "fedkoopman.systems".
"""

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkoopman.errors import unknown_name
from fedkoopman.lazy import lazy_names
from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.systems.base import System
    from fedkoopman.systems.double_pendulum import DoublePendulum
    from fedkoopman.systems.integrate import simulate
    from fedkoopman.systems.lorenz63 import Lorenz63
    from fedkoopman.systems.lorenz96 import Lorenz96
    from fedkoopman.systems.pendulum import Pendulum
    from fedkoopman.systems.random_walk import LocalPolynomial
    from fedkoopman.systems.van_der_pol import VanDerPol
    from fedkoopman.systems.yni import YNI

__all__ = [
    "SYSTEMS",
    "YNI",
    "DoublePendulum",
    "LocalPolynomial",
    "Lorenz63",
    "Lorenz96",
    "Pendulum",
    "System",
    "VanDerPol",
    "by_name",
    "names",
    "simulate",
]

__getattr__ = lazy_names(__name__)


def _wrong(found: Any) -> str:
    from fedkoopman.systems.base import System

    if isinstance(found, System) or callable(found):
        return ""
    return "is no system: name a System, a subclass of it, or a function that makes one"


SYSTEMS: Registry[Any] = Registry("system", "fedkoopman.systems", "SYSTEM", _wrong)


def names() -> tuple[str, ...]:
    """The names that `by_name` knows."""
    return SYSTEMS.names


def named_system(given: Any) -> dict[str, Any] | None:
    """The name and the parameters by which `by_name` makes an equal system; None if none does."""
    kind = given if isinstance(given, type) else type(given)
    home, _, stem = kind.__module__.rpartition(".")
    name = stem.replace("_", "-")
    if home != __name__ or name not in SYSTEMS or SYSTEMS.find(name) is not kind:
        return None
    if kind is given:
        return {"name": name}
    import equinox as eqx

    options = inspect.signature(type(given)).parameters
    values = {
        key: getattr(given, key)
        for key, option in options.items()
        if key != "substeps" and getattr(given, key) != option.default
    }
    for more in ({}, {"substeps": given.substeps}):
        if eqx.tree_equal(by_name(name, **values, **more), given) is True:
            return {"name": name, "parameters": {**values, **more}}
    return None


def by_name(name: str, folder: Path | None = None, /, **parameters: Any) -> "System":
    """A system by the name it has on the command line and in study files.

    Arguments:
        name: one of `names()`, or "file.py:name".
        folder: where a user's file is looked up.
        parameters: what the system's constructor takes (`dt`, `a`, `dim`, …).
    """
    from fedkoopman.systems.base import System

    kind = SYSTEMS.find(name, folder)
    if isinstance(kind, System):
        return kind.with_values(**parameters)
    known = [p for p in inspect.signature(kind).parameters if p != "self"]
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    made: System = kind(**parameters)
    return made
