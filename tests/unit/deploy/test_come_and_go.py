"""Sites come and go while slots go on: what is learned, what counts, and what the server keeps."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from unit.deploy.in_memory import LABS, Sites, small_study

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.roster import Enrolled, Roster
from fedkoopman.deploy.server.rounds import RAREST, Rounds
from fedkoopman.deploy.server.server_state import ServerState
from fedkoopman.deploy.server.standings import away_before
from fedkoopman.deploy.server.status import read_status
from fedkoopman.deploy.wire import Answered, Envelope, Poll
from fedkoopman.errors import InputError
from fedkoopman.runs.run import Progress, run

EDMD = {"network.kind": "edmd", "network.components": "auto", "network.width": 30}


@pytest.fixture(autouse=True)
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the slots."""
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("come and go")


@pytest.fixture
def made() -> Iterator[list[Sites]]:
    found: list[Sites] = []
    yield found
    for sites in found:
        sites.close()


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


def checkpoint(out: Path) -> dict[str, Any]:
    return load_file(out / "checkpoint" / "state.safetensors")


def test_who_is_enrolled_between_two_slots_was_silent_before(
    folder: Path, tmp_path: Path, made: list[Sites]
) -> None:
    """The same bytes, guard and all; kits of the first two know of two sites only."""
    study = small_study(folder / "study", {"clients.probability": 1.0})

    def served(name: str, sites: Sites, come: Callable[[], None]) -> Path:
        made.append(sites)
        stop = threading.Event()

        def tell(event: Progress) -> None:
            if event.slot == 2:
                come()
            if event.slot == 5:
                stop.set()  # the end of a run takes longer than all of this

        sites.serve(tmp_path / name, tell=tell, wait_for=2, stop=stop)
        return tmp_path / name

    few = Sites(study, tmp_path / "few", names=LABS[:2])
    grown = served("grown", few, lambda: setattr(few, "names", LABS))
    all_three = Sites(study, tmp_path / "three", away={"lab-c"})
    silent = served("silent", all_three, lambda: all_three.away.clear())
    assert few.agents["lab-a"].work.problem.clients == 2
    assert records(grown)[0]["buffered"] == [300, 300]
    # It is enrolled in the midst of slot 3, whose first round is over.
    assert [2 in one["active"] for one in records(grown)] == [False] * 3 + [True] * 2
    assert [one["active"] for one in records(grown)] == [one["active"] for one in records(silent)]
    after, other = checkpoint(grown), checkpoint(silent)
    assert {n: x.tobytes() for n, x in after.items()} == {n: x.tobytes() for n, x in other.items()}
    assert json.loads((grown / "run.json").read_text())["sites"] == list(LABS)


def played(
    study: Study, sites: Sites, out: Path, events: dict[int, Callable[[], None]]
) -> tuple[dict[int, tuple[int, int]], list[str]]:
    """Serve a study with events after slots, the server being started anew after each of them.

    Gives the sizes of what the server keeps, by slot, and what it said.
    """
    said: list[str] = []
    sizes: dict[int, tuple[int, int]] = {}
    done = set[int]()

    def tell(event: Progress) -> None:
        state, status = out / "checkpoint" / "state.safetensors", out / "status.json"
        sizes[event.slot] = state.stat().st_size, status.stat().st_size
        if event.slot in events and event.slot not in done:
            done.add(event.slot)
            events[event.slot]()
            stop.set()

    summary = None
    while summary is None:
        stop = threading.Event()
        summary = sites.serve(out, tell=tell, stop=stop, patience=(1.0, 30.0), say=said.append)
    assert done == set(events)
    return sizes, said


