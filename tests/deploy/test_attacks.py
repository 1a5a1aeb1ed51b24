"""Attacks on a running federation: each is refused, each leaves a line in a log, and the honest
sites' model becomes what it would have become without them."""

import hashlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load_file, save

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.deploy.flower import internals as flower
from fedkoopman.deploy.flower.programs import environment, node_command
from fedkoopman.deploy.flower.signing import DIGEST, ONCE, SIGNATURE, TIME, Signer, digest_of
from fedkoopman.deploy.provisioning.kit import FORMAT, MAGIC, PLAIN, open_kit
from fedkoopman.deploy.provisioning.provision import provision
from fedkoopman.deploy.provisioning.proxy import find_nginx
from fedkoopman.deploy.site.site_socket import LENGTH, ask
from fedkoopman.deploy.wire import (
    LARGEST,
    Envelope,
    Refused,
    decode_replies,
)
from fedkoopman.errors import InputError

from .attacked import BEHIND, HONEST, LYING, Field, honest_study, status_of
from .eavesdropper import Overheard
from .federation import COMPILER, PROGRAM, children, small_study, wait_until
from .lies import COUNTS, GATING, UPDATES
from .outsiders import (
    NOBODY,
    fleet_client,
    fresh_key,
    impostor,
    listening,
    other_authority,
    reached,
    refusal,
    shown,
    signer,
)

pytestmark = pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed")
HEARTBEAT = 30.0
LOOPBACK = r"socket\.\w+ (\('(127\.0\.0\.1|::1)'|'(127\.0\.0\.1|::1|localhost)'|None|b?'/)"
FLEET = "/v1/fleet/"
PATHS = {
    f"{FLEET}{name}"
    for name in (
        "activate-node", "deactivate-node", "send-node-heartbeat", "pull-messages", "pull-object",
        "confirm-message-received", "push-messages", "push-object",
    )
}  # fmt: skip
"""All that sites ask for."""
HEARTBEATS, PUSH = f"{FLEET}send-node-heartbeat", f"{FLEET}push-object"
MIB = 2**20
NODE_ENDED = "node ended with status 0; it is started again"
"""As one of them is asked to."""


