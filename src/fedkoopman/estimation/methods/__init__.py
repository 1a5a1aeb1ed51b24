"""Estimators by name: one file per method, which binds `ESTIMATOR`.

A new one is an `fedkoopman.estimation.Estimator` in a file here, in a package with an entry point
in the group "fedkoopman.estimators", or in a Python file named as "file.py:name".
"""

from typing import TYPE_CHECKING, Any

from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.estimation.estimator import Estimator

__all__ = ["ESTIMATORS"]


def _wrong(found: Any) -> str:
    from fedkoopman.estimation.estimator import Estimator

    if isinstance(found, Estimator):
        return ""
    return "is no estimator: bind it to an instance of fedkoopman.estimation.Estimator"


ESTIMATORS: "Registry[Estimator]" = Registry(
    "method", "fedkoopman.estimation.methods", "ESTIMATOR", _wrong, group="fedkoopman.estimators"
)
