"""A server that kills itself at a named step of a slot. For the tests of crashes only.

FEDKOOPMAN_CRASH="trained:3" kills the process by SIGKILL when slot 3 has got its updates; several
steps are separated by commas. Each happens once per run directory, so that a restarted server gets
further. Without the variable nothing happens.
"""

import os
import signal
from pathlib import Path

STEPS = (
    "polled",
    "decided",
    "trained",
    "validated",
    "aggregated",
    "checkpointed",
    "acknowledged",
)
"""Steps of a slot, in order. A slot is acknowledged in the first round of the next one."""
VARIABLE = "FEDKOOPMAN_CRASH"


def crash_if_asked(step: str, slot: int, folder: Path) -> None:
    """Kill this process if it is to crash here and has not done so before.

    Arguments:
        folder: where that is noted.
    """
    if f"{step}:{slot}" not in os.environ.get(VARIABLE, "").split(","):
        return
    mark = folder / f".crashed-{step}-{slot}"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
