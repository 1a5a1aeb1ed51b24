"""People who should have no part in a federation, and what they bring along."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, MessageType, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import StartRunRequest
from flwr.proto.fab_pb2 import Fab
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedkoopman.deploy.flower.nodes import Inbox
from fedkoopman.deploy.flower.tasks import Tasks
from fedkoopman.deploy.wire import Failure

from .federation import wait_until

ROGUE_PROJECT = """
[project]
name = "rogue"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "rogue"
fab-include = ["pyproject.toml", "*.py"]
[tool.flwr.app.components]
serverapp = "rogue:app"
clientapp = "rogue:app"
[tool.flwr.app.config]
"""


def fresh_key() -> ec.EllipticCurvePrivateKey:
    """A key that nobody knows."""
    return ec.generate_private_key(ec.SECP384R1())


def key_of(kit: Path) -> ec.EllipticCurvePrivateKey:
    """A site's key, as whoever stole its opened kit has it."""
    key = load_ssh_private_key((kit / "node.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def shown(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public half, as Flower has it."""
    return public_key_to_bytes(key.public_key())


@contextmanager
def fleet_client(
    port: int, authority: Path | None, key: ec.EllipticCurvePrivateKey | None
) -> Iterator[FleetHttpClient]:
    """A SuperNode's client, in our own hands.

    Arguments:
        authority: whose certificates are trusted; None: no TLS.
        key: that requests are signed with, if any.
    """
    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperNode")]
    if key is not None:
        interceptors.append(NodeAuthHttpInterceptor(key, key.public_key()))
    trusted = None if authority is None else authority.read_bytes()
    with FleetHttpClient.from_server_address(
        f"127.0.0.1:{port}", authority is None, trusted, interceptors=interceptors
    ) as client:
        yield client


def refusal(call: Callable[[], object]) -> int:
    """The status with which a request is refused; 0 if it is not."""
    try:
        call()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 0


def other_authority(folder: Path) -> Path:
    """A certificate authority of somebody else."""
    path = folder / "other.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "1", "-subj", "/CN=other", "-keyout", str(folder / "other.key"),
         "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(path)],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


@contextmanager
def impostor(certificate: Path) -> Iterator[tuple[int, list[bytes]]]:
    """A server with a certificate of its own: its port, and what it gets to hear."""
    context, heard = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[bytes]()
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def work() -> None:
        while True:
            try:
                plain, _ = door.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(plain, server_side=True) as link:
                    heard.append(link.recv(1000))
            except OSError:
                plain.close()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=work, daemon=True).start()
        yield int(door.getsockname()[1]), heard
        door.shutdown(socket.SHUT_RDWR)


def listening(processes: Iterable[int]) -> set[tuple[str, int]]:
    """Addresses at which some processes listen."""
    owned = set()
    for process in processes:
        for link in Path(f"/proc/{process}/fd").glob("*"):
            try:
                owned.add(str(link.readlink()))
            except OSError:
                continue
    found = set()
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        path = Path(f"/proc/net/{name}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in owned:
                host, _, port = words[1].partition(":")
                packed = bytes.fromhex(host)
                order = [packed[i : i + 4][::-1] for i in range(0, len(packed), 4)]
                found.add((socket.inet_ntop(family, b"".join(order)), int(port, 16)))
    return found


@contextmanager
def rogue_run(
    address: str, authority: Path, secret: Path, folder: Path, code: str
) -> Iterator[HttpGrid]:
    """An app of somebody who has got hold of the coordinator's machine: a run of its own.

    Arguments:
        secret: the SuperLink's, by which tasks are acquired.
        folder: for the app.
        code: of its one module.
    """
    folder.mkdir()
    (folder / "pyproject.toml").write_text(ROGUE_PROJECT)
    (folder / "rogue.py").write_text(code)
    with ControlHttpClient.from_server_address(
        address, False, authority.read_bytes(),
        [RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    ) as control:  # fmt: skip
        fab = Fab(content=build_fab_from_disk(folder))
        run = control.StartRun(StartRunRequest(fab=fab)).run_id
    tasks = Tasks(address, secret, authority)
    task = wait_until(lambda: tasks.acquire(TaskType.SERVER_APP), 10, "the rogue's task")
    assert task.run_id == run
    grid = HttpGrid(address, root_certificates=authority.read_bytes(), token=tasks.token)
    given = grid._runtime_client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    grid.set_run(run_from_proto(given.run))
    try:
        yield grid
    finally:
        tasks.finish(SubStatus.COMPLETED)
        tasks.close()
        grid.close()


def asked(grid: HttpGrid, node: int, content: RecordDict, kind: str = MessageType.TRAIN) -> str:
    """Send a node a message of any kind; gives the error with which it answers, or its body."""
    message = Message(content, node, kind, ttl=60.0, group_id="rogue")
    [sent] = grid.push_messages([message])
    inbox = Inbox(grid)
    [(_, answer)] = wait_until(lambda: inbox.collect([sent]), 60, "an answer")
    return answer.reason if isinstance(answer, Failure) else answer.decode("latin-1")
