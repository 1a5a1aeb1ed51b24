"""Who trains in a slot: the policies of Section V, one file each.

To add one: a file here that binds `POLICY`, an entry point in the group `fedkoopman.policies`, or
`policy.name = "file.py:name"` in a study.
"""

from typing import TYPE_CHECKING

from fedkoopman.lazy import lazy_names
from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.federation.policies.policy import Policy, Situation, activate

__all__ = ["POLICIES", "Policy", "Situation", "activate"]

__getattr__ = lazy_names(__name__)


POLICIES: "Registry[Policy]" = Registry(
    "policy",
    "fedkoopman.federation.policies",
    "POLICY",
    group="fedkoopman.policies",
    form="policy(situation)",
)
"""By `policy.name`."""
