"""The live page's server: it keeps up with a run, and answers nobody but this machine's browser."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fedkoopman.errors import InputError
from fedkoopman.reports.live_server import address, key, listening, serving

STUDY = 'name = "small"\nseed = 0\nslots = 4\n[clients]\ncount = 2\n'


def begin(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "study.toml").write_text(STUDY)


def append(directory: Path, slot: int, **more: Any) -> None:
    numbers = {"l1": 0.1, "l2": 0.2, "l3": 0.3, "E": 1 / slot, "horizon": 2.0}
    record = {"slot": slot, "arrived": [0], "active": [1], "samples": 9, "seconds": 1.0}
    with (directory / "records.jsonl").open("a") as file:
        file.write(json.dumps(record | numbers | more) + "\n")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    """Ask for a path below the page's secret, or for one that begins with "!"."""
    path = path[1:] if path.startswith("!") else f"/{key()}{path}"
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request(method, path, headers=headers)
        with connection.getresponse() as answer:
            return Answer(answer.status, answer.headers, answer.read())


def until(port: int, wanted: Callable[[str], bool]) -> tuple[str, float]:
    """The first story that is wanted, and how many seconds it took."""
    began = time.monotonic()
    while time.monotonic() < began + 20:
        told = ask(port, "/story").body.decode()
        if wanted(told):
            return told, time.monotonic() - began
        time.sleep(0.05)
    raise AssertionError(told)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    with listening() as own, serving(own, [tmp_path / "run"]):
        yield own.getsockname()[1], tmp_path / "run"


def test_the_story_keeps_up_from_before_the_run(served: tuple[int, Path]) -> None:
    port, directory = served
    told = json.loads(ask(port, "/story").body)
    assert told["title"] == "Waiting for a run" and not told["finished"]
    begin(directory)
    append(directory, 1)
    told, seconds = until(port, lambda text: json.loads(text)["title"] == "small")
    print(f"the first record was shown after {seconds:.2f} s")
    tag = ask(port, "/story").headers["ETag"]
    again = ask(port, "/story", **{"If-None-Match": tag})
    assert (again.status, again.body) == (304, b"")
    (directory / "records.jsonl").write_text("no record\n")
    told, _ = until(port, lambda text: "cannot be shown" in text)
    assert "line 1 of" in told
    (directory / "records.jsonl").unlink()
    append(directory, 1)
    until(port, lambda text: json.loads(text)["title"] == "small")


@pytest.mark.slow
def test_a_hundred_thousand_slots_stay_small_and_quick(served: tuple[int, Path]) -> None:
    port, directory = served
    begin(directory)
    row = {"arrived": [0, 1], "active": [1], "samples": 9, "seconds": 1.0, "l1": 0.1, "l2": 0.2}
    rows = ({"slot": n, **row, "l3": 0.3, "horizon": 2.0, "E": 1.0} for n in range(1, 100_001))
    spike = {77_777: {"E": 4e6}}
    lines = (json.dumps(one | spike.get(one["slot"], {})) + "\n" for one in rows)
    (directory / "records.jsonl").write_text("".join(lines))
    told, seconds = until(port, lambda text: "100000" in text)
    print(f"100,000 slots: {len(told):,} bytes, first told after {seconds:.1f} s")
    assert len(told) < 300_000
    assert "4e+06" in told or "4000000.0" in told  # a single slot's spike is not averaged away
    append(directory, 100_001)
    _, seconds = until(port, lambda text: "100001" in text)
    print(f"the next record was told after {seconds:.1f} s")


def test_only_a_browser_of_this_machine_is_answered(served: tuple[int, Path]) -> None:
    port, directory = served
    begin(directory)
    append(directory, 1)
    page = ask(port, "/")
    assert page.status == 200 and b"Content-Security-Policy" in page.body
    assert page.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert "Server" not in page.headers and "Access-Control-Allow-Origin" not in page.headers
    for path in ("/story", "/"):
        assert ask(port, path, Host="learn.example.org").status == 400
        assert ask(port, path, Host=f"localhost:{port}").status == 200
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(port, path, method).status == 405
    for path in ("/records.jsonl", "/../run/study.toml", "/%2e%2e/etc/passwd", "//etc/passwd"):
        assert ask(port, path).status == 404
    for path in ("!/", "!/story", "!//story", "!/another-key/", "!/another-key/story"):
        assert ask(port, path).status == 404, "whoever has not been given the address"


def test_several_runs_share_a_page_and_one_may_be_missing(tmp_path: Path) -> None:
    begin(tmp_path / "a")
    append(tmp_path / "a", 1)
    with listening() as own, serving(own, [tmp_path / "a", tmp_path / "b"]):
        told = json.loads(ask(own.getsockname()[1], "/story").body)
    assert told["sections"][0]["id"] == "waiting" and not told["finished"]
    assert str(tmp_path / "b") in told["sections"][0]["blocks"][0]["text"]


def test_a_taken_port_is_told_in_a_line() -> None:
    with listening() as own, pytest.raises(InputError, match=r"cannot listen on 127.0.0.1:\d+"):
        listening(own.getsockname()[1])


def test_a_missing_extra_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=r"pip install 'fedkoopman\[watch\]'"):
        listening()


def test_beside_a_run_it_ends_with_the_run(tmp_path: Path) -> None:
    with listening() as own:
        port = own.getsockname()[1]
        command = [sys.executable, "-m", "fedkoopman.reports.live_server", str(own.fileno())]
        child = subprocess.Popen(
            [*command, str(tmp_path)], pass_fds=[own.fileno()], stdin=subprocess.PIPE
        )
        try:
            assert ask(port, "/").status == 200
            assert os.getpriority(os.PRIO_PROCESS, child.pid) >= 10
            assert address(own) == f"http://127.0.0.1:{port}/{key()}/"
            assert child.stdin is not None
            child.stdin.close()  # as the system does where the run is killed
            assert child.wait(timeout=20) == 0
        finally:
            child.kill()
            child.wait()
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))
