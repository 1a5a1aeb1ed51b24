"""Aggregators: one file each; from the clients' updates to the server's next arrays.

To add one: a file here that binds `AGGREGATOR`, an entry point in the group
`fedkoopman.aggregators`, or `aggregation.rule = "file.py:name"` in a study.
"""

from typing import TYPE_CHECKING, Any

from fedkoopman.lazy import lazy_names
from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.federation.aggregators.aggregator import Aggregator, aggregate

__all__ = ["AGGREGATORS", "Aggregator", "aggregate"]

__getattr__ = lazy_names(__name__)


def _remembers(member: Any) -> bool:
    return all(callable(getattr(member, name, None)) for name in ("begin", "step"))


AGGREGATORS: "Registry[Aggregator]" = Registry(
    "aggregator",
    "fedkoopman.federation.aggregators",
    "AGGREGATOR",
    form="rule(current, updates, sizes)",
    other=_remembers,
)
"""By `aggregation.rule`."""
