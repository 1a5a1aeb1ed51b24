"""How Flower's programs are started: their commands, their environment, and when they are ready.

The SuperLink listens on loopback only. Its one port serves everything, also the Control API, with
which anybody could start runs and enrol nodes. So a reverse proxy faces the outside and lets only
the fleet's paths through (`fedkoopman provision` writes its configuration).

Unless told not to, Flower reports to its makers, looks for updates and installs packages. All of
that is switched off here.
"""

import os
import secrets
import shutil
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedkoopman.durable import writing
from fedkoopman.errors import ComputationError, InputError

LOOPBACK = "127.0.0.1"
SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05",
}


def environment(home: Path) -> dict[str, str]:
    """The environment of a Flower process.

    Arguments:
        home: where Flower keeps its files.
    """
    found = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    programs = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([programs, found.get("PATH", os.defpath)])
    return found | SETTINGS | _no_proxy() | {"FLWR_HOME": str(home)}


def configure_flower() -> None:
    """Apply the same settings in this process; to be called before Flower is imported."""
    os.environ.update(SETTINGS | _no_proxy())


def _no_proxy() -> dict[str, str]:
    """Connect to loopback directly, also where the web is reached through a proxy."""
    known = [os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy")]
    names = dict.fromkeys([*",".join(known).split(","), LOOPBACK, "localhost"])
    joined = ",".join(name for name in names if name)
    return {"NO_PROXY": joined, "no_proxy": joined}


@dataclass(frozen=True)
class ServerCertificate:
    """The files with which the SuperLink proves its identity."""

    authority: Path
    certificate: Path
    key: Path


def free_port() -> int:
    """A port of loopback that is free at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def make_secret(path: Path) -> Path:
    """A file with a secret that only this user can read; an existing file is kept."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path
        with os.fdopen(file, "w") as opened:
            opened.write(secrets.token_hex(32))
    return path


def superlink_command(
    *, port: int, database: Path | None, secret: Path, certificate: ServerCertificate | None = None
) -> list[str]:
    """The SuperLink, on loopback.

    Flower authenticates nodes only if the SuperLink itself speaks TLS. So it does, also behind a
    proxy that ends the outer TLS.

    Arguments:
        database: keeps nodes and runs when the process ends. None: they are lost, each call costs
            half as much, and after each start the sites must be enrolled again (`control.enrol`).
        secret: shared with the server loop, see `make_secret`.
        certificate: None for a federation on one machine, without TLS and keys.
    """
    command = [_program("flower-superlink"), "--host", LOOPBACK, "--port", str(port)]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    command += ["--disable-runtime-dependency-installation"]
    if database is not None:
        command += ["--database", str(database)]
    if certificate is None:
        return [*command, "--insecure"]
    command += ["--ssl-ca-certfile", str(certificate.authority)]
    command += ["--ssl-certfile", str(certificate.certificate)]
    command += ["--ssl-keyfile", str(certificate.key), "--enable-supernode-auth"]
    return command


def supernode_command(
    *,
    server: str,
    port: int,
    secret: Path,
    certificates: Path | None = None,
    key: Path | None = None,
    memory: Path | None = None,
) -> list[str]:
    """A SuperNode, whose messages are handled by a courier.

    Arguments:
        server: HOST:PORT of the fleet's public side.
        port: on loopback, where the courier fetches messages.
        secret: shared with the courier, see `make_secret`.
        certificates: of the authority that signed the server's; None: no TLS.
        key: the node's private key, where nodes are authenticated.
        memory: a file with what `flower.supernode` must know to reconnect quickly.
            None: use Flower's own program, which waits longer.
    """
    command = [_program("flower-supernode")]
    if memory is not None:
        command = [sys.executable, "-m", "fedkoopman.deploy.flower.supernode"]
        command += ["--memory", str(memory)]
    command += ["--superlink", server, "--host", LOOPBACK, "--port", str(port)]
    command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
    if certificates is None:
        return [*command, "--insecure"]
    command += ["--root-certificates", str(certificates)]
    return command if key is None else [*command, "--auth-supernode-private-key", str(key)]


def courier_command(*, port: int, secret: Path, socket: Path) -> list[str]:
    """The courier between a SuperNode and the site agent."""
    command = [sys.executable, "-m", "fedkoopman.deploy.flower.courier"]
    command += ["--runtime", f"{LOOPBACK}:{port}", "--secret", str(secret)]
    return [*command, "--socket", str(socket)]


def _program(name: str) -> str:
    """The path of one of Flower's programs, preferably beside this interpreter."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        raise InputError(f"{name} is not installed: pip install 'fedkoopman[deploy]'")
    return found


def wait_ready(
    address: str,
    *,
    certificates: Path | None = None,
    seconds: float = 60.0,
    alive: Callable[[], bool] = lambda: True,
) -> None:
    """Wait until a SuperLink, or a SuperNode's Runtime API, answers.

    Arguments:
        alive: whether its process still runs; waiting ends when it does not.
    """
    scheme = "http" if certificates is None else "https"
    context = None if certificates is None else ssl.create_default_context(cafile=certificates)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if context is not None:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    opener = urllib.request.build_opener(*handlers)
    end = time.monotonic() + seconds
    cause: object = "no answer"
    while alive() and time.monotonic() < end:
        try:
            with opener.open(f"{scheme}://{address}/health", timeout=5):
                return
        except ssl.SSLCertVerificationError as error:
            cause = error
            break
        except (urllib.error.URLError, OSError) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                break
        time.sleep(0.1)
    if not alive():
        cause = "its process ended; its log says why"
    told = " ".join(str(cause).split())
    raise ComputationError(f"{address} is not ready: {told}")


class AdaptiveInterval:
    """The time between two polls, which grows with the time since something last happened.

    Flower sends no notifications: to wait for a message is to poll for it. A fixed interval is
    either slow or busy. This one is a tenth of the time for which nothing has come: an active
    federation loses a tenth of its time at most, and an idle one polls as rarely as Flower does.

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

    def wait(self) -> None:
        """Sleep for the current interval."""
        time.sleep(self.seconds())
