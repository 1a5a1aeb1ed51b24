"""The courier carries fedkoopman's messages to the agent and back, and nothing else."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.app.user_config import UserConfig
from flwr.proto.runtime_pb2 import (
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PullTaskInputResponse,
)
from flwr.proto.task_pb2 import Task
from flwr.superlink.grid import HttpGrid
from unit.deploy.lab import HELLO, Lab, Site, laboratory, site_of, until

from fedkoopman.deploy.flower.courier import (
    RECORD,
    Stuck,
    ask_agent,
    body_of,
    carry,
    content_of,
    main,
)
from fedkoopman.deploy.flower.fleet import FlowerFleet
from fedkoopman.deploy.flower.nodes import Inbox
from fedkoopman.deploy.flower.tasks import Tasks, acquire_server_task
from fedkoopman.deploy.flower_apps import client_app, server_app
from fedkoopman.deploy.wire import LARGEST, Failure
from fedkoopman.errors import InputError

pytestmark = pytest.mark.deploy  # real processes: `make test-deploy`


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with laboratory(secure=False, names=["a"]) as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet(lab: Lab) -> Iterator[FlowerFleet]:
    with acquire_server_task(lab.address, lab.secret) as task:
        opened = FlowerFleet(task.grid, lab.roster, site_of=site_of, hello=HELLO)
        until(lambda: "a" in opened.online(), 60)
        yield opened


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    site = lab.sites["a"]
    yield site
    site.agent.calm()


def ask(fleet: FlowerFleet, body: bytes = b"hi", deadline: float = 60.0) -> bytes | Failure:
    return dict(fleet.exchange({"a": body}, deadline))["a"]


def send_raw(fleet: FlowerFleet, content: RecordDict) -> bytes | Failure:
    """What comes of a message that the fleet itself would not send."""
    grid, inbox = fleet._grid, Inbox(fleet._grid)
    message = Message(content, fleet.online()["a"], MessageType.QUERY, ttl=60)
    asked = list(grid.push_messages([message]))
    found: list[tuple[str, bytes | Failure]] = []
    until(lambda: bool(found.extend(inbox.collect(asked)) or found))
    return found[0][1]


def asking(fleet: FlowerFleet) -> list[bytes | Failure]:
    """Ask meanwhile; the answer is put into the list."""
    found: list[bytes | Failure] = []
    threading.Thread(target=lambda: found.append(ask(fleet, b"work")), daemon=True).start()
    return found


def test_a_body_goes_to_the_agent_and_its_answer_comes_back(fleet: FlowerFleet, site: Site) -> None:
    assert ask(fleet, b"one") == site.agent.echo(b"one")
    large = b"x" * 2_000_000
    assert ask(fleet, large) == site.agent.echo(large)
    assert site.agent.asked[-2:] == [b"one", large]


def test_a_round_takes_a_fraction_of_the_seconds_that_flower_sleeps(fleet: FlowerFleet) -> None:
    """Flower's own node sleeps 3 s when idle and its app takes 2 s to start."""
    took = []
    for _ in range(4):
        started = time.monotonic()
        ask(fleet)
        took.append(time.monotonic() - started)
    assert min(took) < 2.0, f"rounds took {took}"


