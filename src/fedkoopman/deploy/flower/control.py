"""What the coordinator tells the SuperLink: which keys may join, and that a run begins.

Flower is imported inside the functions: `fedkoopman serve` only watches processes, and needs
neither Flower nor JAX for that.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedkoopman.deploy.flower.programs import configure_flower
from fedkoopman.errors import ComputationError, InputError, short

if TYPE_CHECKING:
    from flwr.supercore.control import ControlHttpClient

APP = Path(__file__).with_name("app")


@dataclass(frozen=True)
class Node:
    """A SuperNode as the SuperLink knows it.

    Arguments:
        public_key: as `key_bytes` gives it.
        status: "registered" (never seen), "online", "offline" or "unregistered".
        activated: when its process last announced itself, or "".
    """

    id: int
    public_key: bytes
    status: str
    name: str
    activated: str


def start_run(
    address: str, *, certificates: Path | None = None, settings: Path | None = None
) -> int:
    """Start a run and give its id; the server loop then acquires its task (`tasks`).

    Arguments:
        settings: the file that `flower_apps.server_app` reads, if Flower itself starts the loop.
    """
    with _control(address, certificates) as client:
        from flwr.cli.build import build_fab_from_disk
        from flwr.common.serde import user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.proto.fab_pb2 import Fab

        chosen: dict[str, bool | float | int | str] = {}
        if settings is not None:
            chosen["settings"] = str(settings)
        with warnings.catch_warnings():  # Flower uses a deprecated call
            warnings.simplefilter("ignore", DeprecationWarning)
            bundle = build_fab_from_disk(APP)
        request = StartRunRequest(
            fab=Fab(content=bundle), override_config=user_config_to_proto(chosen)
        )
        answer = client.StartRun(request)
        if not answer.HasField("run_id"):
            raise ComputationError(f"the SuperLink at {address} did not start a run; see its log")
        return int(answer.run_id)


def stop_runs(address: str, *, certificates: Path | None = None) -> list[int]:
    """End the runs that are still open, as after a crash of the server loop."""
    from flwr.common.constant import Status

    with _control(address, certificates) as client:
        from flwr.proto.control_pb2 import ListRunsRequest, StopRunRequest

        runs = client.ListRuns(ListRunsRequest()).run_dict
        opened = [run for run, about in runs.items() if about.status.status != Status.FINISHED]
        for run in opened:
            client.StopRun(StopRunRequest(run_id=run))
        return opened


def register(address: str, public_key: str, name: str, *, certificates: Path | None = None) -> int:
    """Let the holder of a key join; gives the node's id. A removed key cannot be added again."""
    with _control(address, certificates) as client:
        from flwr.proto.control_pb2 import RegisterNodeRequest

        request = RegisterNodeRequest(public_key=key_bytes(public_key), name=name)
        return int(client.RegisterNode(request).node_id)


def unregister(address: str, node: int, *, certificates: Path | None = None) -> None:
    """Shut a node out: its next request is refused."""
    with _control(address, certificates) as client:
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        client.UnregisterNode(UnregisterNodeRequest(node_id=node))


def nodes(address: str, *, certificates: Path | None = None) -> list[Node]:
    """Every node that the SuperLink knows, the unregistered ones too."""
    with _control(address, certificates) as client:
        from flwr.proto.control_pb2 import ListNodesRequest

        found = client.ListNodes(ListNodesRequest()).nodes_info
        return [
            Node(node.node_id, node.public_key, node.status, node.name, node.last_activated_at)
            for node in found
        ]


def enrol(
    address: str, keys: Mapping[str, str], *, certificates: Path | None = None
) -> tuple[list[str], list[str]]:
    """Register exactly these keys; gives the names that were added and removed.

    Arguments:
        keys: the public key of each site that may take part.
    """
    known = {
        node.public_key: node
        for node in nodes(address, certificates=certificates)
        if node.status != "unregistered"
    }
    wanted = {key_bytes(key): name for name, key in keys.items()}
    removed = [node for key, node in known.items() if key not in wanted]
    for node in removed:
        unregister(address, node.id, certificates=certificates)
    added = [name for key, name in wanted.items() if key not in known]
    for name in added:
        register(address, keys[name], name, certificates=certificates)
    return added, [node.name for node in removed]


def key_bytes(public_key: str) -> bytes:
    """A public key in OpenSSH's form, as Flower stores it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_public_key,
    )

    try:
        key = load_ssh_public_key(public_key.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{short(public_key)} is not a public key in OpenSSH's form") from error
    if not isinstance(key, EllipticCurvePublicKey):
        raise InputError(f"{short(public_key)} is not an elliptic-curve key: use ecdsa, nistp384")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@contextmanager
def _control(address: str, certificates: Path | None) -> Iterator["ControlHttpClient"]:
    """The SuperLink's Control API; a refusal becomes an error of one line."""
    configure_flower()
    import httpx
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.error import FlowerError
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    try:
        with ControlHttpClient.from_server_address(
            address,
            certificates is None,
            None if certificates is None else certificates.read_bytes(),
            [RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        ) as client:
            yield client
    except httpx.HTTPStatusError as error:
        told = FlowerError.from_json(error.response.text)
        cause = f"{told.message} (Flower's code {told.code})" if told else error
        raise ComputationError(f"the SuperLink at {address} refused: {_line(cause)}") from error
    except (httpx.TransportError, OSError) as error:
        raise ComputationError(
            f"the SuperLink at {address} does not answer: {_line(error)}"
        ) from error


def _line(cause: object) -> str:
    return " ".join(str(cause).split()) or type(cause).__name__
