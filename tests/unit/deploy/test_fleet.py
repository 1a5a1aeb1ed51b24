"""One exchange at a time: every site speaks for itself, in time, once, or is not heard."""

import json
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from unit.deploy.lab import HELLO, Lab, laboratory, site_of, until

from fedkoopman.deploy.flower import control
from fedkoopman.deploy.flower import fleet as fleets
from fedkoopman.deploy.flower.courier import body_of, content_of
from fedkoopman.deploy.flower.fleet import FlowerFleet, LinkLost
from fedkoopman.deploy.flower.tasks import ServerTask, acquire_server_task
from fedkoopman.deploy.wire import Failure

pytestmark = pytest.mark.deploy  # real processes: `make test-deploy`


class Intruder:
    """A node that holds an enrolled key and speaks Flower's own protocol, as it likes."""

    def __init__(self, lab: Lab, name: str) -> None:
        assert lab.authority is not None
        content = (lab.sites[name].directory / "node.key").read_bytes()
        private = load_ssh_private_key(content, None)
        self.site = name
        self.key = public_key_to_bytes(private.public_key())  # type: ignore[arg-type]
        self.client = FleetHttpClient.from_server_address(
            lab.address,
            False,
            lab.authority.read_bytes(),
            interceptors=[
                RuntimeVersionHttpInterceptor(component_name="SuperNode"),
                NodeAuthHttpInterceptor(private, private.public_key()),  # type: ignore[arg-type]
            ],
        )
        self.id = self.activate()

    def activate(self) -> int:
        request = ActivateNodeRequest(public_key=self.key, heartbeat_interval=30)
        return int(self.client.ActivateNode(request).node_id)

    def deactivate(self) -> None:
        self.client.DeactivateNode(DeactivateNodeRequest(node_id=self.id))

    @property
    def node(self) -> Node:
        return Node(node_id=self.id)

    def receive(self) -> Message:
        """The next message, with its content."""
        found = []

        def pulled() -> bool:
            answer = self.client.PullMessages(PullMessagesRequest(node=self.node))
            found.extend(zip(answer.messages_list, answer.message_object_trees, strict=True))
            return bool(found)

        until(pulled)
        header, tree = found[0]
        contents: dict[str, bytes] = {}
        run = header.metadata.run_id
        for part in iterate_object_tree(tree):
            request = PullObjectRequest(node=self.node, run_id=run, object_id=part.object_id)
            until(lambda request=request: self.client.PullObject(request).object_available)  # type: ignore[misc]
            contents[part.object_id] = self.client.PullObject(request).object_content
        message = inflate_object_from_contents(tree.object_id, contents)
        assert isinstance(message, Message)
        message.metadata.__dict__["_message_id"] = header.metadata.message_id
        return message

    def announce(self, reply: Message) -> PushMessagesResponse:
        """Say that there is a reply, without its content."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        )
        return self.client.PushMessages(request)

    def send(self, reply: Message) -> set[str]:
        """A reply with its content; gives the parts that the SuperLink asked for."""
        answer = self.announce(reply)
        for id, part in get_all_nested_objects(reply).items():
            if id in answer.objects_to_push:
                self.client.PushObject(
                    PushObjectRequest(
                        node=self.node,
                        run_id=reply.metadata.run_id,
                        session_id=answer.session_id,
                        object_id=id,
                        object_content=part.deflate(),
                    )
                )
        return set(answer.objects_to_push)

    def echo(self, message: Message, site: str = "") -> Message:
        body = {"site": site or self.site, "echo": body_of(message.content).decode()}
        return Message(content_of(json.dumps(body).encode()), reply_to=message)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory(secure=True, names=["a", "b", "c"], idle=["c"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def task(lab: Lab) -> Iterator[ServerTask]:
    with acquire_server_task(lab.address, lab.secret, certificates=lab.authority) as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet(lab: Lab, task: ServerTask) -> FlowerFleet:
    fleet = new_fleet(lab, task)
    until(lambda: {"a", "b"} <= set(fleet.online()), 60)
    assert set(dict(fleet.exchange({"a": b"", "b": b""}, 30))) == {"a", "b"}, "couriers are up"
    return fleet


@pytest.fixture(autouse=True)
def calm(lab: Lab) -> Iterator[None]:
    yield
    lab.revoked.clear()
    for site in lab.sites.values():
        site.agent.calm()


@pytest.fixture(scope="module")
def intruder(lab: Lab, fleet: FlowerFleet) -> Iterator[Intruder]:
    opened = Intruder(lab, "c")
    yield opened
    opened.client.close()


def new_fleet(lab: Lab, task: ServerTask) -> FlowerFleet:
    return FlowerFleet(task.grid, lab.roster, site_of=site_of, hello=HELLO, lost=task.lost.is_set)


def ask(
    fleet: FlowerFleet, sites: str, body: bytes = b"hi", deadline: float = 30
) -> dict[str, object]:
    return dict(fleet.exchange(dict.fromkeys(sites, body), deadline))


class Asking(threading.Thread):
    """An exchange in the background."""

    def __init__(self, fleet: FlowerFleet, sites: str, body: bytes, deadline: float = 30) -> None:
        super().__init__(daemon=True)
        self.found: dict[str, object] = {}
        self._ask = lambda: self.found.update(ask(fleet, sites, body, deadline))
        self.start()

    def run(self) -> None:
        self._ask()


def test_sites_are_known_by_their_keys(lab: Lab, fleet: FlowerFleet) -> None:
    nodes = {
        node.public_key: node for node in control.nodes(lab.address, certificates=lab.authority)
    }
    online = fleet.online()
    for name in ("a", "b"):
        assert online[name] == nodes[control.key_bytes(lab.keys[name])].id
    assert "c" not in online, "enrolled, and not there"


def test_answers_come_as_they_are_given(lab: Lab, fleet: FlowerFleet) -> None:
    lab.sites["a"].agent.gate.clear()
    exchange = fleet.exchange({"a": b"1", "b": b"2"}, 60)
    assert next(exchange) == ("b", lab.sites["b"].agent.echo(b"2"))
    lab.sites["a"].agent.gate.set()
    assert list(exchange) == [("a", lab.sites["a"].agent.echo(b"1"))]


def test_who_misses_the_deadline_is_not_given_and_its_reply_is_late(
    lab: Lab, fleet: FlowerFleet
) -> None:
    late, duplicates = fleet.late, fleet.duplicates
    lab.sites["a"].agent.gate.clear()
    assert ask(fleet, "a", b"slot 1", deadline=0.5) == {}
    lab.sites["a"].agent.gate.set()
    found = ask(fleet, "ab", b"slot 2")
    assert found == {name: lab.sites[name].agent.echo(b"slot 2") for name in "ab"}
    assert (fleet.late, fleet.duplicates) == (late + 1, duplicates)


def test_a_site_that_stays_silent_is_asked_again_and_answers_once(
    lab: Lab, fleet: FlowerFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may be lost between the SuperLink, which hands it out once, and the site."""
    monkeypatch.setattr(fleets, "SILENT", 1.5)
    agent, before = lab.sites["a"].agent, fleet.duplicates + fleet.late
    agent.asked.clear()
    agent.gate.clear()
    exchange = fleet.exchange({"a": b"long work", "b": b"2"}, 60)
    assert next(exchange)[0] == "b"
    threading.Timer(3.0, agent.gate.set).start()
    assert list(exchange) == [("a", agent.echo(b"long work"))]
    assert ask(fleet, "a", b"next") == {"a": agent.echo(b"next")}
    assert agent.asked.count(b"long work") > 1
    assert fleet.duplicates + fleet.late > before