@pytest.fixture(scope="module")
def field(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Field]:
    # Every lie takes a slot, and after three of them one more; other attacks take 18, and a last
    # slot is without the revoked site.
    lies = sum("test_lies" in item.nodeid for item in request.session.items)
    with Field(tmp_path_factory.mktemp("attacked") / "field", 19 + lies + lies // 3) as field:
        yield field


# At the public port.


def test_only_the_public_port_faces_the_world(field: Field) -> None:
    processes = [process.pid for process in field.federation.processes.values()]
    everyone = [pid for process in processes for pid in (process, *children(process))]
    doors = listening(everyone)
    assert {port for host, port in doors if host != "127.0.0.1"} == {field.port}
    assert {port for _, port in doors} == {field.port, field.metrics}


def test_secrets_are_for_their_owners_eyes(field: Field) -> None:
    closed = [field.fleet, field.out / "server", *map(field.federation.state, HONEST)]
    closed += [field.server_socket.parent, field.agent_socket("lab-a").parent]
    assert {path.stat().st_mode & 0o777 for path in closed} == {0o700}
    names = ["ca.key", "server.key", "codes.txt", "kits/lab-a.kit", "roster.json"]
    files = [*(field.fleet / name for name in names), field.kit("lab-a") / "node.key"]
    files += [field.server_socket, field.agent_socket("lab-a")]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_plaintext(field: Field) -> None:
    with fleet_client(field.port, None, field.signer("lab-a")) as client:
        request = flower.PullMessagesRequest(node=_node(field, "lab-a"))
        assert refusal(lambda: client.PullMessages(request)) == 400
    field.logged('"POST /v1/fleet/pull-messages HTTP/1.1" 400')
    with socket.create_connection(("127.0.0.1", field.port), timeout=10) as link:
        link.sendall(b"\x00\x01 hello \r\n\r\n")
        assert b"200" not in link.recv(100)


def test_another_authority(field: Field, tmp_path: Path) -> None:
    other = other_authority(tmp_path)
    with (
        fleet_client(field.port, other, field.signer("lab-a")) as client,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.PullMessages(flower.PullMessagesRequest())
    # A site that is led to a server with another's certificate tells it nothing.
    with impostor(other) as (port, heard):
        command = node_command(
            server=f"127.0.0.1:{port}", site="lab-a", socket=tmp_path / "agent",
            authority=field.kit("lab-a") / "ca.crt", key=field.kit("lab-a") / "node.key",
            memory=tmp_path / "node.json",
        )  # fmt: skip
        log = tmp_path / "node.log"
        with log.open("wb") as file:
            env = {**field.federation.env, **environment()}
            node = subprocess.Popen(command, stdout=file, stderr=file, env=env)
        try:
            wait_until(lambda: b"as its certificate shows" in log.read_bytes(), 60, "a refusal")
        finally:
            node.kill()
            node.wait()
        assert heard == []


def test_unknown_key(field: Field) -> None:
    key = fresh_key()
    pull = flower.PullMessagesRequest(node=_node(field, "lab-a"))
    with field.client(signer(key)) as client:
        activation = _activation(shown(key))
        assert refusal(lambda: client.ActivateNode(activation)) == 412
        assert refusal(lambda: client.PullMessages(pull)) == 412
    with field.client(signer(key, public=field.signer("lab-a").public)) as client:
        assert refusal(lambda: client.PullMessages(pull)) == 401  # its key, another's signature
    with field.client(None) as client:
        assert refusal(lambda: client.PullMessages(pull)) == 412
    field.logged('"POST /v1/fleet/activate-node HTTP/1.1" 412')
    field.logged('"POST /v1/fleet/pull-messages HTTP/1.1" 401')
    field.logged("refused activate-node of somebody: no site that may take part", "loop")
    field.logged("refused pull-messages of somebody: the signature does not fit", "loop")


def test_signatures_that_do_not_fit(field: Field) -> None:
    mine, path = field.signer(LYING), f"{FLEET}send-node-heartbeat"
    body = _heartbeat(field, LYING)
    with field.client(mine) as client:  # so it knows the server's time and epoch
        client.SendNodeHeartbeat(body)
    content = body.SerializeToString()

    def answer(headers: Mapping[str, str], to: str = path, content: bytes = content) -> int:
        return field.post(to, content, headers)

    def later(seconds: float) -> dict[str, str]:
        mine.offset += seconds
        try:
            return mine.headers(path, content)
        finally:
            mine.offset -= seconds

    assert answer(later(-65)) == 401  # as of a request that was held back
    assert answer(later(65)) == 401
    good = mine.headers(path, content)
    assert answer(good | {TIME: later(1)[TIME]}) == 401
    assert answer(good | {ONCE: "0" * 32}) == 401
    assert answer(good | {SIGNATURE: ""}) == 401
    assert answer(good | {SIGNATURE: "AAAA"}) == 401
    assert answer(good, to=f"{FLEET}deactivate-node") == 401
    assert answer(good | {DIGEST: digest_of(b"other")}, content=b"other") == 401
    assert answer(good) == 200
    assert answer(good) == 401
    assert answer(mine.headers(path, content), content=b"other") == 401
    for what in ("the signature does not fit", "this request was sent before"):
        field.logged(f"refused send-node-heartbeat of somebody: {what}", "loop")
    field.logged(f"send-node-heartbeat of {LYING}: the signature is for another body", "loop")
    field.logged('"POST /v1/fleet/send-node-heartbeat HTTP/1.1" 401')


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/control/list-runs",
        "/v1/control/register-node",
        "/v1/runtime/acquire-task",
        "/health",
        "/openapi.json",
        "//v1/control/list-runs",
        "/./v1/./control/list-runs",
        "/V1/Control/list-runs",
        "/v1/fleet/../control/list-runs",
        "/v1/fleet/pull-messages/../../control/list-runs",
        "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/..%2fcontrol%2flist-runs",
        "/v1/fleet/%252e%252e/control/list-runs",
        "/v1/fleet/\\..\\control\\list-runs",
        "/v1/fleet/;/../../control/list-runs",
        "/v1/fleet/pull-messages%3f/../../control/list-runs",
        "https://localhost/v1/control/list-runs",
        "/v1/fleet/no-such-thing",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/get-run",
        "/v1/fleet/get-fab",
    ],
)
def test_other_paths_through_the_public_port(field: Field, path: str) -> None:
    assert field.post(path) == 404
    field.logged(f'"POST {path.replace(chr(92), chr(92) + "x5C")} HTTP/1.1" 404')


