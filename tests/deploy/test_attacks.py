"""Attacks on a running federation: each is refused, each leaves a line in a log, and the honest
sites' model becomes what it would have become without them."""

import base64
import hashlib
import json
import os
import re
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MessageType, RecordDict
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import sign_message
from safetensors.numpy import load_file, save

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.deploy.flower.courier import content_of
from fedkoopman.deploy.flower.programs import environment, make_secret, supernode_command
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

from .attacked import HONEST, LYING, Field, honest_study, status_of
from .federation import PROGRAM, children, free_port, small_study, wait_until
from .lies import COUNTS, GATING, UPDATES
from .outsiders import (
    asked,
    fleet_client,
    fresh_key,
    impostor,
    key_of,
    listening,
    other_authority,
    refusal,
    rogue_run,
    shown,
)

pytestmark = pytest.mark.skipif(find_nginx() is None, reason="nginx is not installed")
HEARTBEAT = 30.0
LOOPBACK = r"socket\.\w+ (\('(127\.0\.0\.1|::1)'|'(127\.0\.0\.1|::1|localhost)'|None|b?'/)"
NOT_KNOWN = '"POST /v1/fleet/pull-messages HTTP/1.1" 401'
NOBODY = 65534


@pytest.fixture(scope="module")
def field(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Field]:
    # Every lie takes a slot, and after three of them one more; other attacks take 13, and a last
    # slot is without the revoked site.
    lies = sum("test_lies" in item.nodeid for item in request.session.items)
    with Field(tmp_path_factory.mktemp("attacked") / "field", 14 + lies + lies // 3) as field:
        yield field


# At the public port.


def test_only_the_public_port_faces_the_world(field: Field) -> None:
    processes = [process.pid for process in field.federation.processes.values()]
    everyone = [pid for process in processes for pid in (process, *children(process))]
    doors = listening(everyone)
    assert field.port in {port for _, port in doors}
    assert {port for host, port in doors if host != "127.0.0.1"} == {field.port}
    assert {field.link, field.metrics, field.runtime("lab-a")} <= {port for _, port in doors}


def test_secrets_are_for_their_owners_eyes(field: Field) -> None:
    closed = [field.fleet, field.out / "server", *map(field.federation.state, HONEST)]
    assert {path.stat().st_mode & 0o777 for path in closed} == {0o700}
    names = ["ca.key", "server.key", "codes.txt", "kits/lab-a.kit", "roster.json"]
    files = [*(field.fleet / name for name in names), Path(field.settings["secret"])]
    files += [field.kit("lab-a") / "node.key", field.federation.state("lab-a") / "secret"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_plaintext(field: Field) -> None:
    with fleet_client(field.port, None, key_of(field.kit("lab-a"))) as client:
        request = PullMessagesRequest(node=Node(node_id=field.nodes["lab-a"]))
        assert refusal(lambda: client.PullMessages(request)) == 400
    field.logged('"POST /v1/fleet/pull-messages HTTP/1.1" 400')
    with socket.create_connection(("127.0.0.1", field.port), timeout=10) as link:
        link.sendall(b"\x00\x01 hello \r\n\r\n")
        assert b"200" not in link.recv(100)


def test_another_authority(field: Field, tmp_path: Path) -> None:
    other = other_authority(tmp_path)
    with (
        fleet_client(field.port, other, key_of(field.kit("lab-a"))) as client,
        pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.PullMessages(PullMessagesRequest())
    # A site that is led to a server with another's certificate tells it nothing.
    with impostor(other) as (port, heard):
        command = supernode_command(
            server=f"127.0.0.1:{port}", port=free_port(), secret=make_secret(tmp_path / "secret"),
            certificates=field.kit("lab-a") / "ca.crt", key=field.kit("lab-a") / "node.key",
            memory=tmp_path / "node.json",
        )  # fmt: skip
        env = {**field.federation.env, **environment(tmp_path / "flower")}
        log = tmp_path / "supernode.log"
        with log.open("wb") as file:
            node = subprocess.Popen(command, stdout=file, stderr=file, env=env)
        try:
            wait_until(lambda: b"CERTIFICATE_VERIFY_FAILED" in log.read_bytes(), 60, "a refusal")
        finally:
            node.kill()
            node.wait()
        assert heard == []


def test_unknown_key(field: Field) -> None:
    key, before = fresh_key(), field.log("proxy").count(NOT_KNOWN)
    with fleet_client(field.port, field.authority, key) as client:
        activation = ActivateNodeRequest(public_key=shown(key), heartbeat_interval=HEARTBEAT)
        assert refusal(lambda: client.ActivateNode(activation)) == 412
        registration = RegisterNodeFleetRequest(public_key=shown(key))
        assert refusal(lambda: client.RegisterNode(registration)) == 412
        pull = PullMessagesRequest(node=Node(node_id=field.nodes["lab-a"]))
        assert refusal(lambda: client.PullMessages(pull)) == 401
    with fleet_client(field.port, field.authority, None) as client:
        assert refusal(lambda: client.PullMessages(pull)) == 401
    for path in ("activate-node", "register-node"):
        field.logged(f'"POST /v1/fleet/{path} HTTP/1.1" 412')
    wait_until(lambda: field.log("proxy").count(NOT_KNOWN) == before + 2, 10, "two lines")
    field.logged("No SuperNode found with the given public key", "superlink")


def test_signatures_that_do_not_fit(field: Field) -> None:
    mine, body = (
        key_of(field.kit(LYING)),
        PullMessagesRequest(node=Node(node_id=field.nodes[LYING])),
    )

    def answer(
        when: datetime, key: Any = mine, signer: Any = mine, signed: datetime | None = None
    ) -> int:
        signature = sign_message(signer, (signed or when).isoformat().encode())
        headers = {
            "flwr-public-key": base64.b64encode(shown(key)).decode(),
            "flwr-timestamp": when.isoformat(),
            "flwr-signature": base64.b64encode(signature).decode(),
        }
        return field.post("/v1/fleet/pull-messages", body.SerializeToString(), headers)

    now = datetime.now(UTC)
    before = field.log("proxy").count(NOT_KNOWN)
    assert answer(now - timedelta(minutes=6)) == 401  # as of a request that was kept for long
    assert answer(now + timedelta(minutes=1)) == 401
    assert answer(now, signer=fresh_key()) == 401
    assert answer(now, signed=now - timedelta(seconds=1)) == 401
    assert answer(now, key=key_of(field.kit("lab-a"))) == 401  # its key, another's signature
    assert answer(now) == 200
    wait_until(lambda: field.log("proxy").count(NOT_KNOWN) == before + 5, 10, "five lines")


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
    assert status_of(field.send(field.head(66 * 2**20), first=True)) == 413
    field.logged("client intended to send too large body")
    assert status_of(field.send(field.head(10**30))) == 400
    assert status_of(field.send(field.head(-5))) == 400
    with field.tls() as link:
        link.sendall(field.head(None))
        chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
        try:
            for _ in range(70):
                link.sendall(chunk)
        except OSError:
            pass  # it is cut off
        assert status_of(link.recv(1000)) == 413
    field.logged("client intended to send too large chunked body")
    assert status_of(field.send(b"POST / HTTP/1.1\r\nA: " + b"b" * 100_000 + b"\r\n\r\n")) == 400
    field.go_on()


def test_bodies_that_never_end_hold_nobody_up(field: Field) -> None:
    links = [field.tls() for _ in range(40)]
    try:
        for link in links:
            link.sendall(field.head(10**6) + b"x")
        field.go_on()
    finally:
        for link in links:
            link.close()


@pytest.mark.deploy
def test_bodies_that_never_end_are_cut_off(field: Field) -> None:
    with field.tls(60) as link:
        link.sendall(field.head(10**6) + b"x")
        began = time.monotonic()
        answer = link.recv(1000)
        assert status_of(answer) == 408 or not answer
        assert time.monotonic() - began < 45
    field.logged('"POST /v1/fleet/push-object HTTP/1.1" 408')


# With a site's own key, or with what it once sent.


def test_replayed_reply(field: Field) -> None:
    heard = field.eavesdropper.last("/v1/fleet/push-messages")
    reply = PushMessagesRequest.FromString(heard.body)
    question = reply.messages_list[0].metadata.reply_to_message_id
    content = field.eavesdropper.last("/v1/fleet/push-object")
    before = field.site("lab-a")
    field.send(heard.content.replace(b"keep-alive", b"close"))  # at once: it changes nothing
    field.go_on()
    for again in (heard, content):
        field.send(again.content.replace(b"keep-alive", b"close"))
    field.logged(f"message_id {question} does not exist or has expired", "superlink")
    field.go_on()
    after = field.site("lab-a")
    assert after["trained_samples"] == 300 * after["updates"]
    assert after["updates"] == before["updates"] + 2


def test_replies_in_the_name_of_another_site(field: Field) -> None:
    heard = PushMessagesRequest.FromString(field.eavesdropper.last("/v1/fleet/push-messages").body)
    mine = field.nodes[LYING]
    field.go_on()  # so that nobody waits for this reply any more
    with fleet_client(field.port, field.authority, key_of(field.kit(LYING))) as client:
        assert refusal(lambda: client.PushMessages(heard)) == 401
        field.logged('"POST /v1/fleet/push-messages HTTP/1.1" 401')
        forged = PushMessagesRequest()
        forged.CopyFrom(heard)
        forged.node.node_id = mine
        for source in (field.nodes["lab-a"], mine):
            for question in (heard.messages_list[0].metadata.reply_to_message_id, "f" * 64):
                about = forged.messages_list[0].metadata
                about.src_node_id, about.reply_to_message_id = source, question
                taken = client.PushMessages(forged)
                assert not taken.objects_to_push  # nothing of it is wanted
                field.logged(f"message_id {question} does not exist or has expired", "superlink")
    field.go_on()


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


def test_another_user_of_the_machine(field: Field) -> None:
    door = field.agent_socket("lab-c")
    assert door.parent.stat().st_mode & 0o777 == 0o700
    assert door.stat().st_mode & 0o777 == 0o600
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    code = (
        "import socket, sys; link = socket.socket(socket.AF_UNIX); link.settimeout(10); "
        "link.connect(sys.argv[1]); print(link.recv(10))"
    )

    def tried(name: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/usr/bin/env", "python3", "-I", "-c", code, name], cwd=door.parent,
            user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
            env={"PATH": os.defpath},
        )  # fmt: skip

    assert "PermissionError" in tried(str(door)).stderr
    door.parent.chmod(0o711)  # were it not the directory that keeps him out, it would be the file
    assert "PermissionError" in tried(door.name).stderr
    door.chmod(0o666)  # were it not the file either, it would be the agent, whom the system tells
    try:
        assert tried(door.name).stdout in ("b''\n", "")
        field.site_logged("lab-c", f"refused: user {NOBODY} (process")
    finally:
        door.chmod(0o600)
        door.parent.chmod(0o700)


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's
def test_an_app_of_somebody_else(field: Field, tmp_path: Path) -> None:
    """Whoever has the coordinator's machine can start any app; its code runs nowhere."""
    marker, before = tmp_path / "marker", field.federation.accounts("lab-c")
    code = (
        f"import pathlib; pathlib.Path({str(marker)!r}).write_text('ran')\n"
        "from flwr.clientapp import ClientApp\napp = ClientApp()\n"
    )
    address, secret = field.settings["address"], Path(field.settings["secret"])
    with rogue_run(address, field.authority, secret, tmp_path / "rogue", code) as grid:
        node = field.nodes["lab-c"]
        foreign = RecordDict({"arrays": ArrayRecord(), "path": ConfigRecord({"file": "data"})})
        assert "not one of fedkoopman's" in asked(grid, node, foreign, MessageType.TRAIN)
        extended = RecordDict({"fedkoopman": ConfigRecord({"body": b"", "more": 1})})
        assert "not one of fedkoopman's" in asked(grid, node, extended, MessageType.QUERY)
        wish = content_of(_asking(field, {"kind": "observations", "slot": 1}))
        assert "there is no request" in asked(grid, node, wish, MessageType.QUERY)
        field.site_logged("lab-c", "other records than expected", "courier")
        field.site_logged("lab-c", "other fields than expected", "courier")
        field.site_logged("lab-c", "there is no request or reply 'observations'")
        field.go_on()
    assert not marker.exists()
    assert not [path for path in field.folder.rglob("*rogue*")]
    assert field.federation.accounts("lab-c")["trained"] == before["trained"] + 300


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
    ports = [field.port, field.link, field.metrics, *map(field.runtime, HONEST)]
    for size in (1, 100, 10_000, 300_000):
        content = random.bytes(size)
        for port in ports:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
                _pour(link, content)
        for port in (field.port, field.link):
            plain = socket.create_connection(("127.0.0.1", port), timeout=10)
            with field.trusting().wrap_socket(plain, server_hostname="127.0.0.1") as link:
                _pour(link, content)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(10)
            link.connect(str(field.agent_socket("lab-c")))
            _pour(link, content)
    field.logged('" 400 ')
    field.site_logged("lab-c", "WARNING refused: a message of")
    field.go_on()
    for name in field.federation.processes:
        assert "is started again" not in field.federation.said(name)


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
    field.federation.kill("lab-a", "courier")
    field.federation.kill("lab-c", "agent")
    field.go_on(meanwhile=lambda: field.federation.kill("serve", "loop"))
    for name in ("lab-a", "lab-c", "serve"):
        assert "it is started again" in field.federation.said(name)


# The end of it all.


def test_revoked_key_and_the_model_in_the_end(field: Field, tmp_path: Path) -> None:
    key, node = key_of(field.kit(LYING)), Node(node_id=field.nodes[LYING])
    with fleet_client(field.port, field.authority, key) as client:
        assert refusal(lambda: client.PullMessages(PullMessagesRequest(node=node))) == 0
        field.federation.run("provision", str(field.federation.study), "--revoke", LYING)
        pull = PullMessagesRequest(node=node)
        wait_until(lambda: refusal(lambda: client.PullMessages(pull)) == 401, 15, "shut out")
        activation = ActivateNodeRequest(public_key=shown(key), heartbeat_interval=HEARTBEAT)
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
    for program in ("superlink", "loop", "supernode", "courier", "agent", "serve", "join"):
        assert any(program in line for line in begun), program
    contacts = [line for line in lines if line not in begun]
    assert contacts and not [line for line in contacts if not re.match(LOOPBACK, line)]