def test_a_revoked_site_is_neither_listed_nor_heard(lab: Lab, fleet: FlowerFleet) -> None:
    lab.sites["a"].agent.gate.clear()
    exchange = fleet.exchange({"a": b"", "b": b""}, 60)
    assert next(exchange)[0] == "b"
    lab.revoked.add("a")
    lab.sites["a"].agent.gate.set()
    assert next(exchange) == ("a", Failure("it may no longer take part"))
    assert set(fleet.online()) == {"b"}
    assert fleet.unknown_nodes == 1


def test_a_site_cannot_speak_for_another(lab: Lab, fleet: FlowerFleet) -> None:
    lab.sites["a"].agent.answer = lab.sites["b"].agent.echo
    lab.sites["b"].agent.answer = lambda body: b"\x00 nonsense"
    found = ask(fleet, "ab")
    assert found["a"] == Failure("speaks for 'b'", broken=True)
    assert isinstance(found["b"], Failure) and found["b"].broken
    assert found["b"].reason.startswith("sends a malformed reply")


def test_a_reply_that_is_sent_twice_counts_once(fleet: FlowerFleet, intruder: Intruder) -> None:
    """Replayed as it was, given again in other words, and given once its time is over."""
    asking = Asking(fleet, "c", b"once")
    message = intruder.receive()
    reply = intruder.echo(message)
    assert len(intruder.send(reply)) == 3
    asking.join(30)
    assert json.loads(asking.found["c"]) == {"site": "c", "echo": "once"}  # type: ignore[arg-type]
    assert intruder.send(reply) == set(), "the SuperLink takes nothing more"
    assert intruder.send(intruder.echo(message)) == set()
    again = Asking(fleet, "c", b"twice")
    second = intruder.receive()
    assert body_of(second.content) == b"twice"
    assert intruder.send(reply) == set(), "nor as an answer to the next request"
    intruder.send(intruder.echo(second))
    again.join(30)
    assert json.loads(again.found["c"])["echo"] == "twice"  # type: ignore[arg-type]


def test_a_node_that_started_anew_is_asked_again_and_answers_once(
    fleet: FlowerFleet, intruder: Intruder
) -> None:
    duplicates, late = fleet.duplicates, fleet.late
    exchange = fleet.exchange({"b": b"", "c": b"work"}, 60)
    assert next(exchange)[0] == "b"
    first = intruder.receive()
    intruder.deactivate()  # while nobody looks
    intruder.activate()
    rest: list[tuple[str, bytes | Failure]] = []
    asking = threading.Thread(target=lambda: rest.extend(exchange), daemon=True)
    asking.start()
    second = intruder.receive()
    assert body_of(second.content) == body_of(first.content)
    intruder.send(intruder.echo(second))
    asking.join(60)
    assert [site for site, _ in rest] == ["c"]
    intruder.send(intruder.echo(first))
    ask(fleet, "a")
    assert (fleet.duplicates, fleet.late) == (duplicates + 1, late)