def test_a_second_request_hidden_behind_the_first(field: Field) -> None:
    hidden = b"POST /v1/control/list-runs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
    first = field.head(10).replace(b"close", b"keep-alive") + b"x" * 10
    answers = field.send(first + hidden + b"Connection: close\r\n\r\n")
    assert answers.startswith(b"HTTP/1.1 4") and b"HTTP/1.1 404" in answers
    for both in ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"):
        assert status_of(field.send(field.head(3, both) + b"0\r\n\r\n")) == 400


def test_oversized_messages(field: Field) -> None:
    assert status_of(field.send(field.head(66 * MIB), first=True)) == 413
    field.logged("client intended to send too large body")
    assert status_of(field.send(field.head(10**30))) == 400
    assert status_of(field.send(field.head(-5))) == 400
    with field.tls() as link:
        link.sendall(field.head(None, signed=_ready(field, LYING).headers(PUSH, b"")))
        assert status_of(link.recv(1000)) == 411  # whose length is not told is not waited for
    assert status_of(field.send(b"POST / HTTP/1.1\r\nA: " + b"b" * 100_000 + b"\r\n\r\n")) == 400
    too_large = _ready(field, LYING).headers(f"{FLEET}pull-messages", b"")
    head = field.head(2 * MIB, signed=too_large).replace(b"push-object", b"pull-messages")
    assert status_of(field.send(head, first=True)) == 413


@pytest.mark.parametrize(
    "who",
    [
        "nobody",
        pytest.param("a wrong signature", marks=pytest.mark.deploy),
        pytest.param("a site that was not asked", marks=pytest.mark.deploy),
    ],
)
def test_large_bodies_are_refused_before_they_are_read(field: Field, who: str) -> None:
    """12 of 60 MiB at once: they are answered, and the server takes no more memory for them."""
    body, signing = bytes(60 * MIB), _ready(field, LYING)
    signed: dict[str, str] = {} if who == "nobody" else signing.headers(PUSH, body)
    if who == "a wrong signature":
        signed[SIGNATURE] = signer(fresh_key()).headers(PUSH, body)[SIGNATURE]

    def sent(_: int) -> int:
        if who == "a site that was not asked":
            return _poured(field, signing.headers(PUSH, body), body)
        return _poured(field, signed, body)

    before = field.memory(reset=True)
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(sent, range(12)))
    expected = {"nobody": 412, "a wrong signature": 401, "a site that was not asked": 410}
    assert answers == [expected[who]] * 12
    assert field.memory() - before < 40


def _poured(field: Field, signed: Mapping[str, str], body: bytes) -> int:
    """The answer to a body, all of which is sent if the other side takes it."""
    with field.tls(60) as link:
        link.sendall(field.head(len(body), signed=signed))
        with suppress(OSError):
            for start in range(0, len(body), MIB):
                link.sendall(body[start : start + MIB])
        return status_of(link.recv(1000))


@contextmanager
def _slow_bodies(field: Field, count: int) -> Iterator[list[ssl.SSLSocket]]:
    """Signed requests whose bodies do not come."""
    signing, path = _ready(field, LYING), f"{FLEET}push-messages"
    with ExitStack() as stack:
        links = [stack.enter_context(field.tls(60)) for _ in range(count)]
        for link in links:
            head = field.head(1000, signed=signing.headers(path, b"x" * 1000))
            link.sendall(head.replace(b"push-object", b"push-messages") + b"x")
        yield links


def test_bodies_that_never_end_hold_nobody_up(field: Field) -> None:
    """Nobody's are not waited for; of one key only so many are."""
    with field.tls() as link:
        link.sendall(field.head(10**6) + b"x")
        assert status_of(link.recv(1000)) == 412
    with _slow_bodies(field, 12) as links, field.client(field.signer("lab-a")) as other:
        other.SendNodeHeartbeat(_heartbeat(field, "lab-a"))
        answered = list[int]()

        def heard() -> bool:
            for link in list(links):
                link.settimeout(0.05)
                with suppress(TimeoutError):
                    answered.append(status_of(link.recv(1000)))
                    links.remove(link)
            return len(answered) >= 4

        wait_until(heard, 20, "refusals")
        assert set(answered) == {503}
    field.logged(f"refused push-messages of {LYING}: more than 8 requests", "loop")
    field.go_on()


