"""Children are kept running, their output is kept, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedkoopman.deploy import supervisor as module
from fedkoopman.deploy.supervisor import Child, Supervisor
from fedkoopman.errors import InputError

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
posix = pytest.mark.skipif(os.name != "posix", reason="signals and process groups")


class Told(list[str]):
    """What a supervisor said."""

    def about(self, name: str) -> list[str]:
        return [line for line in self if line.startswith(name)]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def supervisor(told: Told) -> Iterator[Supervisor]:
    with Supervisor(told.append) as opened:
        yield opened


def python(code: str, name: str, folder: Path, **options: object) -> Child:
    command = [sys.executable, "-c", code]
    return Child(name, command, folder / f"{name}.log", **options)  # type: ignore[arg-type]


def polled(supervisor: Supervisor, condition: Callable[[], bool], seconds: float = 10.0) -> float:
    """Look after the children until something is so; gives how long that took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it did not happen in time"
        supervisor.poll()
        time.sleep(0.02)
    return time.monotonic() - started


def up(folder: Path, name: str, times: int = 1) -> Callable[[], bool]:
    """Whether a child that says so has come up so many times."""
    log = folder / f"{name}.log"
    return lambda: log.exists() and log.read_text().count(" up") >= times


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")")[-1].split()[0] != "Z"


@posix
def test_a_child_that_is_killed_comes_back_after_half_a_second(
    supervisor: Supervisor, told: Told, tmp_path: Path
) -> None:
    supervisor.start(python(SLEEP, "worker", tmp_path))
    polled(supervisor, up(tmp_path, "worker"))
    first = supervisor.pid("worker")
    os.kill(first, signal.SIGKILL)
    took = polled(supervisor, up(tmp_path, "worker", 2))
    assert took >= 0.5
    assert supervisor.alive("worker")
    assert supervisor.pid("worker") != first
    assert told == [
        f"worker was ended by SIGKILL; it is started again in 0.5 s ({tmp_path / 'worker.log'})"
    ]


def test_one_that_keeps_failing_is_started_less_and_less_often(
    supervisor: Supervisor, told: Told, tmp_path: Path
) -> None:
    supervisor.start(python("raise SystemExit(3)", "broken", tmp_path))
    polled(supervisor, lambda: len(told) == 3)
    waits = [line.split("again in ")[1].split(" s")[0] for line in told]
    assert waits == ["0.5", "1", "2"]
    assert all("ended with status 3" in line for line in told)


def test_an_end_that_is_final_stays_one(supervisor: Supervisor, told: Told, tmp_path: Path) -> None:
    supervisor.start(python("raise SystemExit(2)", "loop", tmp_path, final=(0, 2)))
    supervisor.start(python("print('done')", "once", tmp_path, restart=False))
    polled(supervisor, lambda: supervisor.final("loop") and supervisor.final("once"))
    time.sleep(0.7)
    assert supervisor.poll() == []
    assert not supervisor.alive("loop")
    assert supervisor.status("loop") == 2
    assert supervisor.last_line("once") == "done"
    assert told == [f"loop ended with status 2; its log: {tmp_path / 'loop.log'}"]


@posix
def test_stopping_ends_everything_also_what_ignores_sigterm(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GRACE", 0.5)
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
    spawner = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import signal;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); import time; time.sleep(60)']);"
        "print('child', p.pid, flush=True);" + SLEEP
    )
    with Supervisor(told.append) as supervisor:
        supervisor.start(python(deaf, "deaf", tmp_path))
        supervisor.start(python(spawner, "spawner", tmp_path))
        polled(supervisor, up(tmp_path, "deaf"))
        polled(supervisor, up(tmp_path, "spawner"))
        log = (tmp_path / "spawner.log").read_text()
        pids = [
            supervisor.pid("deaf"),
            supervisor.pid("spawner"),
            int(log.split("child ")[1].split()[0]),
        ]
        assert all(map(exists, pids))
    deadline = time.monotonic() + 5
    while any(map(exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(exists, pids))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_children_die_with_their_parent_however_it_dies(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from fedkoopman.deploy.supervisor import Child, Supervisor\n"
        f"log = Path({str(tmp_path / 'child.log')!r})\n"
        "s = Supervisor(print)\n"
        f"s.start(Child('child', [sys.executable, '-c', {SLEEP!r}], log))\n"
        "print(s.pid('child'), flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert exists(child)
        parent.kill()
    deadline = time.monotonic() + 5
    while exists(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not exists(child)


def test_logs_are_rotated_while_the_child_runs_and_lose_no_line(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_BYTES", 30_000)
    monkeypatch.setattr(module, "LOG_FILES", 100)
    chatter = (
        "import sys\n"
        "for i in range(4000):\n"
        "    to = sys.stderr if i % 2 else sys.stdout\n"
        "    print('\\x1b[92mline\\x1b[0m', i, file=to, flush=True)"
    )
    supervisor.start(python(chatter, "chatter", tmp_path, restart=False))
    polled(supervisor, lambda: supervisor.final("chatter"))
    files = sorted(tmp_path.glob("chatter.log*"))
    assert len(files) > 3
    assert all(file.stat().st_size <= 30_000 for file in files)
    lines = [line for file in files for line in file.read_text().splitlines()]
    numbers = [int(line.rsplit(" ", 1)[1]) for line in lines]
    assert sorted(numbers) == list(range(4000))
    assert all(line.split(" ")[2] == "line" for line in lines), "a time, and no colours"


def test_output_without_end_and_a_listener_that_fails_do_not_hold_a_child_up(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    def deaf(line: str) -> None:
        raise BrokenPipeError

    endless = "import sys; sys.stdout.write('x' * 3_000_000); print('\\nlast')"
    supervisor.start(python(endless, "endless", tmp_path, restart=False, echo=deaf))
    polled(supervisor, lambda: supervisor.final("endless"))
    assert supervisor.last_line("endless") == "last"


def test_every_line_is_heard(supervisor: Supervisor, tmp_path: Path) -> None:
    heard: list[str] = []
    supervisor.start(
        python("print('one'); print('two')", "talker", tmp_path, restart=False, echo=heard.append)
    )
    polled(supervisor, lambda: supervisor.final("talker"))
    assert heard == ["one", "two"]


def test_a_program_that_is_not_there_is_told_in_one_line(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"cannot start ghost .*no-such-program.*No such file"):
        supervisor.start(Child("ghost", ["/no-such-program"], tmp_path / "ghost.log"))
    with pytest.raises(InputError, match=r"cannot write .*check that its directory"):
        (tmp_path / "file").write_text("")
        supervisor.start(Child("ghost", ["true"], tmp_path / "file" / "ghost.log"))
    assert not supervisor.alive("ghost")
