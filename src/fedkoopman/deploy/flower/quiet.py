"""Flower told to be quiet: no telemetry, no search for updates, no installing of packages."""

import os
import sys
from pathlib import Path

__all__ = ["LOOPBACK", "environment", "settle"]

LOOPBACK = "127.0.0.1"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}
"""Flower reports to its makers, asks for updates and installs packages unless told not to."""


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process: quiet, with its own home, loopback without a proxy.

    Arguments:
        home: where Flower keeps its files.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    programs = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([programs, found.get("PATH", os.defpath)])
    return found | QUIET | _direct() | {"FLWR_HOME": str(home)}


def settle() -> None:
    """Make Flower quiet in this process; before it is imported."""
    os.environ.update(QUIET | _direct())


def _direct() -> dict[str, str]:
    """What goes to loopback goes there directly, also where the web is reached through a proxy."""
    known = [os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy")]
    names = dict.fromkeys([*",".join(known).split(","), LOOPBACK, "localhost"])
    joined = ",".join(name for name in names if name)
    return {"NO_PROXY": joined, "no_proxy": joined}