@pytest.mark.deploy
@pytest.mark.parametrize("trickle", [False, True])
def test_bodies_that_never_end_are_cut_off(field: Field, trickle: bool) -> None:
    with _slow_bodies(field, 1) as [link]:
        link.settimeout(0.5)
        began, answer = time.monotonic(), b""
        while not answer and time.monotonic() - began < 60:
            with suppress(TimeoutError):
                answer = link.recv(1000)
                break
            if trickle:
                link.sendall(b"x")
        assert status_of(answer) == 408 or not answer
        assert time.monotonic() - began < 45
    field.logged('"POST /v1/fleet/push-messages HTTP/1.1" 408')


# With a site's own key, or with what it once sent.


def test_whatever_a_site_sent_counts_once(field: Field) -> None:
    """Every kind of request that a site sends, sent again as it was, and with other content."""
    node = field.federation.pid("lab-a", "node")
    os.kill(node, signal.SIGTERM)  # it says goodbye, and is started again
    heard = field.eavesdropper
    wait_until(lambda: {one.path for one in heard.heard} >= PATHS, 60, "every kind of request")
    wait_until(lambda: field.federation.pid("lab-a", "node") != node, 60, "a new node")
    field.go_on()
    before = field.site("lab-a")
    requests = {path: heard.last(path) for path in PATHS}
    for path, one in requests.items():
        for _ in range(2):
            assert _again(field, one.content) == 401, path
        other = requests[f"{FLEET}pull-messages" if "heartbeat" in path else HEARTBEATS]
        assert _again(field, one.content.replace(path.encode(), other.path.encode(), 1)) == 401
        anew = re.sub(rb"(x-fedkoopman-once: )\w{4}", rb"\g<1>0000", one.content)
        assert _again(field, anew) == 401, path
    field.logged("of somebody: this request was sent before", "loop")
    assert field.site("lab-a") == before
    field.go_on()
    after = field.site("lab-a")
    assert after["trained_samples"] == 300 * after["updates"]
    assert after["updates"] == before["updates"] + 1


def _again(field: Field, content: bytes) -> int:
    return status_of(field.send(content.replace(b"keep-alive", b"close"), first=True))


def test_requests_in_the_name_of_another_site(field: Field) -> None:
    """By a site with a key of its own: whatever it asks for, it can only speak for itself."""
    theirs, mine = _node(field, "lab-a"), _node(field, LYING)
    heard = flower.PushMessagesRequest.FromString(_pushed(field).body)
    run = heard.messages_list[0].metadata.run_id
    question = heard.messages_list[0].metadata.reply_to_message_id
    with field.client(field.signer(LYING)) as client:
        calls = {
            "deactivate-node": lambda node: client.DeactivateNode(
                flower.DeactivateNodeRequest(node_id=node.node_id)
            ),
            "send-node-heartbeat": lambda node: client.SendNodeHeartbeat(
                flower.SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT)
            ),
            "pull-messages": lambda node: client.PullMessages(
                flower.PullMessagesRequest(node=node)
            ),
            "pull-object": lambda node: client.PullObject(
                flower.PullObjectRequest(node=node, run_id=run, object_id=question)
            ),
            "confirm-message-received": lambda node: client.ConfirmMessageReceived(
                flower.ConfirmMessageReceivedRequest(
                    node=node, run_id=run, message_object_id=question
                )
            ),
            "push-messages": lambda node: client.PushMessages(heard),
        }
        for name, call in calls.items():
            assert refusal(lambda call=call: call(theirs)) == 403, name
            field.logged(f"refused {name} of {LYING}: the request names the node of lab-a", "loop")
        activation = _activation(field.signer("lab-a").public)
        assert refusal(lambda: client.ActivateNode(activation)) == 403
        field.logged(f"refused activate-node of {LYING}: another key", "loop")
        field.logged('"POST /v1/fleet/push-messages HTTP/1.1" 403')
        # Under its own name, in another's affairs.
        assert not calls["pull-object"](mine).object_found
        assert refusal(lambda: calls["confirm-message-received"](mine)) in (0, 403)  # if it is old
        forged = flower.PushMessagesRequest()
        forged.CopyFrom(heard)
        forged.node.node_id = mine.node_id
        about = forged.messages_list[0].metadata
        assert refusal(lambda: client.PushMessages(forged)) == 403
        field.logged(f"refused push-messages of {LYING}: the message speaks for another", "loop")
        about.src_node_id = mine.node_id
        for asked in (question, "f" * 64):  # nobody waits for these, or not for its reply
            about.reply_to_message_id = asked
            assert refusal(lambda: client.PushMessages(forged)) in (403, 410)
    field.go_on()