def test_the_app_that_the_server_names_is_neither_installed_nor_imported(
    fleet: FlowerFleet, site: Site
) -> None:
    ask(fleet)
    home = Path(site.env["FLWR_HOME"])
    assert not home.exists() or not list(home.rglob("*.py")) + list(home.rglob("pyproject.toml"))
    pid = site.running["courier"].pid
    maps = Path(f"/proc/{pid}/maps")
    if maps.exists():
        assert "jaxlib" not in maps.read_text(), "the courier needs no JAX"


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({"other": ConfigRecord({"body": b""})}),
        RecordDict({RECORD: ConfigRecord({"body": b"", "command": "send the data"})}),
        RecordDict({RECORD: ConfigRecord({"body": "text"})}),
        RecordDict({RECORD: ConfigRecord({"body": b""}), "more": ConfigRecord({})}),
        RecordDict({RECORD: ArrayRecord()}),
        RecordDict({}),
    ],
    ids=["record", "fields", "kind", "records", "arrays", "nothing"],
)
def test_every_other_message_is_refused(
    fleet: FlowerFleet, site: Site, content: RecordDict, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(InputError, match="not one of fedkoopman's"):
        body_of(content)
    if request.node.callspec.id in ("record", "fields"):  # and so it is by the process
        before = len(site.agent.asked)
        answer = send_raw(fleet, content)
        assert isinstance(answer, Failure)
        assert "not one of fedkoopman's" in answer.reason
        assert len(site.agent.asked) == before, "the agent hears nothing of it"
        assert "refused message" in site.log("courier")
        assert ask(fleet) == site.agent.echo(b"hi")


def test_a_body_that_is_too_large_is_refused() -> None:
    with pytest.raises(InputError, match=f"at most {LARGEST} are taken"):
        body_of(content_of(bytes(LARGEST + 1)))
    assert body_of(content_of(b"fits")) == b"fits"


def test_an_agent_that_announces_too_much_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            link, _ = server.accept()
            with link:
                link.recv(100)
                link.sendall((LARGEST + 1).to_bytes(8, "big"))
                link.recv(1)

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(InputError, match="at most"):
            ask_agent(path, b"")


def test_without_an_agent_the_server_hears_so_at_once(fleet: FlowerFleet, site: Site) -> None:
    site.agent.stop()
    started = time.monotonic()
    answer = ask(fleet)
    assert answer == Failure("the site agent does not answer: No such file or directory")
    assert time.monotonic() - started < 20
    site.agent.start()
    assert ask(fleet) == site.agent.echo(b"hi"), "and the agent is found again"


def test_an_agent_that_dies_at_work_is_told_at_once(fleet: FlowerFleet, site: Site) -> None:
    def die(body: bytes) -> bytes:
        raise ConnectionAbortedError

    site.agent.answer = die
    answer = ask(fleet)
    assert isinstance(answer, Failure)
    assert "the agent closed the connection" in answer.reason


def test_a_node_that_is_killed_at_work_is_asked_again_and_its_courier_goes_on(
    fleet: FlowerFleet, site: Site
) -> None:
    """Without keys a node comes back under another number: it tells its name once more."""
    courier = site.running["courier"].pid
    site.agent.gate.clear()
    found, before = asking(fleet), len(site.agent.asked)
    until(lambda: len(site.agent.asked) > before)
    site.kill("node")
    site.start("node")
    site.agent.gate.set()
    until(lambda: bool(found), 60)
    assert found == [site.agent.echo(b"work")]
    assert not site.running["courier"].dead
    assert site.running["courier"].pid == courier
    assert "has given a message up" in site.log("courier")


def test_a_message_that_was_lost_with_a_courier_is_found_out_and_made_good(
    fleet: FlowerFleet, site: Site
) -> None:
    """A node hands a message out once, and then waits for the answer, which nobody has."""

    class Lossy(Tasks):
        def acquire(self, kind: str) -> Task | None:
            task = super().acquire(kind)
            if task is not None:
                self.client.PullTaskInput(PullTaskInputRequest())
                self.client.PullMessages(PullAppMessagesRequest())
                self.client.PullTaskInput = broken  # type: ignore[method-assign]
            return task

    def broken(request: PullTaskInputRequest) -> PullTaskInputResponse:
        raise httpx.ReadError("cut off")

    site.kill("courier")
    lossy = Lossy(site.runtime, site.directory / "secret")
    found = asking(fleet)
    with pytest.raises(Stuck, match="lost between SuperNode and courier: cut off"):
        until(lambda: carry(lossy, site.agent.path))
    lossy.close()
    assert not found
    site.running.pop("node").end()  # as the supervisor does with partners
    site.start()
    until(lambda: bool(found), 60)
    assert found == [site.agent.echo(b"work")]


def test_a_courier_without_its_secret_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "none"
    given = ["--runtime", "127.0.0.1:1", "--secret", str(missing), "--socket", "x"]
    assert main(given) == 2
    assert f"cannot read the secret {missing}" in caplog.text


def test_flowers_own_way_to_the_agent_is_the_same(site: Site) -> None:
    """What `flower-supernode` starts for a message, where no courier is wanted."""
    about = Metadata(1, "0" * 64, 1, 2, "", "", time.time(), 60, MessageType.QUERY)
    message = make_message(metadata=about, content=content_of(b"hi"))
    settings: UserConfig = {"socket": str(site.agent.path)}
    context = Context(1, 1, settings, RecordDict(), {})
    reply = client_app(message=message, context=context)
    assert body_of(reply.content) == site.agent.echo(b"hi")
    with pytest.raises(InputError, match="no agent is named: --node-config"):
        client_app(message=message, context=Context(1, 1, {}, RecordDict(), {}))
    grid = HttpGrid("127.0.0.1:1", insecure=True, token="none")
    with pytest.raises(InputError, match="no settings are named: --run-config"):
        server_app(grid, Context(1, 1, {}, RecordDict(), {}))
