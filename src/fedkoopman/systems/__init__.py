"""What is observed: dynamical systems, their truth and their one-step maps."""

import inspect
from typing import Any

from fedkoopman.errors import unknown_name
from fedkoopman.systems.base import System
from fedkoopman.systems.double_pendulum import DoublePendulum
from fedkoopman.systems.integrate import simulate
from fedkoopman.systems.local_polynomial import LocalPolynomial
from fedkoopman.systems.lorenz63 import Lorenz63
from fedkoopman.systems.lorenz96 import Lorenz96
from fedkoopman.systems.pendulum import Pendulum
from fedkoopman.systems.van_der_pol import VanDerPol
from fedkoopman.systems.yni import YNI

__all__ = [
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

_SYSTEMS: dict[str, type[System]] = {
    "van-der-pol": VanDerPol,
    "pendulum": Pendulum,
    "lorenz63": Lorenz63,
    "double-pendulum": DoublePendulum,
    "yni": YNI,
    "lorenz96": Lorenz96,
    "random-walk": LocalPolynomial,
}


def names() -> tuple[str, ...]:
    """The names that `by_name` knows, in the paper's order; then what it does not have."""
    return tuple(_SYSTEMS)


def by_name(name: str, /, **parameters: Any) -> System:
    """A system by the name it has on the command line and in study files.

    Arguments:
        name: one of `names()`.
        parameters: what the system's constructor takes (`dt`, `a`, `dim`, …).
    """
    if name not in _SYSTEMS:
        raise unknown_name("system", name, _SYSTEMS)
    kind = _SYSTEMS[name]
    known = [p for p in inspect.signature(kind).parameters if p != "self"]
    for parameter in parameters:
        if parameter not in known:
            raise unknown_name(f"parameter of {name}", parameter, known)
    return kind(**parameters)