def _pushed(field: Field) -> Overheard:
    return field.eavesdropper.last(f"{FLEET}push-messages")


def test_a_copied_kit_on_another_machine(field: Field) -> None:
    """While the site is there, the thief is not let in, and does not disturb it."""
    before = field.node("lab-a")
    with field.client(field.signer("lab-a", copied=False)) as thief:
        assert refusal(lambda: thief.ActivateNode(_activation(field.signer("lab-a").public))) == 412
        pull = flower.PullMessagesRequest(node=_node(field, "lab-a"))
        assert refusal(lambda: thief.PullMessages(pull)) == 412
        assert refusal(lambda: thief.SendNodeHeartbeat(_heartbeat(field, "lab-a"))) == 412
    field.logged("refused activate-node of lab-a: another machine uses this site's key", "loop")
    field.go_on()
    assert field.node("lab-a") == before


def _node(field: Field, lab: str) -> Any:
    return flower.Node(node_id=field.node(lab))


def _activation(public: bytes) -> Any:
    return flower.ActivateNodeRequest(public_key=public, heartbeat_interval=HEARTBEAT)


def _heartbeat(field: Field, lab: str) -> Any:
    return flower.SendNodeHeartbeatRequest(node=_node(field, lab), heartbeat_interval=HEARTBEAT)


def _ready(field: Field, lab: str) -> Signer:
    """Signs as a site, and knows the server's time and epoch."""
    found = field.signer(lab)
    with field.client(found) as client:
        client.SendNodeHeartbeat(_heartbeat(field, lab))
    return found


# From a site whose clock is wrong.


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler, for a clock of its own")
def test_a_clock_that_is_hours_off(field: Field) -> None:
    """lab-c takes part like the others, and is told once."""
    log = field.site_log("lab-c", "node")
    assert f"this machine's clock is {-BEHIND} s behind the server's" in log
    assert log.count("this machine's clock is") == 1
    assert "this machine's clock" not in field.site_log("lab-a", "node")


# From a site that lies.


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in GATING else pytest.mark.deploy)
        for name in (*UPDATES, *COUNTS)
    ],
)
def test_lies(field: Field, name: str) -> None:
    lie, told = (UPDATES | COUNTS)[name]
    assert told in field.lie(lie, early=name in COUNTS)


def test_an_old_reply_sent_again(field: Field) -> None:
    """The site has answered so before, honestly as far as anyone can tell: for another slot."""
    if not field.liar.truths:
        field.lie(UPDATES["samples"][0])
    old = field.liar.truths[-1]
    assert "answers for slot" in field.lie(lambda *_: old)


def test_a_site_that_keeps_lying_is_set_aside(field: Field) -> None:
    while not field.site(LYING)["set_aside"]:
        field.lie(UPDATES["not-a-number"][0])
    about = field.site(LYING)
    assert about["strikes"] == 3
    field.logged(f"SET ASIDE: site {LYING}, after 3 rejections in a row", "loop")
    truths = len(field.liar.truths)
    field.go_on()
    assert len(field.liar.truths) == truths  # it is not asked
    assert field.site(LYING)["rejected"] == about["rejected"]
    shown = field.federation.run("status", str(field.out))
    assert "SET ASIDE" in shown and f"last rejection: {LYING} {about['last_rejection']}" in shown
    text = httpx.get(f"http://127.0.0.1:{field.metrics}/metrics", trust_env=False).text
    assert f'fedkoopman_site_rejected_total{{site="{LYING}"}} {about["rejected"]}' in text
    assert f'fedkoopman_site_set_aside{{site="{LYING}"}} 1' in text


# At a site, where the data are.


def _asking(field: Field, *said: object, **about: object) -> bytes:
    """A message such as the server's, with anything in it."""
    study = Study.load(field.federation.study)
    envelope = {**vars(Envelope(study.seeded_digest())), **about}
    header = json.dumps({"envelope": envelope, "said": said}).encode()
    return len(header).to_bytes(4, "big") + header + save({})


