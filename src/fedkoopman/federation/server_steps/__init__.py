"""What the server makes of the aggregate: one file per step.

To add one: a file here that binds `SERVER_STEP`, an entry point in the group
`fedkoopman.server_steps`, or `server.step = "file.py:name"` in a study.
"""

from typing import TYPE_CHECKING

from fedkoopman.lazy import lazy_names
from fedkoopman.registry import Registry

if TYPE_CHECKING:
    from fedkoopman.federation.server_steps.server_step import ServerStep, first_steps, stepped

__all__ = ["SERVER_STEPS", "ServerStep", "first_steps", "stepped"]

__getattr__ = lazy_names(__name__)


SERVER_STEPS: "Registry[ServerStep]" = Registry(
    "server step",
    "fedkoopman.federation.server_steps",
    "SERVER_STEP",
    form="step(options)",
)
"""By `server.step`."""