@pytest.mark.parametrize("slots", [36, pytest.param(360, marks=pytest.mark.slow)])
def test_sums_are_those_of_all_data_whoever_was_away(
    folder: Path, tmp_path: Path, made: list[Sites], slots: int
) -> None:
    """A site leaves in the midst of a slot, one is revoked and taken back, one loses its answer."""
    study = small_study(folder / "study", {**EDMD, "slots": slots})
    local = run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    made.append(sites)
    third, lost = slots // 3, []

    def twist(site: str, requests: tuple, replies: tuple) -> tuple | None:
        """The answer of lab-b in which it spends its data is lost, and it is gone at once."""
        if site == "lab-b" and lost == ["soon"] and any(isinstance(x, Answered) for x in replies):
            lost.append("now")
            sites.away.add("lab-b")
            return None
        return replies

    def leaves() -> None:
        sites.away.add("lab-c")  # asked in this slot, and silent
        sites.stop("lab-c")

    def returns() -> None:
        sites.away.discard("lab-c")
        sites.revoked.add("lab-a")
        sites.stop("lab-a")
        lost.append("soon")

    def all_return() -> None:
        sites.revoked.clear()
        sites.away.clear()

    sites.twist = twist
    events = {third: leaves, 2 * third: returns, slots - 4: all_return}
    sizes, said = played(study, sites, tmp_path / "served", events)
    assert lost == ["soon", "now"]
    # A server that is started again waits for whom it had in its last slot, and for no others.
    assert [line for line in said if line.startswith("going on without")] == [
        "going on without lab-c"
    ]
    arrived, trained, waiting = sites.account()
    there = records(tmp_path / "served")
    missing = {place for one in there for place in one.get("missing", ())}
    assert 2 in missing and any(0 not in one["active"] for one in there)
    # Nothing is lost and nothing counts twice, so the model is that of all data in one place.
    segments = sum(len(one["arrived"]) for one in records(tmp_path / "local"))
    assert (waiting, trained) == (0, arrived)
    theirs, whole = checkpoint(tmp_path / "served"), checkpoint(tmp_path / "local")
    sums = [name for name in theirs if name.startswith("sums.")]
    assert theirs["sums.pairs"].tolist() == whole["sums.pairs"].tolist() == [arrived - segments]
    for name in sums:
        size = np.abs(whole[name]).max(initial=0.0)
        np.testing.assert_allclose(theirs[name], whole[name], rtol=0, atol=1e-12 * size)
    ours, other = (load_file(tmp_path / name / "model.safetensors") for name in ("local", "served"))
    for key, leaf in ours.items():
        np.testing.assert_allclose(other[key], leaf, rtol=1e-4, atol=1e-7, err_msg=key)
    assert np.isfinite(local.summary["E"]["mean"])
    # The server keeps no more after many slots than after some, numbers being longer by digits.
    early, late = sizes[third - 1], sizes[slots - 1]
    assert abs(late[0] - early[0]) < 600 and abs(late[1] - early[1]) < 600
    assert all(site["last_seen"] for site in read_status(tmp_path / "served")["sites"].values())


def test_a_slot_waits_while_fewer_sites_than_the_study_needs_can_be_reached(
    folder: Path, tmp_path: Path, made: list[Sites], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedkoopman.deploy.server.rounds.PAUSE", 0.01)
    study = small_study(folder / "study", {"clients.least": 2, "clients.probability": 1.0})
    assert small_study(folder / "study").digest() != study.digest()
    sites = Sites(study, tmp_path / "sites", away={"lab-a", "lab-b"})
    made.append(sites)
    said, stop = list[str](), threading.Event()

    def tell(event: Progress) -> None:
        if event.slot == 4:
            stop.set()
        if event.slot == 2:
            sites.away |= {"lab-a", "lab-b"}  # in the midst of slot 3, which goes on without them

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("waiting for sites"):  # first one returns, in the next wait the other
            sites.away.discard("lab-b" if active_so_far() == 0 else "lab-a")

    def active_so_far() -> int:
        path = tmp_path / "served" / "records.jsonl"
        return len(records(tmp_path / "served")) if path.exists() else 0

    sites.serve(tmp_path / "served", tell=tell, wait_for=1, say=say, stop=stop)
    waits = [line for line in said if line.startswith("waiting for sites")]
    assert (
        waits
        == [
            "waiting for sites: 1 can be reached, and the study needs 2 (clients.least); away: "
            "lab-a, lab-b"
        ]
        * 2
    )
    active = [one["active"] for one in records(tmp_path / "served")]
    assert active == [[1, 2], [1, 2], [2], [0, 2]]
    with pytest.raises(InputError, match=r"clients.least is 4 but clients.count is 3"):
        small_study(folder / "study", {"clients.least": 4}).check(sites=False)


def test_a_restarted_server_knows_who_was_gone_already() -> None:
    roster = Roster("", False, tuple(Enrolled(name, n, "", "") for n, name in enumerate("abcd")))
    last = ServerState(5, {}, pending={"slot": 5, "buffered": [0, 0, 9], "missing": [1]})
    assert away_before(last, roster) == {"b", "d"}  # d was enrolled meanwhile
    assert away_before(ServerState(0, {}), roster) == set()


def test_who_is_connected_and_silent_costs_ever_fewer_deadlines() -> None:
    """And one that is revoked is forgotten."""

    class Fleet:
        def online(self) -> dict[str, int]:
            return {"a": 0, "b": 1}

        def exchange(self, bodies: dict[str, bytes], deadline: float) -> Iterator[tuple]:
            yield from ()

    sites = [Enrolled(name, n, "", "") for n, name in enumerate("ab")]
    rosters = [Roster("", False, tuple(sites))]
    rounds = Rounds(
        Fleet(), lambda: rosters[-1], Envelope("0" * 64), 1.0, False, threading.Event(), print
    )  # fmt: skip
    asked = []
    for slot in range(1, 5001):
        rounds.refresh()
        if "b" in [site.name for site in rounds._reachable(slot, everybody=False)]:
            rounds._ask_from["a"] = 0  # the other one answers
            rounds.ask(slot, {"b": [Poll(slot)]})
            asked.append(slot)
    assert asked == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096]
    assert max(np.diff(asked)) == RAREST
    rosters.append(rosters[-1].revoke("b", "now"))
    rounds.refresh()
    assert set(rounds.seen) == {"a"} and not rounds._said
