"""Requests at the server's end: who is let in, what is read before, and what is never kept."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from unit.deploy.lab import Intruder, Lab, laboratory, status, until

from fedkoopman.deploy.flower import front as fronts
from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower import link as links
from fedkoopman.deploy.flower.link import Letter
from fedkoopman.deploy.flower.signing import EPOCH, Signer


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory(["a", "b"], idle=["a", "b"]) as opened:
        opened.fleet()  # enrols them
        yield opened


@pytest.fixture(scope="module")
def a(lab: Lab) -> Intruder:
    made = Intruder(lab, "a")
    made.activate()
    return made


def signed(lab: Lab, path: str, body: bytes, name: str = "a") -> dict[str, str]:
    site = lab.sites[name]
    signer = Signer(site.key, site.public, site.instance)
    signer._epoch = lab.link.door.epoch
    return signer.headers(path, body)


def answer(
    lab: Lab, path: str, headers: dict[str, str], length: str, body: bytes = b"", verb: str = "POST"
) -> bytes:
    """What a request of our own making gets; its body may be shorter than announced."""
    lines = [f"{verb} {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    lines += [f"Content-Length: {length}"] if length else []
    with socket.create_connection(("127.0.0.1", lab.port), timeout=10) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return connection.recv(4096)


def code(found: bytes) -> int:
    return int(found.split(b" ", 2)[1])


def test_a_body_is_not_waited_for_where_the_sender_has_no_key(lab: Lab) -> None:
    path, huge = "/v1/fleet/push-object", str(60 * 2**20)
    assert code(answer(lab, path, {}, huge)) == 412
    good = signed(lab, path, b"x")
    assert code(answer(lab, path, {**good, "x-fedkoopman-signature": "AAAA"}, huge)) == 401
    assert code(answer(lab, path, good, str(10**9))) == 413
    assert code(answer(lab, path, signed(lab, path, b"x"), "")) == 411
    assert code(answer(lab, "/v1/fleet/pull-messages", signed(lab, path, b""), huge)) == 401
    small = "/v1/fleet/pull-messages"
    assert code(answer(lab, small, signed(lab, small, b""), str(2**21))) == 413


def test_only_sites_paths_are_served(lab: Lab) -> None:
    for path in ("/", "/health", "/v1/control/start-run", "/v1/fleet/register-node", "/v1/fleet/"):
        assert code(answer(lab, path, {}, "0")) == 404
    assert code(answer(lab, "/v1/fleet/pull-messages", {}, "0", verb="GET")) == 405


def test_another_body_than_was_signed_is_refused(lab: Lab) -> None:
    path = "/v1/fleet/activate-node"
    assert code(answer(lab, path, signed(lab, path, b"one"), "3", b"two")) == 401
    assert code(answer(lab, path, signed(lab, path, b"\xff\xff"), "2", b"\xff\xff")) == 400


def test_every_request_that_is_sent_again_is_refused(lab: Lab, a: Intruder) -> None:
    """At every path, as it was: over HTTP, with all its headers."""
    heard: list[tuple[str, dict[str, str], bytes]] = []

    class Ear:
        def intercept(self, context: Any, call_next: Any) -> Any:
            request = context.request
            found = call_next(context)
            headers = {k: v for k, v in request.headers.items() if k.startswith("x-fedkoopman")}
            heard.append((request.url.path, headers, request.content))
            return found

    a.client._interceptors = (*a.client._interceptors, Ear())
    lab.link.send([Letter(a.id, b"question", 30.0)])
    message = a.receive()
    a.client.ConfirmMessageReceived(
        flower.ConfirmMessageReceivedRequest(
            node=a.node, run_id=message.metadata.run_id,
            message_object_id=message.metadata.message_id,
        )
    )  # fmt: skip
    a.send(a.echo(message))
    a.client.SendNodeHeartbeat(flower.SendNodeHeartbeatRequest(node=a.node, heartbeat_interval=30))
    a.deactivate()
    a.activate()
    assert {path.rpartition("/")[2] for path, _, _ in heard} == set(lab.link.paths)
    before = dict(lab.front.requests)
    for path, headers, body in heard:
        found = answer(lab, path, headers, str(len(body)), body)
        assert code(found) == 401 and b"this request was sent before" in found
    assert dict(lab.front.requests) == before, "none of them reached a handler"
    assert lab.link.nodes()["a"].id == a.id
    a.client._interceptors = a.client._interceptors[:-1]


def test_a_site_cannot_use_anothers_node(
    lab: Lab, a: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HOLD", 0.2)
    other = Intruder(lab, "b")
    other.activate()
    [name] = lab.link.send([Letter(other.id, b"secret", 30.0)])
    theirs, run = flower.Node(node_id=other.id), lab.link._run
    requests = {
        "PullMessages": flower.PullMessagesRequest(node=theirs),
        "SendNodeHeartbeat": flower.SendNodeHeartbeatRequest(node=theirs, heartbeat_interval=30),
        "DeactivateNode": flower.DeactivateNodeRequest(node_id=other.id),
        "PullObject": flower.PullObjectRequest(node=theirs, run_id=run, object_id="f" * 64),
        "PushMessages": flower.PushMessagesRequest(node=theirs),
        "PushObject": flower.PushObjectRequest(node=theirs, run_id=run, object_id="f" * 64),
        "ConfirmMessageReceived": flower.ConfirmMessageReceivedRequest(node=theirs, run_id=run),
        "ActivateNode": flower.ActivateNodeRequest(public_key=other.key, heartbeat_interval=30),
    }
    for method, request in requests.items():
        call = getattr(a.client, method)
        assert status(lambda call=call, request=request: call(request)) == 403  # type: ignore[misc]
    mine = flower.ConfirmMessageReceivedRequest(node=a.node, run_id=run, message_object_id=name)
    assert status(lambda: a.client.ConfirmMessageReceived(mine)) == 403
    forged = other.echo(other.receive())
    for source in (a.id, other.id):
        forged.message.metadata.__dict__["_src_node_id"] = source
        assert status(lambda: a.announce(forged)) == 403
    assert other.client.PullMessages(flower.PullMessagesRequest(node=theirs)) is not None
    lab.link.forget([str(name)])


def test_a_second_machine_with_the_same_key_waits_until_the_first_is_gone(
    lab: Lab, a: Intruder
) -> None:
    copy = Intruder(lab, "a", instance="another-machine".ljust(32, "-"))
    assert status(copy.activate) == 412
    a.deactivate()
    assert copy.activate() == a.id
    pull = flower.PullMessagesRequest(node=a.node)
    assert status(lambda: a.client.PullMessages(pull)) == 412
    copy.deactivate()
    a.activate()


def test_a_poll_is_held_until_there_is_something_to_tell(lab: Lab, a: Intruder) -> None:
    before, began = lab.front.requests["pull-messages"], time.monotonic()
    threading.Timer(0.5, lambda: lab.link.send([Letter(a.id, b"now", 30.0)])).start()
    message = a.receive()
    assert 0.4 < time.monotonic() - began < 5.0
    assert lab.front.requests["pull-messages"] == before + 1, "an idle node does not ask again"
    lab.link.forget([message.metadata.message_id])


def test_a_message_is_not_given_to_a_poll_that_nobody_listens_to(lab: Lab, a: Intruder) -> None:
    path = "/v1/fleet/pull-messages"
    body = flower.PullMessagesRequest(node=a.node).SerializeToString()
    headers = {**signed(lab, path, body), "Content-Length": str(len(body))}
    lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
    connection = socket.create_connection(("127.0.0.1", lab.port), timeout=10)
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    until(lambda: a.id in lab.link._polls)
    connection.close()
    until(lambda: a.id not in lab.link._polls)
    [name] = lab.link.send([Letter(a.id, b"kept", 30.0)])
    assert a.receive().metadata.message_id == name
    lab.link.forget([str(name)])


def test_too_many_requests_of_one_site_are_refused_and_others_go_on(
    lab: Lab, a: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "PATIENCE", 1.0)
    path, slow = "/v1/fleet/push-object", []
    for _ in range(fronts.AT_ONCE):
        headers = {**signed(lab, path, b"xx"), "Content-Length": "2"}
        lines = [f"POST {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in headers.items())]
        slow.append(socket.create_connection(("127.0.0.1", lab.port), timeout=10))
        slow[-1].sendall("\r\n".join([*lines, "", ""]).encode() + b"x")
    until(lambda: lab.front._busy[a.key] == fronts.AT_ONCE)
    beat = flower.SendNodeHeartbeatRequest(node=a.node, heartbeat_interval=30)
    assert status(lambda: a.client.SendNodeHeartbeat(beat)) == 503
    Intruder(lab, "b").activate()
    for connection in slow:
        assert code(connection.recv(1000)) == 408
        connection.close()
    until(lambda: not lab.front._busy)
    a.client.SendNodeHeartbeat(beat)


def test_a_restarted_server_is_found_again(lab: Lab, a: Intruder) -> None:
    lab.link.door.epoch = "another start"
    answered = answer(lab, "/v1/fleet/pull-messages", {}, "0")
    assert f"{EPOCH}: another start".encode() in answered
    a.activate()


def test_large_replies_come_whole_and_larger_ones_do_not(
    lab: Lab, a: Intruder, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedkoopman.deploy.flower.parcels import body_of, content_of, unpacked

    body = bytes(5_000_000)
    [name] = lab.link.send([Letter(a.id, b"much", 30.0)])
    a.send(a.echo(a.receive(), content=content_of(body)))
    while (found := lab.link.take(10)) is None or found[0] != name:
        pass
    _, reply, parts = found
    assert body_of(unpacked(reply, parts).content) == body  # type: ignore[arg-type]
    monkeypatch.setattr(fronts, "LARGEST", 100_000)
    [name] = lab.link.send([Letter(a.id, b"too much", 30.0)])
    assert status(lambda: a.send(a.echo(a.receive(), content=content_of(body)))) == 413
    lab.link.forget([str(name)])
    state = lab.link._state
    assert len(state.object_store) == 0 and not state._object_push_sessions
