"""A server's link and sites' nodes, all real, over HTTP on loopback; stand-ins for the agents."""

import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.fleet import FlowerFleet
from fedkoopman.deploy.flower.front import listening, serving
from fedkoopman.deploy.flower.link import Link
from fedkoopman.deploy.flower.node import Node
from fedkoopman.deploy.flower.parcels import Parcel, body_of, content_of, packed, unpacked
from fedkoopman.deploy.flower.signing import Signer, public_bytes
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.errors import InputError


def site_of(body: bytes) -> str:
    """The site that an echo claims to come from."""
    try:
        return str(json.loads(body)["site"])
    except (ValueError, KeyError) as error:
        raise InputError("not an echo") from error


class EchoAgent:
    """Answers every body with itself, under the site's name; what it was asked is remembered.

    While its gate is closed it works, as on a long training.
    """

    def __init__(self, site: str) -> None:
        self.site = site
        self.gate = threading.Event()
        self.gate.set()
        self.answer: Callable[[bytes], bytes] = self.echo
        self.asked: list[bytes] = []

    def __call__(self, body: bytes) -> bytes:
        self.asked.append(body)
        self.gate.wait(60)
        return self.answer(body)

    def echo(self, body: bytes) -> bytes:
        return json.dumps({"site": self.site, "echo": body.decode()}).encode()

    def calm(self) -> None:
        self.answer = self.echo
        self.gate.set()


@dataclass
class Site:
    """A site's key, its stand-in for an agent, and its node, once it is started."""

    name: str
    key: ec.EllipticCurvePrivateKey
    agent: EchoAgent
    said: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    instance: str = ""
    node: Node | None = None

    @property
    def public(self) -> bytes:
        return public_bytes(self.key.public_key())

    @property
    def openssh(self) -> str:
        encoded = self.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return encoded.decode()


class Lab:
    """A link that is served, and sites."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.link = Link(signed=True)
        self.port = 0
        self.revoked: set[str] = set()
        self.sites = {
            name: Site(name, ec.generate_private_key(ec.SECP256R1()), EchoAgent(name), [],
                       instance=f"{name:-<32}")
            for name in names
        }  # fmt: skip
        self._roster = self.roster()
        self.said: list[str] = []
        self._clients: list[Any] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def roster(self) -> Roster:
        return Roster(
            "0" * 64, True,
            tuple(
                Enrolled(name, place, site.openssh, "", "now" if name in self.revoked else "")
                for place, (name, site) in enumerate(self.sites.items())
            ),
        )  # fmt: skip

    def read(self) -> Roster:
        """The roster; the same object while it says the same, as from a file."""
        now = self.roster()
        if now != self._roster:
            self._roster = now
        return self._roster

    def fleet(self) -> FlowerFleet:
        return FlowerFleet(self.link, self.read, site_of=site_of, say=self.said.append)

    def client(self, name: str, **changes: Any) -> Any:
        """Flower's client with a site's key, in our own hands."""
        site = self.sites[name]
        given = {"key": site.key, "public": site.public, "instance": site.instance, **changes}
        made = flower.FleetHttpClient.from_server_address(
            self.address, True, None, [Signer(**given)]
        )
        self._clients.append(made)
        return made

    def close(self) -> None:
        """End what was started; the link no longer holds polls."""
        for thread in self._threads:
            thread.join(20)
        for client in self._clients:
            client.close()

    def start(self, name: str) -> Site:
        """Start a site's node, in a thread."""
        site = self.sites[name]
        site.stop = stop = threading.Event()
        site.node = node = Node(self.client(name), site.public, site.agent, site.said.append)
        thread = threading.Thread(target=node.work, args=(stop,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return site


@contextmanager
def laboratory(names: Sequence[str], idle: Sequence[str] = ()) -> Iterator[Lab]:
    """A link with sites, which are started unless idle, but may not be online yet."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fk")))
        lab = Lab(folder, names)
        stack.callback(lab.close)
        listener = stack.enter_context(listening("127.0.0.1", 0))
        lab.port = listener.getsockname()[1]
        lab.front = stack.enter_context(serving(lab.link, listener))
        for name in names:
            if name not in idle:
                lab.start(name)
        try:
            yield lab
        finally:
            for site in lab.sites.values():
                site.stop.set()
                site.agent.calm()


class Intruder:
    """A node that holds an enrolled key and speaks Flower's own protocol, as it likes."""

    def __init__(self, lab: Lab, name: str, **changes: Any) -> None:
        self.site, self.key = name, lab.sites[name].public
        self.client = lab.client(name, **changes)
        self.id = 0

    def activate(self) -> int:
        request = flower.ActivateNodeRequest(public_key=self.key, heartbeat_interval=30)
        self.id = int(self.client.ActivateNode(request).node_id)
        return self.id

    def deactivate(self) -> None:
        self.client.DeactivateNode(flower.DeactivateNodeRequest(node_id=self.id))

    @property
    def node(self) -> Any:
        return flower.Node(node_id=self.id)

    def receive(self) -> Any:
        """The next message, with its content."""
        found: list[Any] = []

        def pulled() -> bool:
            answer = self.client.PullMessages(flower.PullMessagesRequest(node=self.node))
            found.extend(zip(answer.messages_list, answer.message_object_trees, strict=True))
            return bool(found)

        until(pulled)
        header, tree = found[0]
        parts = {}
        for part in flower.iterate_object_tree(tree):
            request = flower.PullObjectRequest(
                node=self.node, run_id=header.metadata.run_id, object_id=part.object_id
            )
            parts[part.object_id] = self.client.PullObject(request).object_content
        return unpacked(tree.object_id, parts)

    def announce(self, reply: Parcel) -> Any:
        """Say that there is a reply, without its content."""
        request = flower.PushMessagesRequest(
            node=self.node,
            messages_list=[flower.message_to_proto(reply.message)],
            message_object_trees=[reply.tree],
        )
        return self.client.PushMessages(request)

    def send(self, reply: Parcel) -> None:
        """A reply with its content."""
        answer = self.announce(reply)
        for id in answer.objects_to_push:
            self.client.PushObject(
                flower.PushObjectRequest(
                    node=self.node, run_id=reply.message.metadata.run_id, object_id=id,
                    session_id=answer.session_id, object_content=reply.parts[id],
                )
            )  # fmt: skip

    def echo(self, message: Any, site: str = "", content: Any = None) -> Parcel:
        body = {"site": site or self.site, "echo": body_of(message.content).decode()}
        content = content or content_of(json.dumps(body).encode())
        return packed(flower.Message(content, reply_to=message))


def status(call: Callable[[], object]) -> int:
    """The status with which a request is refused; 0 if it is not."""
    try:
        call()
    except httpx.HTTPStatusError as error:
        return error.response.status_code
    return 0


def until(condition: Callable[[], bool], seconds: float = 20.0) -> float:
    """Wait for something; gives how long it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it did not happen in time"
        time.sleep(0.01)
    return time.monotonic() - started