def test_replies_of_another_form_are_refused_and_hold_nobody_up(
    lab: Lab, fleet: FlowerFleet, intruder: Intruder
) -> None:
    for content, reason in (
        ({str(n): ConfigRecord({"x": n}) for n in range(5)}, "sends a reply of other parts"),
        ({"weights": ConfigRecord({"body": b""})}, "not one of fedkoopman's"),
    ):
        asking = Asking(fleet, "c", b"")
        intruder.send(Message(RecordDict(dict(content)), reply_to=intruder.receive()))
        asking.join(30)
        assert reason in str(asking.found["c"])

    lab.sites["a"].agent.gate.clear()
    exchange = fleet.exchange({"a": b"", "c": b""}, 60)
    lab.sites["a"].agent.answer = lambda body: answer_after(intruder, lab, body)
    lab.sites["a"].agent.gate.set()
    assert next(exchange) == ("a", lab.sites["a"].agent.echo(b""))
    exchange.close()
    lab.sites["a"].agent.calm()
    assert ask(fleet, "ab") == {name: lab.sites[name].agent.echo(b"hi") for name in "ab"}


def answer_after(intruder: Intruder, lab: Lab, body: bytes) -> bytes:
    """An answer that comes once the intruder has announced one, which it never sends."""
    intruder.announce(intruder.echo(intruder.receive()))
    return lab.sites["a"].agent.echo(body)


def test_a_node_cannot_use_anothers_number(
    lab: Lab, fleet: FlowerFleet, intruder: Intruder
) -> None:
    other = fleet.online()["a"]
    with pytest.raises(httpx.HTTPStatusError, match="401"):
        intruder.client.PullMessages(PullMessagesRequest(node=Node(node_id=other)))
    lab.sites["a"].agent.gate.clear()
    before = set(fleet._sent)
    asking = Asking(fleet, "a", b"secret")
    until(lambda: set(fleet._sent) > before)
    (message,) = set(fleet._sent) - before
    assert intruder.announce(forged(intruder, message, fleet)).objects_to_push == []
    lab.sites["a"].agent.gate.set()
    asking.join(30)
    assert asking.found == {"a": lab.sites["a"].agent.echo(b"secret")}


def forged(intruder: Intruder, message: str, fleet: FlowerFleet) -> Message:
    """A reply in the intruder's own name to a message that was sent to another."""
    about = Metadata(
        run_id=fleet._grid.run.run_id,
        message_id="",
        src_node_id=intruder.id,
        dst_node_id=fleet._grid.node.node_id,
        reply_to_message_id=message,
        group_id="",
        created_at=time.time(),
        ttl=10,
        message_type="query",
    )
    return make_message(metadata=about, content=content_of(b"{}"))


def test_a_node_that_is_killed_comes_back_at_once_under_its_number(
    lab: Lab, fleet: FlowerFleet
) -> None:
    """Flower alone would turn it away for a minute, as the dead one still counts as online."""
    site, number = lab.sites["a"], fleet.online()["a"]
    site.kill("node")
    site.start("node")
    assert ask(fleet, "ab", deadline=50) == {
        name: lab.sites[name].agent.echo(b"hi") for name in "ab"
    }
    assert fleet.online()["a"] == number


def test_a_node_that_is_shut_out_ends_and_cannot_return(lab: Lab, fleet: FlowerFleet) -> None:
    site = lab.sites["b"]
    keys = {name: key for name, key in lab.keys.items() if name != "b"}
    assert control.enrol(lab.address, keys, certificates=lab.authority)[1] == ["b"]
    until(lambda: site.running["node"].dead, 60)
    assert "b" not in fleet.online()
    del lab.sites["b"]
    site.stop()
    site.agent.stop()


def test_a_superlink_that_is_killed_ends_the_loop_and_the_sites_return(
    lab: Lab, fleet: FlowerFleet
) -> None:
    agent = lab.sites["a"].agent
    agent.gate.clear()
    asked = len(agent.asked)
    killing = threading.Thread(
        target=lambda: (until(lambda: len(agent.asked) > asked), lab.link.reap())
    )
    killing.start()
    with pytest.raises(LinkLost, match="the SuperLink does not answer"):
        list(fleet.exchange({"a": b""}, 60))
    killing.join()
    agent.gate.set()
    lab.superlink()
    lab.ready()
    with acquire_server_task(lab.address, lab.secret, certificates=lab.authority) as task:
        again = new_fleet(lab, task)
        assert "a" in again.online(), "nodes outlast the SuperLink"
        found = ask(again, "a", b"back", deadline=60)
        assert found == {"a": lab.sites["a"].agent.echo(b"back")}, lab.sites["a"].log("node")
