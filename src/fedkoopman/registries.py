"""The registries that studies choose from, for readers of studies: no protocol is imported."""

from typing import Any

from fedkoopman.registry import Registry

__all__ = ["AGGREGATORS", "ALGORITHMS", "POLICIES"]


def _function(form: str) -> Any:
    return lambda member: "" if callable(member) else f"is not a function {form}"


def _with_methods(kind: str, *names: str) -> Any:
    def fault(member: Any) -> str:
        missing = [name for name in names if not callable(getattr(member, name, None))]
        return f"is no {kind}: it has no method {', '.join(missing)}" if missing else ""

    return fault


POLICIES: Registry[Any] = Registry(
    "policy",
    "fedkoopman.federation.policies",
    "POLICY",
    _function("of the situation"),
    group="fedkoopman.policies",
)
"""By `policy.name`; see `federation/policies`."""

AGGREGATORS: Registry[Any] = Registry(
    "aggregator",
    "fedkoopman.federation.aggregators",
    "AGGREGATOR",
    _function("(current, updates, sizes) → arrays"),
)
"""By `aggregation.rule`; see `federation/aggregators`."""

ALGORITHMS: Registry[Any] = Registry(
    "algorithm",
    "fedkoopman.federation.algorithms",
    "ALGORITHM",
    _with_methods("algorithm", "messages", "begin", "ask", "answer", "conclude", "model", "warm"),
)
"""By `algorithm.name`; see `federation/algorithm.py`."""
