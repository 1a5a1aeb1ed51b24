"""The agent as a process: killed at any moment, stopped, started twice, without consent."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from unit.deploy.site_lab import SAMPLES, Process, make_site, make_study, write_recording

from fedkoopman.config.study import Study
from fedkoopman.deploy.site.buffer import account_of, trained_by_slot
from fedkoopman.deploy.site.ledger import ledger_entries
from fedkoopman.deploy.site.store import FILE, reading
from fedkoopman.deploy.wire import (
    Acknowledge,
    Answered,
    Ask,
    Poll,
    Polled,
    Refused,
    digest_of,
)
from fedkoopman.errors import InputError
from fedkoopman.federation.messages import Message
from fedkoopman.runs.experiment import problem_of

pytestmark = pytest.mark.deploy  # real processes: `make test-deploy`

Start = Callable[..., Process]
EVERY = {"clients__probability": 1.0, "sites__repeat": False}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the processes compiled, as a restart takes it up."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def start(tmp_path: Path, cache: Path) -> Iterator[Start]:
    started: list[Process] = []

    def make(study: Study, files: int = 6, **data: object) -> Process:
        site = make_site(tmp_path / "lab-a", files, **data)
        started.append(Process(tmp_path, site, study, cache))
        return started[-1]

    yield make
    for process in started:
        process.remove()


def model(study: Study) -> dict[str, np.ndarray]:
    parts = problem_of(study, study.seed, 1)
    kind = parts.architecture
    return kind.named(kind.initialise(seed=1, dtype=np.dtype(np.float32)))


def until(condition: Callable[[], bool], said: Callable[[], str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, said()
        time.sleep(0.02)


def test_a_working_life(tmp_path: Path, start: Start) -> None:
    study = make_study(tmp_path, **EVERY)
    agent = start(study)
    agent.start()
    assert agent.ask(Acknowledge(0, 0), Poll(1))[1] == Polled("lab-a", 1, SAMPLES, 1)
    assert isinstance(agent.ask(Ask(1, Message("train", model(study))))[0], Answered)

    # a second one on the same state is refused
    second = subprocess.run(
        [sys.executable, "-m", "fedkoopman.deploy.site.agent_process", "--state", str(agent.state)],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert second.returncode == 2
    last = second.stderr.splitlines()[-1]
    assert last.startswith("error: ") and "in use by another agent" in last

    # without consent it falls silent, and with it goes on
    consent = agent.state / "consent.json"
    kept = consent.read_text()
    consent.unlink()
    (reply,) = agent.ask(Poll(1))
    assert isinstance(reply, Refused) and "nobody at lab-a has agreed" in reply.reason
    consent.write_text(kept)
    assert isinstance(agent.ask(Poll(1))[0], Polled)

    # its status is a file, its log has one line per record, and it ends when asked
    status = json.loads((agent.state / "status.json").read_text())
    assert (status["site"], status["recorded"], status["set_aside"]) == ("lab-a", 4, {})
    assert agent.end() == 0
    assert not agent.socket.exists()
    assert agent.log().splitlines()[-1].endswith("INFO stopped")
    assert all(line[:2] == "20" and line[19] == "Z" for line in agent.log().splitlines())
    entries = ledger_entries(agent.state)
    assert entries[0].peer.startswith("127.0.0.1:21001 (process ")

    # a damaged store ends it in one line, with the code that says: do not try again
    (agent.state / FILE).write_bytes(os.urandom(10_000))
    agent.start()
    assert agent.wait() == 2
    last = agent.log().splitlines()[-1]
    assert last.startswith("error: ") and "restore the site's state from a backup" in last
    consent.write_text("{}")
    agent.start()
    assert agent.wait() == 2
    assert "nobody at lab-a has agreed" in agent.log().splitlines()[-1]


def test_live_files_arrive_while_it_runs(tmp_path: Path, start: Start) -> None:
    agent = start(make_study(tmp_path, sites__arrivals="live"), 0)
    agent.start()
    assert agent.ask(Poll(1))[0] == Polled("lab-a", 1, 0, 0)
    data = tmp_path / "lab-a" / "data"
    write_recording(data / "a.csv", 1)
    (data / "bad.csv").write_text("x,v\n1,oops\n")

    def status() -> dict[str, object]:
        return json.loads((agent.state / "status.json").read_text())

    until(lambda: status()["segments"] == 1 and bool(status()["set_aside"]), agent.log)
    assert agent.ask(Acknowledge(1, 0), Poll(2))[1] == Polled("lab-a", 2, SAMPLES, 1)
    assert "oops" in agent.log()

    # where its socket is cleared away it ends, to be started again
    agent.socket.unlink()
    assert agent.wait() == 1
    assert "is gone, as its directory was cleared" in agent.log().splitlines()[-1]


SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))]


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_at_any_moment_neither_lose_nor_double(
    tmp_path: Path, start: Start, seed: int
) -> None:
    """The server asks until it is answered; the agent is killed again and again meanwhile."""
    luck = random.Random(seed)
    kills = 3 if seed == 0 else 10
    study = make_study(tmp_path, slots=40, **EVERY)
    agent = start(study, 60, held_out=0.0)
    agent.start()
    over, slot, killed = threading.Event(), 0, list[int]()

    def killer() -> None:
        patience = 0.5
        while len(killed) < kills and not over.is_set():
            until(lambda: agent.log().count(" ready after ") > len(killed), agent.log)
            # Where the machine is so slow that nothing was done in between, a little later.
            patience = min(2 * patience, 4.0) if killed and killed[-1] == slot else 0.5
            over.wait(luck.random() * patience)
            agent.end(signal.SIGKILL)
            killed.append(slot)
            agent.start()

    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    included, trained, base = 0, 0, model(study)
    digests = dict[int, str]()
    try:
        while slot < study.slots:
            slot += 1
            _, polled = agent.ask(Acknowledge(slot - 1, included), Poll(slot))
            assert isinstance(polled, Polled), polled
            if polled.buffered and luck.random() < 0.7:
                (update,) = agent.ask(Ask(slot, Message("train", base)))
                assert isinstance(update, Answered), update
                assert update.samples == polled.buffered
                if luck.random() < 0.3:
                    (again,) = agent.ask(Ask(slot, Message("train", base)))
                    assert isinstance(again, Answered)
                    assert digest_of(again.message.arrays) == digest_of(update.message.arrays)
                if luck.random() < 0.8:  # otherwise it came too late
                    included, trained = slot, trained + update.samples
                    digests[slot] = digest_of(update.message.arrays)
            time.sleep(0.03)
            if slot == study.slots - 1:
                thread.join(600)
        agent.ask(Acknowledge(study.slots, included))
    finally:
        over.set()
        thread.join(120)
    assert len(killed) == kills
    agent.end()
    with reading(agent.state) as c:
        account, by_slot = account_of(c), trained_by_slot(c)
    assert set(by_slot) == set(digests)
    assert account.trained == trained
    assert account.delivered == account.trained + account.buffered == study.slots * SAMPLES


@pytest.mark.slow
def test_a_kill_while_it_reads_its_data(tmp_path: Path, start: Start) -> None:
    study = make_study(tmp_path, **EVERY)
    agent = start(study, 60)
    agent.start()

    def count() -> int:
        try:
            with reading(agent.state) as c:
                return int(c.execute("SELECT count(*) FROM segments").fetchone()[0])
        except (InputError, sqlite3.Error):
            return 0  # it has not made its store yet

    until(lambda: count() > 3, agent.log)
    agent.end(signal.SIGKILL)
    cut = count()
    agent.start()
    assert isinstance(agent.ask(Poll(1))[0], Polled)
    agent.end()
    assert 3 < cut <= 60
    with reading(agent.state) as c:
        rows = c.execute("SELECT number, name FROM segments ORDER BY number").fetchall()
        assert rows == [(n, f"r{n:03d}") for n in range(60)]
