"""Algorithms: one file each; see `federation/algorithm.py` for what an algorithm is.

To add one: a file here that binds `ALGORITHM`, an entry point in the group
`fedkoopman.algorithms`, or `algorithm.name = "file.py:name"` in a study.
"""

from typing import TYPE_CHECKING, Any

from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Algorithm

__all__ = ["ALGORITHMS"]

METHODS = ("messages", "begin", "ask", "answer", "conclude", "model", "warm")


def _fault(member: Any) -> str:
    missing = [name for name in METHODS if not callable(getattr(member, name, None))]
    return f"is no algorithm: it has no method {', '.join(missing)}" if missing else ""


ALGORITHMS: "Registry[Algorithm]" = Registry(
    "algorithm", "fedkoopman.federation.algorithms", "ALGORITHM", _fault
)
"""By `algorithm.name`."""
