"""Flower's loop does what it did where we have changed it, and what we want instead."""

import inspect
import re
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import flwr.supercore.retry.http_retry as retry
import flwr.supernode.start_client_internal as loop
import httpx
import pytest
from flwr.common.constant import Status, SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supernode.nodestate import NodeStateFactory

from fedkoopman.deploy.flower import supernode
from fedkoopman.deploy.flower.programs import AdaptiveInterval
from fedkoopman.deploy.flower.supernode import REFUSAL, refusal, sign_off
from fedkoopman.deploy.provisioning.certificates import authority, node_keys


def test_flowers_loop_still_waits_where_it_is_shortened() -> None:
    """If this fails, Flower has changed: read `flower/supernode.py` again."""
    waiting = inspect.getsource(loop.start_client_internal)
    assert waiting.count("time.sleep(3)") == 1
    sending = inspect.getsource(loop._push_messages)
    assert sending.count("time.sleep(0.5)") == 2
    source = inspect.getsource(loop)
    assert set(re.findall(r"\btime\.(\w+)", source)) == {"sleep"}
    assert "initial_backoff" in inspect.signature(loop.pull_objects).parameters
    assert "pull_objects(" in inspect.getsource(loop._pull_and_store_message)
    assert "exponential(max_delay=MAX_RETRY_DELAY)" in inspect.getsource(retry)
    assert waiting.count("_pull_and_store_message(") == 1
    assert "receive=receive," in waiting


def test_a_message_given_up_half_received_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its task would be answered in place of the next one."""
    ended: list[bool] = []
    results = iter([7, None, None])

    def pull(*, receive: Callable[[], object]) -> int | None:
        receive()
        return next(results)

    monkeypatch.setattr(loop, "_pull_and_store_message", pull)
    supernode.exit_on_lost_message(loop, lambda: ended.append(True))
    assert loop._pull_and_store_message(receive=lambda: ("message", "tree")) == 7
    assert loop._pull_and_store_message(receive=lambda: None) is None
    assert not ended, "received whole, and nothing received"
    assert loop._pull_and_store_message(receive=lambda: ("message", "tree")) is None
    assert ended == [True]


def test_the_shortened_waits_grow_with_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(loop, "time", loop.time)
    monkeypatch.setattr(loop, "pull_objects", loop.pull_objects)
    monkeypatch.setattr(retry, "MAX_RETRY_DELAY", retry.MAX_RETRY_DELAY)
    supernode.shorten_waits(loop, retry)
    loop.time.sleep(0.5)
    for seconds in (0.0, 2.0, 20.0, 3600.0):
        now[0] = 100.0 + seconds
        loop.time.sleep(3)
    assert slept == pytest.approx([0.02, 0.05, 0.2, 2.0, 3.0])
    loop.time.sleep(0.5)
    loop.time.sleep(3)
    assert slept[-1] == 0.05, "a message has come meanwhile"
    interval = AdaptiveInterval(0.1, 1.0)
    now[0] += 5
    assert interval.seconds() == pytest.approx(0.5)
    interval.refresh()
    assert interval.seconds() == 0.1


def test_finished_tasks_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's own state: it keeps them for ever, and says nothing else of them any more."""
    state = NodeStateFactory(objectstore_factory=ObjectStoreFactory()).state()
    names = [state.create_task(TaskType.CLIENT_APP, run_id=7) for _ in range(4)]
    done, failed, running, waiting = names
    for task in (done, running):
        assert state.claim_task(task)
        assert state.activate_task(task)
    assert state.finish_task(done, SubStatus.COMPLETED, "")
    assert state.finish_task(failed, SubStatus.FAILED, "given up")
    assert len(state.get_tasks()) == 4, "Flower has changed: is `drop_finished_tasks` still needed?"
    monkeypatch.setattr(loop, "_pull_and_store_message", lambda *, state: 7)
    supernode.drop_finished_tasks(loop)
    assert loop._pull_and_store_message(state=state) == 7
    left = {task.task_id: task.status.status for task in state.get_tasks()}
    assert left == {running: Status.RUNNING, waiting: Status.PENDING}
    assert state.finish_task(running, SubStatus.COMPLETED, ""), "those at work go on"


@pytest.mark.parametrize(
    ("status", "words"),
    [(412, "whether the site was revoked"), (401, "is this machine's clock right"), (503, "")],
)
def test_why_a_site_is_turned_away_is_told(status: int, words: str) -> None:
    request = httpx.Request("POST", "https://learn.example.org/v1/fleet/activate-node")
    error = httpx.HTTPStatusError(
        "refused", request=request, response=httpx.Response(status, request=request)
    )
    said = refusal(error, "learn.example.org:8443")
    assert words in said
    assert said.startswith(REFUSAL) == bool(words)


def test_a_server_that_is_not_there_is_told(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        server = f"127.0.0.1:{nobody.getsockname()[1]}"
        (tmp_path / "key").write_bytes(node_keys("lab-a")[0])
        (tmp_path / "ca.crt").write_bytes(authority("fleet", datetime.now(UTC))[1])
        sign_off(server, tmp_path / "ca.crt", tmp_path / "key", tmp_path / "node.json")
    assert f"the server at {server} does not answer (" in capfd.readouterr().err
