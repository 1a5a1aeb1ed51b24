"""Flower's programs: how they are started.

The SuperLink listens on loopback only. One port of it serves everything, the Control API too, and
whoever reaches that API may start runs and enrol nodes: so it is a reverse proxy that faces the
outside and lets the fleet's paths through (`fedkoopman provision` writes its configuration).
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

from fedkoopman.deploy.flower.control import (
    Node,
    enrol,
    key_bytes,
    nodes,
    register,
    start_run,
    stop_runs,
    unregister,
)
from fedkoopman.deploy.flower.quiet import LOOPBACK, environment, settle
from fedkoopman.durable import writing
from fedkoopman.errors import ComputationError, InputError

__all__ = [
    "Node",
    "ServerCertificate",
    "courier_command",
    "enrol",
    "environment",
    "free_port",
    "key_bytes",
    "make_secret",
    "nodes",
    "register",
    "settle",
    "start_run",
    "stop_runs",
    "superlink_command",
    "supernode_command",
    "unregister",
    "wait_ready",
]


@dataclass(frozen=True)
class ServerCertificate:
    """The files with which the SuperLink proves who it is."""

    authority: Path
    certificate: Path
    key: Path


def free_port() -> int:
    """A port of loopback that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def make_secret(path: Path) -> Path:
    """A file with a secret that only this user reads; what is there already is kept."""
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

    Flower authenticates nodes only where the SuperLink itself speaks TLS, so it does, also behind a
    proxy that ends the outer TLS.

    Arguments:
        database: where nodes and runs outlast the process. None: they do not, each call costs half
            as much, and after each start the sites must be enrolled again (`enrol`).
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
        memory: a file for what `flower.supernode` must know to come back quickly.
            None: Flower's own program, which waits longer.
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
    """The courier between a SuperNode and the site agent.

    Arguments:
        port: the SuperNode's, on loopback.
        secret: shared with the SuperNode.
        socket: the agent's.
    """
    command = [sys.executable, "-m", "fedkoopman.deploy.flower.courier"]
    command += ["--runtime", f"{LOOPBACK}:{port}", "--secret", str(secret)]
    return [*command, "--socket", str(socket)]


def _program(name: str) -> str:
    """A program of Flower's, preferably that of the interpreter that runs."""
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
        alive: whether its process runs still; once it does not, waiting is over.
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
