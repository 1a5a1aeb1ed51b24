"""How processes that use Flower are started: their environment, the node's command, and waiting.

Flower's own programs are not used, only parts of its library (`flower.internals`).
"""

import os
import sys
import time
from pathlib import Path

from fedkoopman.deploy.flower.internals import SETTINGS

LOOPBACK = "127.0.0.1"


def environment() -> dict[str, str]:
    """The environment of a process of ours that uses Flower."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    programs = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([programs, found.get("PATH", os.defpath)])
    return found | SETTINGS | _no_proxy()


def _no_proxy() -> dict[str, str]:
    """Connect to loopback directly, also where the web is reached through a proxy."""
    known = [os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy")]
    names = dict.fromkeys([*",".join(known).split(","), LOOPBACK, "localhost"])
    joined = ",".join(name for name in names if name)
    return {"NO_PROXY": joined, "no_proxy": joined}


def node_command(
    *,
    server: str,
    site: str,
    socket: Path,
    memory: Path,
    authority: Path | None = None,
    key: Path | None = None,
) -> list[str]:
    """The node of a site.

    Arguments:
        server: HOST:PORT of the fleet's public side.
        socket: of the site agent.
        memory: a file with what the node must know to come back after a restart.
        authority: the certificate of the authority that signed the server's; None: no TLS.
        key: the site's private key, where sites have keys.
    """
    command = [sys.executable, "-m", "fedkoopman.deploy.flower.node", "--server", server]
    command += ["--site", site, "--socket", str(socket), "--memory", str(memory)]
    if authority is not None:
        command += ["--authority", str(authority)]
    return command if key is None else [*command, "--key", str(key)]


class AdaptiveInterval:
    """The time between two attempts, which grows with the time since something last happened.

    Arguments:
        shortest: seconds, right after something happened.
        longest: seconds, after a long silence.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self.shortest = shortest
        self.longest = longest
        self._since = time.monotonic()

    def refresh(self) -> None:
        """Note that something happened."""
        self._since = time.monotonic()

    def seconds(self) -> float:
        """The current interval."""
        silence = time.monotonic() - self._since
        return min(self.longest, max(self.shortest, 0.1 * silence))
