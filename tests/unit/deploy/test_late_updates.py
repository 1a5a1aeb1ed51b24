"""Slow sites and fedbuff: an update that misses its slot is part of a later one, exactly once."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.in_memory import LABS, Sites, small_study
from unit.deploy.test_buffer import balance, stock, train

from fedkoopman.deploy.server import coordinator
from fedkoopman.deploy.site.buffer import Buffer
from fedkoopman.deploy.site.store import Store
from fedkoopman.deploy.wire import Answered, Ask, message_digest
from fedkoopman.errors import InputError
from fedkoopman.runs.run import run

VALUES = {"slots": 8, "clients.probability": 1.0, "algorithm.name": "fedbuff"}
VALUES |= {"algorithm.buffer": 2}
SLOW = "lab-c"
PATIENT = {"patience": (20.0, 20.0)}
"""A site that was late in the last slot is still asked for its scores."""


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the slots."""
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The study's folder, and states of sites whose data are read."""
    folder = tmp_path_factory.mktemp("late")
    sites = Sites(small_study(folder / "study", VALUES), folder / "sites")
    for name in LABS:
        sites.start(name)
    sites.close()
    return folder


@pytest.fixture
def sites(tmp_path: Path, prepared: Path) -> Iterator[Sites]:
    shutil.copytree(prepared / "sites", tmp_path / "sites")
    found = Sites(small_study(prepared / "study", VALUES), tmp_path / "sites")
    yield found
    found.close()


class Slow:
    """A site whose every answer to a new request comes too late for so many slots."""

    def __init__(self, slots: int, site: str = SLOW) -> None:
        self.slots, self.site = slots, site
        self.first: dict[str, int] = {}
        self.computed: dict[str, Any] = {}
        self.given: dict[str, int] = {}

    def __call__(self, name: str, requests: tuple, replies: tuple) -> Any:
        if name != self.site or not isinstance(requests[0], Ask):
            return replies
        [request], [reply] = requests, replies
        assert isinstance(reply, Answered), reply
        base = message_digest(request.message)
        self.computed.setdefault(base, reply)
        assert reply == replace(self.computed[base], message=reply.message, slot=request.slot)
        assert message_digest(reply.message) == message_digest(self.computed[base].message)
        if request.slot - self.first.setdefault(base, request.slot) < self.slots:
            return None
        self.given[base] = request.slot
        return replies


def records(out: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in one.items() if key != "seconds"} for one in found]


@pytest.mark.parametrize("slots", [1, 3])
def test_a_late_update_is_part_of_a_later_slot(slots: int, sites: Sites, tmp_path: Path) -> None:
    sites.twist = slow = Slow(slots)
    assert sites.serve(tmp_path / "out", **PATIENT) is not None
    found = records(tmp_path / "out")
    assert slow.given, "no late update was ever given"
    for base, slot in slow.given.items():
        asked, record = slow.first[base], found[slot - 1]
        assert slot > asked and found[asked - 1]["late"] == [2]
        place = record["active"].index(2)
        # Two of three others' updates are a step: one in every slot of those between.
        assert record["staleness"][place] == slot - asked
        assert slow.computed[base].samples <= found[asked - 1]["buffered"][2]
    arrived, trained, waiting = sites.account()
    assert arrived == trained + waiting and trained == sum(r["samples"] for r in found)
    # What came while it trained waited for the next request.
    lab = sites.start(SLOW).buffer
    assert sum(lab.trained().values()) == sum(slow.computed[b].samples for b in slow.given)


def test_when_nobody_is_late_it_is_the_local_run(sites: Sites, tmp_path: Path) -> None:
    run(sites.study, out=tmp_path / "local")
    assert sites.serve(tmp_path / "served") is not None
    assert records(tmp_path / "served") == records(tmp_path / "local")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "served")]
    assert models[0] == models[1]
    assert not any("late" in one for one in records(tmp_path / "served"))


@pytest.mark.parametrize(
    ("step", "slot"),
    [
        ("trained", 2),
        ("checkpointed", 3),
        pytest.param("aggregated", 3, marks=pytest.mark.slow),
        pytest.param("polled", 4, marks=pytest.mark.slow),
    ],
)
def test_a_crash_changes_nothing(
    step: str, slot: int, sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow answers included; the server and all sites are killed, and started again."""
    shutil.copytree(tmp_path / "sites", tmp_path / "other sites")
    other = Sites(sites.study, tmp_path / "other sites", twist=Slow(2))
    other.serve(tmp_path / "whole", **PATIENT)
    other.close()

    def crash(now: str, m: int, _: Path) -> None:
        if (now, m) == (step, slot):
            raise Crash

    sites.twist = Slow(2)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(coordinator, "crash_if_asked", crash)
        sites.serve(tmp_path / "out")
    sites.close()
    assert sites.serve(tmp_path / "out", **PATIENT) is not None
    assert records(tmp_path / "out") == records(tmp_path / "whole")
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "whole")]
    assert models[0] == models[1]
    arrived, trained, waiting = sites.account()
    assert arrived == trained + waiting > 0


# The site's buffer alone


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path) as store:
        stock(store, [10, 20])
        yield store


def test_a_late_update_takes_its_data_into_the_next_slot(store: Store) -> None:
    buffer = Buffer(store, lasting=True)
    assert buffer.poll(1).samples == 30
    assert train(buffer, 1) == [0.0, 1.0]
    stock(store, [40])
    assert "kept for later" in buffer.acknowledge(1, 0)
    assert buffer.acknowledge(1, 0) == ""
    for slot in (2, 3):  # not asked in slot 2
        assert buffer.poll(slot).samples == buffer.poll(slot).samples == 30
        kept = buffer.kept(slot)
        assert kept is not None and (kept.base, kept.reply) == ("model", b"model 1")
        assert balance(buffer) == (0, 70) and buffer.account().unacknowledged == 30
        if slot == 2:
            assert buffer.acknowledge(2, 0)
    assert "30 samples of slot 3" in buffer.acknowledge(3, 3)
    assert balance(buffer) == (30, 40) and buffer.trained() == {3: 30}
    assert buffer.poll(4).samples == 40 and buffer.kept(4) is None


def test_asked_for_something_else_it_trains_again_on_the_same_data(store: Store) -> None:
    buffer = Buffer(store, lasting=True)
    buffer.poll(1)
    train(buffer, 1)
    buffer.acknowledge(1, 0)
    stock(store, [40])
    buffer.poll(2)
    assert train(buffer, 2, "newer") == [0.0, 1.0]
    kept = buffer.kept(2)
    assert kept is not None and kept.reply == b"newer 2"
    buffer.acknowledge(2, 2)
    assert balance(buffer) == (30, 40)


def test_a_later_slot_waits_until_the_earlier_one_is_over(store: Store) -> None:
    buffer = Buffer(store, lasting=True)
    buffer.poll(1)
    train(buffer, 1)
    with pytest.raises(InputError, match="acknowledge first"):
        buffer.poll(2)


def test_a_late_update_survives_the_process(store: Store) -> None:
    buffer = Buffer(store, lasting=True)
    buffer.poll(1)
    train(buffer, 1)
    path = store.path
    store.close()
    with Store(path.parent if path.is_file() else path) as again:
        buffer = Buffer(again, lasting=True)
        buffer.acknowledge(1, 0)
        assert buffer.poll(2).samples == 30
        assert buffer.kept(2) is not None
        np.testing.assert_array_equal([len(one) for one in buffer.states(2)], [10, 20])