def test_there_is_no_request_for_data(field: Field) -> None:
    door, before = field.agent_socket("lab-c"), field.federation.accounts("lab-c")
    kinds = ["observations", "states", "read", "file", "ledger", "run", "eval", "__class__", ""]
    bodies = [_asking(field, {"kind": kind, "slot": 1, "path": "data"}) for kind in kinds]
    bodies += [
        _asking(field, {"kind": "poll", "slot": 1, "raw": True}),
        _asking(field, {"kind": "poll", "slot": "../../data/swing-01.csv"}),
        _asking(field, {"kind": "poll", "slot": 10**12}),
        _asking(field, {"kind": "train", "slot": 1, "model": ["encoder.0"]}),
        _asking(field, *[{"kind": "poll", "slot": 1}] * 9),
        _asking(field, {"kind": "poll", "slot": 1}, study="another:0"),
        _asking(field, {"kind": "poll", "slot": 1}, version="0.0.0"),
        _asking(field, {"kind": "poll", "slot": 1}, protocol=99),
        b"\x80\x04\x95cos\nsystem\n",
        b"GET /data HTTP/1.1\r\n\r\n",
        b"",
    ]
    for body in bodies:
        _, [reply] = decode_replies(ask(door, body, timeout=10))
        assert isinstance(reply, Refused), body
    field.site_logged("lab-c", "refused a message of 0 bytes")
    log = field.site_log("lab-c")
    assert log.count("refused a message of") + log.count("is refused") >= len(bodies)
    assert "there is no request or reply 'observations'" in log
    assert field.federation.accounts("lab-c") == before
    field.go_on()


def test_oversized_message_at_the_agent(field: Field) -> None:
    for length in (LARGEST + 1, 2**63):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(10)
            link.connect(str(field.agent_socket("lab-c")))
            link.sendall(LENGTH.pack(length) + b"x")
            with suppress(ConnectionResetError):
                assert link.recv(10) == b""
        field.site_logged("lab-c", f"refused: a message of {length:,} bytes is announced")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_of_the_machine(field: Field) -> None:
    """He reaches nothing: neither sockets, nor keys, data, state or results, if the way is open."""
    doors = [field.server_socket, *(field.agent_socket(lab) for lab in HONEST)]
    places = [field.fleet, field.out, *(field.federation.state(lab).parent for lab in HONEST)]
    private = [path for place in places for path in (place, *place.rglob("*"))]
    for wanted in ("ca.key", "lab-a.kit", "roster.json", "node.key", "store.sqlite", "status.json"):
        assert any(path.name == wanted for path in private), wanted
    control = field.folder / "study.toml"
    with _open_to_all([*doors, control / "x"]):
        assert reached([control, *doors, *private]) == [f"rb {control}"]
    door = field.agent_socket("lab-c")
    with _open_to_all([door / "x"]):  # were it not the directory that keeps him out, it is the file
        assert reached([door]) == []
        door.chmod(0o666)  # were it not the file either, it is the agent, whom the system tells
        try:
            assert reached([door]) == [f"connect {door}"]
            field.site_logged("lab-c", f"refused: user {NOBODY} (process")
        finally:
            door.chmod(0o600)


@contextmanager
def _open_to_all(paths: list[Path]) -> Iterator[None]:
    """Let everybody enter the directories above those in which some paths are."""
    above = {parent for path in paths for parent in list(path.parents)[1:-1] if parent.is_dir()}
    modes = {parent: parent.stat().st_mode & 0o7777 for parent in above}
    try:
        for parent, mode in modes.items():
            parent.chmod(mode | 0o011)
        yield
    finally:
        for parent, mode in modes.items():
            parent.chmod(mode)


def test_names_that_lead_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "field"
    study = small_study(folder)
    names = [
        "../evil",
        "..",
        "/etc/evil",
        "a/b",
        "a\\b",
        ".ssh",
        "-rf",
        "a\nb",
        "a\x00b",
        "",
        "a b",
    ]
    for name in names:
        with pytest.raises(InputError, match="site"):
            provision(study, [name])
    assert not (folder / "fleet").exists()
    refused = _fedkoopman("provision", str(study), "--sites", "../evil", "--insecure")
    assert refused.returncode == 2 and "'../evil'" in refused.stderr
    text = (folder / "lab-a" / "site.toml").read_text().replace('"lab-a"', '"../../evil"')
    (folder / "lab-a" / "site.toml").write_text(text)
    refused = _fedkoopman("join", str(folder / "lab-a" / "site.toml"), "--server", "127.0.0.1:1")
    assert refused.returncode == 2 and "'../../evil'" in refused.stderr
    for name in ("../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:evil", ".bashrc"):
        archive = json.dumps({name: "", "manifest.json": ""}).encode()
        head = MAGIC + bytes([FORMAT]) + PLAIN + hashlib.sha256(archive).digest()
        (tmp_path / "evil.kit").write_bytes(head + archive)
        with pytest.raises(InputError, match="cannot name a file of a kit"):
            open_kit(tmp_path / "evil.kit", tmp_path / "state" / "kit", None)
    assert not list(tmp_path.rglob("*evil")) and not (tmp_path / "state").exists()


