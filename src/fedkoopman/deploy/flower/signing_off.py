"""A SuperNode signs off in the name of the process before it, and says why it is not let in.

After a crash the SuperLink takes the dead process to be online for up to a minute. A file remembers
under which number: a second machine with a copy of the kit has no such file, and is turned away.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from flwr.supernode.fleet_http_client import FleetHttpClient

__all__ = ["SERVER", "refusal", "remember", "sign_off"]

SERVER = "the server "
"""How a line begins that `join` shows to the people at a site."""


def sign_off(server: str, certificates: Path, key: Path, memory: Path) -> None:
    """End what a dead process with this key left open; without success nothing is lost but time."""
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private: Any = load_ssh_private_key(key.read_bytes(), None)
    shown = _shown(key)
    signing = NodeAuthHttpInterceptor(private, private.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with FleetHttpClient.from_server_address(
        server, False, certificates.read_bytes(), interceptors=[version, signing]
    ) as client:
        try:
            node = _remembered(memory, shown)
            if node is None or not _left(client, node):
                request = ActivateNodeRequest(
                    public_key=shown, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
                )
                node = client.ActivateNode(request).node_id
                _write(memory, shown, node)
                _left(client, node)
        except (httpx.HTTPError, InputError) as error:
            print(
                f"nothing to sign off: {error}", refusal(error, server), sep="\n", file=sys.stderr
            )


def refusal(error: Exception, server: str) -> str:
    """Why a site has no place at a server, for the people there.

    Arguments:
        server: HOST:PORT.
    """
    import httpx

    status = error.response.status_code if isinstance(error, httpx.HTTPStatusError) else None
    if status == httpx.codes.PRECONDITION_FAILED:
        why = (
            "turns this site away: it does not know the site's key, or another machine uses it: "
            "ask the coordinator whether the site was revoked"
        )
    elif status == httpx.codes.UNAUTHORIZED:
        why = "turns this site away: its signature does not fit: is this machine's clock right?"
    elif "CERTIFICATE_VERIFY_FAILED" in str(error):
        why = (
            f"at {server} is not the one of the kit, as its certificate shows (another server, "
            "another name, or out of date): check the address, or ask for a new kit"
        )
    elif isinstance(error, httpx.TransportError):
        why = f"at {server} does not answer ({error}): trying again until it does"
    else:
        return ""
    return f"{SERVER}{why}"


def remember(loop: ModuleType, key: Path, memory: Path) -> None:
    """Have Flower's loop write its number down when it is let in: that may be long after `sign_off`
    has found nobody to ask.

    Arguments:
        loop: the module `flwr.supernode.start_client_internal`.
    """
    connect = loop._init_connection
    shown = _shown(key)

    @contextmanager
    def connected(*arguments: Any, **named: Any) -> Iterator[Any]:
        with connect(*arguments, **named) as connection:
            try:
                _write(memory, shown, connection[0])
            except InputError as error:
                print(error, file=sys.stderr)
            yield connection

    vars(loop)["_init_connection"] = connected


def _left(client: "FleetHttpClient", node: int) -> bool:
    """Sign a node off; False if that number is not that of this key (any more)."""
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest

    try:
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
    except httpx.HTTPStatusError as error:
        return error.response.status_code != httpx.codes.UNAUTHORIZED
    return True


def _shown(key: Path) -> bytes:
    """The public half of a private key, as Flower shows it."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    private: Any = load_ssh_private_key(key.read_bytes(), None)
    return bytes(public_key_to_bytes(private.public_key()))


def _remembered(memory: Path, key: bytes) -> int | None:
    """The number that the holder of this key has had."""
    try:
        content = json.loads(memory.read_bytes())
        return int(content["node"]) if content["key"] == key.decode() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(memory: Path, key: bytes, node: int) -> None:
    content = {"key": key.decode(), "node": str(node)}
    write_whole(memory, json.dumps(content).encode())
