"""Flower's SuperNode with shorter waits and a quick return after a crash.

    python -m fedkoopman.deploy.flower.supernode --memory FILE OPTIONS-OF-FLOWER-SUPERNODE

What it changes:

- Flower sleeps 3 s whenever there is no message, and 0.5 s whenever there is no reply. Here it
  sleeps a tenth of the time for which nothing has come, 3 s at most (`shorten_waits`).
- Flower asks again after a second for a message whose content is incomplete. Here after 0.05 s.
- While the SuperLink is away, Flower's threads ask every 20 s in the end. Here every 5 s.
- After a crash the SuperLink takes the dead process to be online for up to a minute, and refuses
  the new one. Here the new process first signs off the dead one (`sign_off`).
- A message that Flower could not receive whole, because the SuperLink went away, leaves a task
  behind. If that is answered, the answer is sent in place of the next one, and every later answer
  comes one message too late. Here the process ends at such a message, and is restarted
  (`exit_on_lost_message`).
- Flower keeps the task of every message for ever, and looks at all of them whenever it asks for
  the next one. Here finished tasks are removed (`drop_finished_tasks`).

All this replaces names inside two of Flower's modules; a test fails when Flower changes them.
Flower's own `flower-supernode` works as well.
"""

import argparse
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fedkoopman.deploy.flower.programs import AdaptiveInterval, configure_flower
from fedkoopman.durable import write_whole
from fedkoopman.errors import InputError

if TYPE_CHECKING:
    from flwr.supernode.fleet_http_client import FleetHttpClient

REFUSAL = "the server "
"""How a line begins that `join` shows to the people at a site."""


class _Time:
    """Replaces the module `time` in Flower's loop, which calls only `time.sleep`."""

    def __init__(self) -> None:
        self._messages = AdaptiveInterval(shortest=0.05, longest=3.0)

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than the adaptive interval."""
        if seconds < 1.0:  # it waits for the reply to a message: so a message has come
            self._messages.refresh()
            time.sleep(min(seconds, 0.02))
        else:
            time.sleep(min(seconds, self._messages.seconds()))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def shorten_waits(loop: ModuleType, retry: ModuleType) -> None:
    """Shorten the waits of Flower's loop.

    Arguments:
        loop: the module `flwr.supernode.start_client_internal`.
        retry: the module `flwr.supercore.retry.http_retry`.
    """
    vars(loop)["time"] = _Time()
    soon = functools.partial(loop.pull_objects, initial_backoff=0.05, backoff_cap=1.0)
    vars(loop)["pull_objects"] = soon
    vars(retry)["MAX_RETRY_DELAY"] = 5


def exit_on_lost_message(loop: ModuleType, end: Callable[[], None]) -> None:
    """Have Flower's loop end when it gives up a message that it has begun to receive."""
    pull = loop._pull_and_store_message

    def pulled(**named: Any) -> int | None:
        begun, receive = [], named["receive"]

        def received() -> Any:
            found = receive()
            begun.extend([] if found is None else [True])
            return found

        run: int | None = pull(**{**named, "receive": received})
        if run is None and begun:
            end()
        return run

    vars(loop)["_pull_and_store_message"] = pulled


def drop_finished_tasks(loop: ModuleType) -> None:
    """Have Flower's loop remove finished tasks before it asks for the next message."""
    from flwr.common.constant import Status

    pull = loop._pull_and_store_message

    def pulled(**named: Any) -> int | None:
        state = named["state"]
        with state.lock_task_store:
            tasks = state.task_store
            for number in [n for n in tasks if tasks[n].status.status == Status.FINISHED]:
                del tasks[number]
        run: int | None = pull(**named)
        return run

    vars(loop)["_pull_and_store_message"] = pulled


