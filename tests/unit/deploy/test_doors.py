"""What a holder of one site's key can do to the server and to other sites: nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from unit.deploy.lab import Intruder, Lab, laboratory, status, until

from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower import link as links
from fedkoopman.deploy.flower.link import Letter, Link
from fedkoopman.deploy.flower.parcels import body_of, content_of, packed
from fedkoopman.deploy.flower.signing import Signer


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory(["a", "b", "c"], idle=["a", "b", "c"]) as opened:
        opened.fleet()
        yield opened


@pytest.fixture
def a(lab: Lab) -> Intruder:
    made = Intruder(lab, "a")
    made.activate()
    return made


@pytest.fixture
def b(lab: Lab) -> Intruder:
    made = Intruder(lab, "b")
    made.activate()
    return made


def send(lab: Lab, to: Intruder, body: bytes = b"hi", ttl: float = 60.0) -> str:
    [name] = lab.link.send([Letter(to.id, body, ttl)])
    assert name is not None
    return name


def held(lab: Lab) -> tuple[int, ...]:
    """How much the server keeps, of everything."""
    link, state = lab.link, lab.link._state
    return (
        len(link._awaited), len(link._open), len(state.message_ins_store),
        len(state.message_res_store), len(state.object_store), len(state._object_push_sessions),
        len(lab.front._busy), len(lab.front._bytes), len(state.nodes), link._arrived.qsize(),
    )  # fmt: skip


def test_a_site_cannot_spoil_another_sites_message_before_it_is_made(
    lab: Lab, a: Intruder, b: Intruder
) -> None:
    """Flower names an object by its content, and keeps the parts that it was first told of."""
    mine = send(lab, a)
    question = a.receive()
    reply = a.echo(question)
    expected = packed(flower.Message(content_of(b"next"), reply_to=question))
    records = expected.tree.children[0].object_id
    reply.tree.children[0].children[0].object_id = records  # as if it had no parts
    assert a.announce(reply).objects_to_push
    name = send(lab, b, b"next")
    assert body_of(b.receive().content) == b"next"
    lab.link.forget([mine, name])


def test_a_site_is_given_only_its_own_parts_and_confirms_only_its_own(
    lab: Lab, a: Intruder, b: Intruder
) -> None:
    theirs = send(lab, b)
    message = b.receive()
    run = message.metadata.run_id
    request = flower.PullObjectRequest(node=a.node, run_id=run, object_id=theirs)
    assert not a.client.PullObject(request).object_found
    confirmed = flower.ConfirmMessageReceivedRequest(
        node=a.node, run_id=run, message_object_id=theirs
    )
    assert status(lambda: a.client.ConfirmMessageReceived(confirmed)) == 403
    request = flower.PullObjectRequest(node=b.node, run_id=run, object_id=theirs)
    assert b.client.PullObject(request).object_found
    lab.link.forget([theirs])


def test_nothing_grows_when_a_site_repeats_itself(lab: Lab, a: Intruder) -> None:
    while lab.link.take(0) is not None:
        pass
    before = held(lab)
    names = [send(lab, a, b"%d" % n) for n in range(20)]
    assert len(lab.link._open[a.id]) == links.OPEN
    for _ in range(10):
        a.activate()
        a.deactivate()
        a.activate()
    assert lab.link._arrived.qsize() <= 1
    reply = a.echo(a.receive())
    for _ in range(10):
        a.announce(reply)
    spoilt = a.echo(a.receive())
    spoilt.tree.children[0].object_id = "not a hash"
    a.announce(spoilt)
    lab.link.forget(names)
    while lab.link.take(0) is not None:
        pass
    assert held(lab) == before


def test_a_message_is_not_delivered_or_answered_after_its_time(lab: Lab, a: Intruder) -> None:
    send(lab, a, ttl=0.3)
    message = a.receive()
    send(lab, a, ttl=0.3)
    time.sleep(0.4)
    assert status(lambda: a.announce(a.echo(message))) == 410
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(a.client.PullMessages, flower.PullMessagesRequest(node=a.node))
        until(lambda: a.id in lab.link._polls)
        lab.link._call(lab.link._polls[a.id].set)
        assert not poll.result().messages_list
    assert not lab.link._awaited


def test_a_later_poll_ends_an_earlier_one_and_gets_the_message(lab: Lab, a: Intruder) -> None:
    pull = flower.PullMessagesRequest(node=a.node)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(a.client.PullMessages, pull)
        until(lambda: a.id in lab.link._polls)
        held = lab.link._polls[a.id]
        second = pool.submit(a.client.PullMessages, pull)
        until(lambda: lab.link._polls.get(a.id) not in (held, None))
        assert not first.result().messages_list
        name = send(lab, a)
        assert len(second.result().messages_list) == 1
    lab.link.forget([name])


def test_parts_that_nobody_waits_for_are_refused_unread(lab: Lab, a: Intruder) -> None:
    """Only the head of the request is sent, and yet it is answered."""
    signer = a.client._interceptors[0]
    with socket.create_connection(("127.0.0.1", lab.port), timeout=5) as link:
        lines = [
            "POST /v1/fleet/push-object HTTP/1.1", "host: x", "content-length: 60000000",
            *(f"{k}: {v}" for k, v in signer.headers("/v1/fleet/push-object", b"").items()),
        ]  # fmt: skip
        link.sendall("\r\n".join([*lines, "", ""]).encode())
        assert link.recv(1000).startswith(b"HTTP/1.1 410")


def test_without_a_key_the_port_gives_nothing(lab: Lab) -> None:
    """As it is without a proxy: any user of the machine can connect to the port."""
    with httpx.Client(base_url=f"http://127.0.0.1:{lab.port}", trust_env=False) as client:
        for name in lab.link.paths:
            assert client.post(f"/v1/fleet/{name}", content=b"x").status_code == 412
        assert client.post("/").status_code == client.post("/v1/fleet/").status_code == 404
        assert client.get("/v1/fleet/pull-messages").status_code == 405


def test_a_clock_that_is_hours_off_is_told_once(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    site = lab.sites["c"]
    clock = [time.time() - 7200.0]
    signer = Signer(site.key, site.public, site.instance, clock=lambda: clock[0])
    client = lab.client("c")
    client._interceptors = (signer,)
    request = flower.ActivateNodeRequest(public_key=site.public, heartbeat_interval=30)
    node = flower.Node(node_id=client.ActivateNode(request).node_id)
    beat = flower.SendNodeHeartbeatRequest(node=node, heartbeat_interval=30)
    client.SendNodeHeartbeat(beat)
    lab.link.door.epoch = "started anew"
    client.SendNodeHeartbeat(beat)
    assert caplog.text.count("this machine's clock is 7200 s behind the server's") == 1
    clock[0] += 3600
    client.SendNodeHeartbeat(beat)
    assert caplog.text.count("this machine's clock is 3600 s behind the server's") == 1
    signer.offset += 61
    assert abs(signer.offset - 3600) > 60
    client.SendNodeHeartbeat(beat)  # refused, learnt anew, and accepted
    assert abs(signer.offset - 3600) < 5


def test_a_site_that_never_came_is_shut_out_and_let_in_again() -> None:
    link = Link(signed=True)
    assert link.enrol({"a": b"1", "b": b"2"}) == (["a", "b"], [])
    assert link.enrol({"b": b"2"}) == ([], ["a"])
    assert link.enrol({"a": b"1", "b": b"2"}) == (["a"], [])


def test_a_site_at_work_is_known_to_a_server_that_was_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with laboratory(["a"], idle=["a"]) as lab:
        keys = {"a": lab.sites["a"].public}
        lab.link.enrol(keys)
        site = lab.start("a")
        until(lambda: "a" in lab.link.nodes())
        site.agent.gate.clear()
        lab.link.send([Letter(lab.link.nodes()["a"].id, b"long work", 30.0)])
        until(lambda: bool(site.agent.asked))
        lab.link.enrol({})
        lab.link.enrol(keys)  # under another number, as by a new server
        assert not lab.link.nodes() and site.node is not None
        monkeypatch.setattr(site.stop, "wait", lambda seconds: site.stop.is_set())
        threading.Thread(target=site.node.beat, args=(site.stop,), daemon=True).start()
        until(lambda: "a" in lab.link.nodes())
        site.stop.set()


def test_a_node_of_an_earlier_start_is_told_to_announce_itself(lab: Lab, a: Intruder) -> None:
    a.id += 1
    pull = flower.PullMessagesRequest(node=a.node)
    assert status(lambda: a.client.PullMessages(pull)) == 428
