"""The process that computes comes and goes: nothing is lost by it, and none is left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import socketpair
from typing import Any

import numpy as np
import pytest
from unit.deploy.site_lab import SAMPLES, asked, make_site, make_study

from fedkoopman.config.study import Study
from fedkoopman.data.filter_beliefs import Beliefs
from fedkoopman.data.triage import Estimated, HeldOut
from fedkoopman.deploy.site import worker
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.handover import Facts, Scores, receive, send
from fedkoopman.deploy.site.work import Work
from fedkoopman.deploy.site.worker import CALLS, STREAMS, Worker, WorkerFailed
from fedkoopman.deploy.wire import (
    Acknowledge,
    Answered,
    Ask,
    Evaluate,
    Evaluated,
    Poll,
    Refused,
    encode_replies,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import ArrayField, Message, Schema
from fedkoopman.federation.options import PrivacyOptions
from fedkoopman.federation.privacy import Release

EVERY = {"clients__probability": 1.0, "sites__repeat": False}
RESTING = """
import sys
from pathlib import Path
from fedkoopman.deploy.site import agent_process, answers, buffer, catalogue, comparing, intake
from fedkoopman.deploy.site import live, masking, mqtt, privacy, site_socket, worker
from fedkoopman.deploy.secure import site_session
import safetensors.numpy
heavy = "jax", "jaxlib", "equinox", "optax", "diffrax", "scipy", "pyarrow", "pandas", "matplotlib"
print(*[name for name in heavy if name in sys.modules])
"""


class Killing(Worker):
    """A worker that is killed before it has given its first values by some names."""

    kills: dict[str, int] = {}  # noqa: RUF012

    def _once(self, name: str, arguments: Any) -> Iterator[Any]:
        values: Any = super()._once(name, arguments)
        for value in values:
            if self.kills.get(name, 0):
                self.kills[name] -= 1
                assert self._process is not None
                os.kill(self._process.pid, signal.SIGKILL)
                values.throw(EOFError())
            yield value


def started(folder: Path, kind: type[Worker] = Worker, idle: float = 60.0, **values: Any) -> Any:
    """An agent whose work is done by a worker, which is its `work`."""
    site = make_site(folder / "lab-a")
    study = make_study(folder, **{**EVERY, **values})
    work: Any = kind(site, study, 0, 1, idle)
    made = Agent(site, study, 0, 1, folder / "state", work=work, settle=0.0)
    made._rate.allows = lambda: True  # type: ignore[method-assign]
    return made


def model(study: Study, shift: float = 0.0) -> dict[str, np.ndarray]:
    from fedkoopman.runs.experiment import problem_of

    problem = problem_of(study, study.seed, 1)
    first = problem.algorithm.model(problem, problem.algorithm.begin(problem))
    return {name: (leaf + shift).astype(leaf.dtype) for name, leaf in first.items()}


def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_an_agent_at_rest_has_not_loaded_jax() -> None:
    """Nor anything else that is large: what an agent imports at all, it is given here."""
    run = subprocess.run(
        [sys.executable, "-c", RESTING], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == []


def test_what_is_handed_over_comes_back_bit_for_bit() -> None:
    odd = np.array([[np.nan, -0.0, np.inf], [1e-310, 1.0, 2.0]])
    values = [
        None, True, 2**100, float("inf"), 0.1, "ö\n", (1, [2, ("3",)]), {"a": (), "b": {}},
        Path("/x/y"), odd, odd.astype(np.float32)[:, ::2], np.zeros((0, 3)), np.array(7, np.uint64),
        np.array([True, False]), Message("train", {"w": odd}, {"n": 3.0}),
        Schema("words", {"w": ArrayField((2, 3), "float64")}, reply="update", lasting=True),
        Beliefs(odd, odd, odd, odd), Release(0.1, 2.0, 30, "segment"), HeldOut("a", odd, odd),
        Facts({}, {}, 0.05, 0.7, PrivacyOptions("site")), Scores(3, {"e1": 0.1}, {"s": odd}, {}),
    ]  # fmt: skip
    ours, theirs = socketpair()
    with ours, theirs:
        for value in values:
            send(ours, value)
            found = receive(theirs)
            assert type(found) is type(value)
            assert repr(found) == repr(value)
            if isinstance(value, np.ndarray):
                assert (found.dtype, found.shape) == (value.dtype, value.shape)
                assert found.tobytes() == value.tobytes()
        with pytest.raises(TypeError, match="a object cannot be handed over"):
            send(ours, object())
        ours.close()
        with pytest.raises(EOFError):
            receive(theirs)


def test_the_list_is_closed_and_names_what_work_has() -> None:
    assert all(callable(getattr(Work, name)) for name in (*CALLS, *STREAMS))
    with pytest.raises(AttributeError, match="a worker has no 'problem'"):
        Worker.__new__(Worker).problem  # noqa: B018


def test_a_worker_that_is_killed_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it estimates and trains: the bytes are those of a single process."""
    Killing.kills = kills = {"estimated": 1, "answer": 1}
    with started(tmp_path / "a", Killing) as agent:
        study = agent.study
        site = make_site(tmp_path / "b" / "lab-a")
        with Agent(site, study, 0, 1, tmp_path / "b" / "state", settle=0.0) as alone:
            for batch in [
                [Acknowledge(0, 0), Poll(1)],
                [Ask(1, Message("train", model(study, 0.01)))],
                [Acknowledge(1, 1), Poll(2), Evaluate(1, model(study), measure=True)],
            ]:
                mine, theirs = asked(agent, *batch), asked(alone, *batch)
                assert not any(isinstance(one, Refused) for one in theirs), theirs
                bodies = [encode_replies(agent.envelope, one) for one in (mine, theirs)]
                assert bodies[0] == bodies[1]
        assert agent.buffer.trained() == {1: SAMPLES}
        assert kills == {"estimated": 0, "answer": 0}

        # one that is killed whenever it tries is a refusal, and costs no data
        monkeypatch.setattr(worker, "ATTEMPTS", 1)
        kills["answer"] = 1
        request = Ask(2, Message("train", model(study)))
        (reply,) = asked(agent, request)
        assert isinstance(reply, Refused) and "may be short of memory" in reply.reason
        assert agent.buffer.kept(2) is None
        (reply,) = asked(agent, request)
        assert isinstance(reply, Answered) and reply.samples == SAMPLES

        # what fails in it is told as in one process, and it goes on
        pid = agent.work.pid
        wrong = {name: leaf.astype(np.float64) for name, leaf in model(study).items()}
        (reply,) = asked(agent, Evaluate(1, wrong))
        assert isinstance(reply, Refused) and "is float64, not float32" in reply.reason
        with pytest.raises(InputError, match="matches no file"):
            agent.work.first_held_out(["/nowhere/else.csv"])
        with pytest.raises(WorkerFailed) as failed:
            agent.work.answer(1)
        assert failed.value.kind == "TypeError"
        assert agent.work.pid == pid
    assert not runs(pid)