def remember_node(loop: ModuleType, key: Path, memory: Path) -> None:
    """Have Flower's loop write its node id to a file when it is admitted, for `sign_off`.

    A second machine with a copy of the kit has no such file, and is refused.
    """
    connect = loop._init_connection
    public = _public_key(key)

    @contextmanager
    def connected(*arguments: Any, **named: Any) -> Iterator[Any]:
        with connect(*arguments, **named) as connection:
            try:
                _write(memory, public, connection[0])
            except InputError as error:
                print(error, file=sys.stderr)
            yield connection

    vars(loop)["_init_connection"] = connected


def sign_off(server: str, certificates: Path, key: Path, memory: Path) -> None:
    """Sign off a dead process with this key. If that fails, only time is lost."""
    import httpx
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
    from flwr.proto.fleet_pb2 import ActivateNodeRequest
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supernode.fleet_http_client import FleetHttpClient
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    private: Any = load_ssh_private_key(key.read_bytes(), None)
    public = _public_key(key)
    signing = NodeAuthHttpInterceptor(private, private.public_key())
    version = RuntimeVersionHttpInterceptor(component_name="SuperNode")
    with FleetHttpClient.from_server_address(
        server, False, certificates.read_bytes(), interceptors=[version, signing]
    ) as client:
        try:
            node = _remembered(memory, public)
            if node is None or not _deactivate(client, node):
                request = ActivateNodeRequest(
                    public_key=public, heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL
                )
                node = client.ActivateNode(request).node_id
                _write(memory, public, node)
                _deactivate(client, node)
        except (httpx.HTTPError, InputError) as error:
            print(
                f"nothing to sign off: {error}", refusal(error, server), sep="\n", file=sys.stderr
            )


def refusal(error: Exception, server: str) -> str:
    """Why a server does not admit a site, in a line for the people at the site; "" if unknown."""
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
    return f"{REFUSAL}{why}"


def _deactivate(client: "FleetHttpClient", node: int) -> bool:
    """Sign a node off; False if the node does not (or no longer) belong to this key."""
    import httpx
    from flwr.proto.fleet_pb2 import DeactivateNodeRequest

    try:
        client.DeactivateNode(DeactivateNodeRequest(node_id=node))
    except httpx.HTTPStatusError as error:
        return error.response.status_code != httpx.codes.UNAUTHORIZED
    return True


def _public_key(key: Path) -> bytes:
    """The public half of a private key, in Flower's form."""
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    private: Any = load_ssh_private_key(key.read_bytes(), None)
    return bytes(public_key_to_bytes(private.public_key()))


def _remembered(memory: Path, key: bytes) -> int | None:
    """The id of the last node with this key."""
    try:
        content = json.loads(memory.read_bytes())
        return int(content["node"]) if content["key"] == key.decode() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(memory: Path, key: bytes, node: int) -> None:
    content = {"key": key.decode(), "node": str(node)}
    write_whole(memory, json.dumps(content).encode())


def _exit() -> None:
    print("a message was lost half received: restarting", file=sys.stderr, flush=True)
    os._exit(1)


def main(arguments: list[str] | None = None) -> None:
    """Run Flower's SuperNode."""
    configure_flower()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--memory", required=True, type=Path)
    chosen, others = parser.parse_known_args(arguments)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--superlink", default="")
    parser.add_argument("--root-certificates", type=Path)
    parser.add_argument("--auth-supernode-private-key", type=Path)
    own, _ = parser.parse_known_args(others)
    authenticated = own.root_certificates and own.auth_supernode_private_key
    if authenticated:
        sign_off(
            own.superlink, own.root_certificates, own.auth_supernode_private_key, chosen.memory
        )

    import flwr.supercore.retry.http_retry as retry
    import flwr.supernode.start_client_internal as loop
    from flwr.supernode.cli import flower_supernode

    shorten_waits(loop, retry)
    exit_on_lost_message(loop, _exit)
    drop_finished_tasks(loop)
    if authenticated:
        remember_node(loop, own.auth_supernode_private_key, chosen.memory)
    sys.argv = ["flower-supernode", *others]
    flower_supernode()


if __name__ == "__main__":
    main()
