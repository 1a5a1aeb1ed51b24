"""A server that kills itself at a named step of a slot. For the tests of crashes only.

FEDKOOPMAN_CRASH="trained:3" ends the process by SIGKILL, without any farewell, when slot 3 has got
its updates; several are separated by commas. Each happens once per run directory, so that whatever
starts the server again gets further. Without the variable nothing here does anything.
"""

import os
import signal
from pathlib import Path

__all__ = ["STEPS", "crash_if_asked"]

STEPS = (
    "polled",
    "decided",
    "trained",
    "validated",
    "aggregated",
    "checkpointed",
    "acknowledged",
)
"""Of a slot, in order. The acknowledgement of a slot goes out with the next slot's first round."""
VARIABLE = "FEDKOOPMAN_CRASH"


def crash_if_asked(step: str, slot: int, folder: Path) -> None:
    """Kill this process if it is to crash here and has not done so before.

    Arguments:
        folder: where it is noted that it did.
    """
    if f"{step}:{slot}" not in os.environ.get(VARIABLE, "").split(","):
        return
    mark = folder / f".crashed-{step}-{slot}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