@pytest.mark.deploy
def test_it_rests_when_it_is_idle_and_comes_back(tmp_path: Path) -> None:
    with started(tmp_path, idle=0.2) as agent:
        asked(agent, Poll(1))
        agent.work.facts()
        pid = agent.work.pid
        agent.work.rest()
        assert agent.work.pid == pid  # not yet
        stream = agent.work.estimated(agent.intake.beliefs, None, 0)
        assert isinstance(next(stream), Estimated)
        time.sleep(0.25)
        agent.work.rest()
        assert agent.work.pid == pid  # at work, and others may ask it meanwhile
        (reply,) = asked(agent, Ask(1, Message("train", model(agent.study))))
        assert isinstance(reply, Answered)
        assert len(list(stream)) == 5 and agent.work.pid == pid
        time.sleep(0.25)
        agent.work.rest()
        assert agent.work.pid is None and not runs(pid)
        asked(agent, Acknowledge(0, 0), Poll(1))
        assert agent.work.pid is None  # nothing to compute
        (reply,) = asked(agent, Evaluate(0, model(agent.study)))
        assert isinstance(reply, Evaluated) and runs(agent.work.pid)


@pytest.mark.deploy
def test_it_ends_with_its_agent_however_that_ends(tmp_path: Path) -> None:
    """Also in the midst of a computation."""
    make_site(tmp_path / "lab-a")
    code = f"""
import sys, threading, time
from pathlib import Path
from unit.deploy.site_lab import make_study
from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.site.worker import Worker
site = SiteFile.load({str(tmp_path / "lab-a" / "site.toml")!r})
worker = Worker(site, make_study(Path({str(tmp_path)!r})), 0, 1, 60.0)
worker.facts()
print(worker.pid, flush=True)
while True:
    worker.survey()
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path)))}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert runs(pid)
        os.kill(pid, signal.SIGTERM)  # to the whole group, when the site is stopped: not yet
        time.sleep(0.2)
        assert runs(pid)
        parent.kill()
        until(lambda: not runs(pid), 10.0)


@pytest.mark.deploy
def test_an_agents_memory_stays_flat_while_workers_come_and_go(tmp_path: Path) -> None:
    """3,000 requests, by an agent as a process of its own; its worker is killed, and rests."""
    make_site(tmp_path / "lab-a", 4)
    code = f"""
import os, signal, sys, time
from pathlib import Path
import numpy as np
from unit.deploy.site_lab import asked, make_study
from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.site import worker
from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.worker import Worker
from fedkoopman.deploy.wire import Acknowledge, Answered, Ask, Evaluate, Evaluated, Poll, Polled
from fedkoopman.federation.messages import Message

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024

folder = Path({str(tmp_path)!r})
site = SiteFile.load(folder / "lab-a" / "site.toml")
study = make_study(folder, slots=1000, clients__probability=1.0)
worker = Worker(site, study, 0, 1, 0.0)
sizes, pids = [], set()
with Agent(site, study, 0, 1, folder / "state", work=worker, settle=0.0) as agent:
    fields = worker.facts().schemas["train"].arrays
    random = np.random.default_rng(0)
    for slot in range(1, 1001):
        weights = {{n: random.normal(0, 0.1, f.shape).astype(f.dtype) for n, f in fields.items()}}
        _, polled = asked(agent, Acknowledge(slot - 1, slot - 1), Poll(slot))
        (update,) = asked(agent, Ask(slot, Message("train", weights)))
        (scores,) = asked(agent, Evaluate(slot, weights))
        assert isinstance(polled, Polled) and polled.buffered == 40, polled
        assert isinstance(update, Answered) and isinstance(scores, Evaluated), (update, scores)
        pids.add(worker.pid)
        if slot % 200 == 100:
            os.kill(worker.pid, signal.SIGKILL)
        if slot % 200 == 0:
            worker.rest()
            assert worker.pid is None
            sizes.append(resident())
    trained = agent.buffer.account().trained
assert "jax" not in sys.modules
print(len(pids), trained, *sizes)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, filter(None, sys.path)))}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=1800
    )
    assert run.returncode == 0, run.stderr
    workers, trained, *sizes = map(int, run.stdout.split())
    print(f"{workers} workers; resident after 600, 1,200, … requests: {sizes} KB")
    assert workers >= 10
    assert trained == 999 * SAMPLES
    assert sizes[-1] - sizes[0] < 2_000
    assert sizes[-1] < 90_000