def _fedkoopman(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)


def test_random_bytes_at_every_door(field: Field) -> None:
    random = np.random.default_rng(0)
    for size in (1, 100, 10_000, 300_000):
        content = random.bytes(size)
        for port in (field.port, field.metrics):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
                _pour(link, content)
        with field.tls() as link:
            _pour(link, content)
        for door in (field.agent_socket("lab-c"), field.server_socket):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.settimeout(10)
                link.connect(str(door))
                _pour(link, content)
    signing = _ready(field, LYING)
    for path in PATHS:  # under a good signature, to every handler
        content = random.bytes(1000)
        assert 400 <= field.post(path, content, signing.headers(path, content)) < 500
    field.logged('" 400 ')
    field.site_logged("lab-c", "WARNING refused: a message of")
    assert "a request failed" not in field.log("loop")
    field.go_on()
    for name in field.federation.processes:
        assert "is started again" not in field.federation.said(name).replace(NODE_ENDED, "")


def _pour(link: socket.socket, content: bytes) -> None:
    try:
        link.sendall(content)
        link.settimeout(0.2)
        link.recv(1000)
    except (OSError, ssl.SSLError):
        pass


# From whoever can end processes.


def test_what_is_killed_goes_on(field: Field) -> None:
    """`test_revoked_key_and_the_model_in_the_end` finds that nothing was lost or doubled."""
    field.federation.kill("lab-a", "node")
    field.federation.kill("lab-c", "agent")
    heard = {path: field.eavesdropper.last(path) for path in PATHS}
    field.go_on(meanwhile=lambda: field.federation.kill("serve", "loop"))
    for name in ("lab-a", "lab-c", "serve"):
        assert "it is started again" in field.federation.said(name)
    for path, one in heard.items():  # of the time before: the server has forgotten what it saw
        assert _again(field, one.content) == 401, path


# The end of it all.


def test_revoked_key_and_the_model_in_the_end(field: Field, tmp_path: Path) -> None:
    with field.client(field.signer(LYING)) as client:
        client.SendNodeHeartbeat(_heartbeat(field, LYING))
        field.federation.run("provision", str(field.federation.study), "--revoke", LYING)
        beat = _heartbeat(field, LYING)
        wait_until(lambda: refusal(lambda: client.SendNodeHeartbeat(beat)) == 412, 15, "shut out")
        activation = _activation(field.signer(LYING).public)
        assert refusal(lambda: client.ActivateNode(activation)) == 412
    assert f"shut out {LYING}" in field.federation.said("serve")
    field.liar.allow(10**6)
    local = fk.run(honest_study(field.federation.study), out=tmp_path / "local")
    field.federation.finish(900)
    about = field.site(LYING)
    assert about["revoked"] and about["rejected"] >= 3 and about["updates"] == 0
    served, alone = (load_file(f / "model.safetensors") for f in (field.out, tmp_path / "local"))
    assert served.keys() == alone.keys()
    for name, tensor in alone.items():
        assert (served[name] == tensor).all(), name
    assert len(field.federation.records()) == len(local.records)
    scores = ("slot", "l1", "l2", "l3", "loss", "E1", "E2", "E", "horizon")
    for there, here in zip(field.federation.records(), local.records, strict=True):
        assert {name: there[name] for name in scores} == {name: here[name] for name in scores}
        assert [lab for lab in there["active"] if lab not in there.get("refused", [])] == [0, 1]


def test_nobody_but_loopback_was_contacted(field: Field) -> None:
    """And no name was looked up, by processes whose environment knows nothing of Flower."""
    lines = [
        line for path in field.contacts.glob("*.txt") for line in path.read_text().splitlines()
    ]
    begun = [line for line in lines if line.startswith("begins ")]
    for program in ("loop", "node", "agent", "serve", "join"):
        assert any(program in line for line in begun), program
    contacts = [line for line in lines if line not in begun]
    assert contacts and not [line for line in contacts if not re.match(LOOPBACK, line)]
