"""The server loop against real agents: equal to a local run, and exact whatever happens."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.in_memory import KNOWN, LABS, SMALL, Sites, only, small_study

from fedkoopman.config.study import Study
from fedkoopman.deploy.provisioning.kit_content import check_servable
from fedkoopman.deploy.server import coordinator, status
from fedkoopman.deploy.server.coordinator import STEPS
from fedkoopman.deploy.server.loop import main, slot_line
from fedkoopman.deploy.server.rounds import Rounds
from fedkoopman.deploy.server.status import read_status, request_readmission
from fedkoopman.deploy.wire import Answered, Ask, Evaluate, Evaluated, Failure, Poll, Polled
from fedkoopman.errors import InputError
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.run import Progress, run
from fedkoopman.runs.saved_run import load_run

SLOTS = SMALL["slots"]


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where they are looked at: they take longer than the slots."""
    if not any(word in request.node.name for word in ("equals", "page")):
        monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    return small_study(folder / "study")


@pytest.fixture(scope="module")
def prepared(folder: Path, study: Study) -> Path:
    """States of sites whose data are read."""
    sites = Sites(study, folder / "prepared")
    for name in LABS:
        sites.start(name)
    sites.close()
    return folder / "prepared"


@pytest.fixture(scope="module")
def whole(folder: Path, study: Study, prepared: Path) -> Path:
    """A run that nothing happened to."""
    shutil.copytree(prepared, folder / "whole sites")
    sites = Sites(study, folder / "whole sites")
    sites.serve(folder / "whole")
    sites.close()
    return folder / "whole"


@pytest.fixture
def sites(tmp_path: Path, study: Study, prepared: Path) -> Iterator[Sites]:
    shutil.copytree(prepared, tmp_path / "sites")
    found = Sites(study, tmp_path / "sites")
    yield found
    found.close()


def records(out: Path) -> list[dict[str, Any]]:
    """All records, without the time they took."""
    found = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    for record in found:
        assert record.pop("seconds") >= 0
    return found


def served(out: Path) -> dict[str, Any]:
    return read_status(out)["sites"]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"policy.name": "random"},
        {"policy.name": "round-robin"},
        {"policy.segments": [1, 2, 3]},
        {"aggregation.rule": "centred-clip", "aggregation.clip": 0.5},
    ],
    ids=str,
)
def test_a_served_run_equals_a_local_one(folder: Path, tmp_path: Path, values: dict) -> None:
    study = small_study(folder / "study", values)
    local = run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    told = []
    summary = sites.serve(tmp_path / "served", tell=told.append)
    arrived, trained, waiting = sites.account()
    sites.close()
    out, here = tmp_path / "served", tmp_path / "local"
    for name in ("model.safetensors", "untrained.json", "study.toml"):
        assert (out / name).read_bytes() == (here / name).read_bytes(), name
    assert records(out) == records(here)
    assert [list(record) for record in records(out)] == [list(one) for one in records(here)]
    assert summary is not None and summary | {"seconds": 0} == local.summary | {"seconds": 0}
    assert [event.slot for event in told] == list(range(1, SLOTS + 1))
    assert trained == sum(record["samples"] for record in records(here))
    assert arrived == trained + waiting
    assert json.loads((out / "run.json").read_text())["sites"] == list(LABS)
    assert "One forecast, from the first state on" not in (out / "report.html").read_text()


def test_what_sites_find_out_and_leave_out_is_the_same_in_both_engines(
    folder: Path, tmp_path: Path
) -> None:
    """An initial state that is estimated, and a recording that the filter cannot follow."""
    study = small_study(folder / "spoilt")
    site = folder / "spoilt" / "lab-a" / "site.toml"
    text = site.read_text()
    for key in ("mean", "cov"):
        text = text.replace(f"\n{key} = {KNOWN[key]}", f'\n{key} = "auto"')
    assert text.count('"auto"') == 2
    site.write_text(text)
    spoilt = folder / "spoilt" / "lab-a" / "data" / "swing-03.csv"
    header, *rows = spoilt.read_text().splitlines()
    kept = [row if i < 100 else f"{row.split(',')[0]},0.0" for i, row in enumerate(rows)]
    spoilt.write_text("\n".join([header, *kept]) + "\n")
    assert study.estimation.method == "ukf-resampled"
    local = run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    sites.serve(tmp_path / "served")
    left_out = sites.start("lab-a").intake.catalogue.dropped()
    sites.close()
    assert len(left_out) == 1
    assert left_out[0].startswith("swing-03: the filter lost track: in samples ")
    assert local.summary["sites"]["lab-a"]["dropped"] == left_out
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("local", "served")]
    assert models[0] == models[1]
    assert records(tmp_path / "local") == records(tmp_path / "served")
    kept_all = study.with_values({"estimation.lost_track": "keep"})
    assert run(kept_all).summary["sites"]["lab-a"]["dropped"] == []


@pytest.mark.parametrize(
    "step, slot",
    [
        *((step, 3) for step in STEPS),
        (STEPS[-1], SLOTS),
        pytest.param("trained", 1, marks=pytest.mark.slow),
        pytest.param(STEPS[-2], SLOTS, marks=pytest.mark.slow),
    ],
)
def test_a_crash_changes_nothing(
    step: str, slot: int, sites: Sites, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(now: str, m: int, _: Path) -> None:
        if (now, m) == (step, slot):
            raise Crash

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(coordinator, "crash_if_asked", crash)
        sites.serve(tmp_path / "out")
    if slot == 3:
        sites.close()  # they are started again with what is in their stores
    told: list[Any] = []
    assert sites.serve(tmp_path / "out", tell=told.append) is not None
    out = tmp_path / "out"
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert records(out) == records(whole)
    arrived, trained, waiting = sites.account()
    assert trained == sum(record["samples"] for record in records(whole))
    assert arrived == trained + waiting
    assert trained == sum(site["trained_samples"] for site in served(out).values())


def test_a_straggler_keeps_its_data(sites: Sites, tmp_path: Path) -> None:
    sites.twist = lambda site, requests, replies: (
        None if site == "lab-b" and requests[0] == at_slot(Ask, 3, requests) else replies
    )
    said: list[str] = []
    assert sites.serve(tmp_path / "out", say=said.append) is not None
    found = records(tmp_path / "out")
    assert [r["slot"] for r in found] == list(range(1, SLOTS + 1))
    assert found[2]["late"] == [1] and 1 not in found[2]["active"]
    assert found[3]["buffered"][1] >= found[2]["buffered"][1]
    assert any("lab-b did not answer" in line for line in said)
    assert "site lab-b answers again" in said
    arrived, trained, waiting = sites.account()
    assert trained == sum(r["samples"] for r in found) and arrived == trained + waiting


def at_slot(kind: type, slot: int, requests: tuple) -> Any:
    """The first request, if it is of a kind and slot."""
    first = requests[0]
    return first if isinstance(first, kind) and first.slot == slot else None


def test_a_site_that_is_away_for_some_slots_comes_back(sites: Sites, tmp_path: Path) -> None:
    def tell(event: Any) -> None:
        if event.slot == 1:
            sites.away.add("lab-c")
        elif event.slot == 4:
            sites.away.clear()

    assert sites.serve(tmp_path / "out", tell=tell) is not None
    found = records(tmp_path / "out")
    assert [r.get("missing", []) for r in found] == [[], [], [2], [2], [2], []]
    assert all(2 not in r["active"] for r in found[2:5])
    arrived, trained, waiting = sites.account()
    assert trained == sum(r["samples"] for r in found) and arrived == trained + waiting


def test_a_silent_site_is_asked_less_and_less_often(folder: Path, tmp_path: Path) -> None:
    study = small_study(folder / "study", {"slots": 20})
    sites = Sites(study, tmp_path / "sites")
    sites.twist = lambda site, requests, replies: None if site == "lab-a" else replies
    assert sites.serve(tmp_path / "out", wait_for=2) is not None
    asked = [r.slot for name, batch in sites.asked for r in batch if isinstance(r, Poll)
             and name == "lab-a"]  # fmt: skip
    sites.close()
    assert sorted(set(asked)) == [1, 2, 4, 8, 16]


def test_sites_may_join_and_be_revoked_while_it_runs(
    study: Study, tmp_path: Path, prepared: Path
) -> None:
    shutil.copytree(prepared, tmp_path / "sites")
    sites = Sites(study, tmp_path / "sites", LABS[:2])

    def tell(event: Any) -> None:
        if event.slot == 1:
            sites.names = LABS
        elif event.slot == 3:
            sites.revoked.add("lab-a")

    assert sites.serve(tmp_path / "out", tell=tell) is not None
    found = records(tmp_path / "out")
    sites.close()
    assert [len(r["buffered"]) for r in found] == [2, 2, 3, 3, 3, 3]
    assert any(2 in r["active"] for r in found[2:])
    assert all(0 not in r["active"] for r in found[4:])
    assert json.loads((tmp_path / "out" / "run.json").read_text())["sites"] == list(LABS)
    assert served(tmp_path / "out")["lab-a"]["revoked"] == "now"


def test_without_anybody_it_waits_and_says_so_once(sites: Sites, tmp_path: Path) -> None:
    said: list[str] = []

    def tell(event: Any) -> None:
        if event.slot == 2:
            sites.away.update(LABS)
            threading.Timer(1.0, sites.away.clear).start()

    assert sites.serve(tmp_path / "out", tell=tell, say=said.append) is not None
    assert said.count("waiting for lab-a, lab-b, lab-c") == 1
    assert [r["slot"] for r in records(tmp_path / "out")] == list(range(1, SLOTS + 1))


@pytest.mark.parametrize("wait_for", [None, 2])
def test_the_first_slot_waits_for_sites(sites: Sites, tmp_path: Path, wait_for: int | None) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        sites.away.clear()  # lab-b comes when it is asked for

    sites.away.add("lab-b")
    summary = sites.serve(tmp_path / "out", wait_for=wait_for, say=say)
    first = records(tmp_path / "out")[0]
    assert summary is not None
    if wait_for is None:
        assert said[0] == "waiting for lab-b"
    else:  # it is missed only at the end
        assert said[0] in ("waiting for lab-b", "going on without lab-b")
    assert first.get("missing", []) == ([] if wait_for is None else [1])


def test_it_stops_between_steps_and_goes_on(sites: Sites, tmp_path: Path, whole: Path) -> None:
    stop, out, said = threading.Event(), tmp_path / "out", list[str]()
    tell = lambda event: stop.set() if event.slot == 2 else None  # noqa: E731
    assert sites.serve(out, tell=tell, stop=stop, say=said.append) is None
    assert said[-1].startswith("stopped after slot")
    assert read_status(out)["step"] == "stopped"
    assert sites.serve(out) is not None
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert records(out) == records(whole)


def test_a_served_run_is_loaded_where_none_of_its_sites_are(whole: Path, tmp_path: Path) -> None:
    found = load_run(shutil.copytree(whole, tmp_path / "copy"))
    assert found.sites == LABS and found.summary["finished"]
    assert found.to_frame()["slot"].tolist() == list(range(1, SLOTS + 1))
    assert found.model.feature_names_in_.tolist() == ["theta", "omega"]


def test_a_wish_to_stop_is_heard_while_sites_are_waited_for(sites: Sites, tmp_path: Path) -> None:
    stop = threading.Event()
    sites.away.update(LABS)
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    assert sites.serve(tmp_path / "out", stop=stop) is None
    assert time.monotonic() - began < 5


def test_a_site_that_missed_the_end_hears_of_it_later(sites: Sites, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()

    def crash(step: str, slot: int, _: Path) -> None:
        if (step, slot) == ("checkpointed", SLOTS):
            sites.away.add("lab-c")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "crash_if_asked", crash)
        assert sites.serve(out, say=said.append) is not None
    assert any(line.startswith("lab-c did not hear that slot") for line in said)
    before = (out / "model.safetensors").read_bytes()
    sites.away.clear()
    sites.asked.clear()
    said.clear()
    assert sites.serve(out, say=said.append) is not None
    assert "finished run" in said[0] and len(said) == 1
    assert {site for site, _ in sites.asked} == {"lab-c"}
    assert (out / "model.safetensors").read_bytes() == before
    arrived, trained, waiting = sites.account()
    assert trained == sum(r["samples"] for r in records(out)) and arrived == trained + waiting
    sites.asked.clear()
    sites.serve(out)
    assert sites.asked == []  # everybody knows


def test_slots_begin_at_a_fixed_period(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, told, until = list[float](), set[str](), Rounds.until

    def look(site: str, requests: tuple, replies: tuple) -> tuple:
        if site == "lab-a" and isinstance(requests[-1], Poll):
            began.append(time.monotonic())
        return replies

    def wait_for(rounds: Rounds, moment: float) -> None:
        told.add(json.loads((tmp_path / "out" / "status.json").read_text())["step"])
        until(rounds, moment)

    sites.twist = look
    monkeypatch.setattr(Rounds, "until", wait_for)
    assert sites.serve(tmp_path / "out", period=0.4) is not None
    assert told == {"waiting"}
    steps = np.diff(began)[1:]
    assert abs(steps.sum() - 0.4 * len(steps)) < 0.2 and (steps > 0.2).all()


def changed(reply: Answered, change: Any) -> Answered:
    arrays = {name: change(leaf) for name, leaf in reply.message.arrays.items()}
    return replace(reply, message=replace(reply.message, arrays=arrays))


LIES: dict[str, Any] = {
    "not finite": lambda r: changed(r, lambda x: x * np.nan),
    "changes the model": lambda r: changed(r, lambda x: x + 1e6),
    "samples where": lambda r: replace(r, samples=10 * r.samples),
    "another message": lambda r: replace(r, base="0" * 64),
    "for slot": lambda r: replace(r, slot=r.slot - 1),
    "speaks for": lambda r: replace(r, site="lab-a"),
}
LIES_HERE = ("not finite", "another message")


@pytest.mark.parametrize(
    "reason",  # `test_lies` has them all
    [pytest.param(n, marks=() if n in LIES_HERE else pytest.mark.slow) for n in LIES],
)
def test_a_liar_is_refused_and_set_aside(
    reason: str, folder: Path, tmp_path: Path, prepared: Path
) -> None:
    study = small_study(folder / "study", {"clients.probability": 1.0})
    shutil.copytree(prepared, tmp_path / "sites")
    sites = Sites(study, tmp_path / "sites")
    sites.twist = only(LIES[reason], "lab-b", Answered)
    said: list[str] = []
    assert sites.serve(tmp_path / "out", say=said.append) is not None
    sites.close()
    found, about = records(tmp_path / "out"), served(tmp_path / "out")
    assert about["lab-b"]["rejected"] == 3 and reason in about["lab-b"]["last_rejection"]
    assert about["lab-b"]["set_aside"] == 3 and about["lab-b"]["trained_samples"] == 0
    assert sum("REJECTED" in line for line in said) == 3
    assert sum("SET ASIDE: site lab-b" in line for line in said) == 1
    assert all(1 not in r["active"] for r in found[3:])
    assert all(r["set_aside"] == [1] for r in found[3:])
    spent = reason not in ("another message", "for slot", "speaks for")
    assert [r.get("refused") for r in found[:3]] == ([[1]] * 3 if spent else [None] * 3)
    assert about["lab-a"]["rejected"] == about["lab-c"]["rejected"] == 0
    assert all(np.isfinite(r["E"]) for r in found)


def test_a_site_is_taken_back_on_request(folder: Path, tmp_path: Path, prepared: Path) -> None:
    study = small_study(folder / "study", {"clients.probability": 1.0})
    shutil.copytree(prepared, tmp_path / "sites")
    sites, out, said = Sites(study, tmp_path / "sites"), tmp_path / "out", list[str]()
    sites.twist = only(LIES["not finite"], "lab-b", Answered)

    def tell(event: Any) -> None:
        if event.slot == 3:
            sites.twist = lambda site, requests, replies: replies
            request_readmission(out, "lab-b")

    with pytest.raises(InputError, match=r"no .*status.json"):
        request_readmission(out, "lab-b")
    assert sites.serve(out, tell=tell, say=said.append) is not None
    sites.close()
    assert "site lab-b is taken back" in said
    assert not list((out / "readmit").iterdir())
    assert [1 in r["active"] for r in records(out)] == [True, True, True, False, True, True]
    with pytest.raises(InputError, match="is not set aside"):
        request_readmission(out, "lab-b")
    with pytest.raises(InputError, match="unknown site 'lab-x'"):
        request_readmission(out, "lab-x")


@pytest.mark.parametrize(
    "claim, reason",
    [
        ({"segments": 0}, "samples in 0 segments"),
        ({"segments": 100}, "though one arrives per slot"),
        ({"buffered": 10**12}, "more than is plausible"),
    ],
)
def test_absurd_counts_are_refused(claim: dict, reason: str, sites: Sites, tmp_path: Path) -> None:
    sites.twist = only(lambda r: replace(r, **({"buffered": 100} | claim)), "lab-c", Polled)
    assert sites.serve(tmp_path / "out") is not None
    about, found = served(tmp_path / "out")["lab-c"], records(tmp_path / "out")
    assert reason in about["last_rejection"] and about["set_aside"]
    assert all(2 not in r["active"] for r in found)


def test_one_sites_odd_scores_do_not_spoil_the_record(sites: Sites, tmp_path: Path) -> None:
    said: list[str] = []
    odd = {"nan": float("nan"), "huge": 1e300}

    def lie(reply: Any) -> Any:
        value = odd["nan" if reply.slot < 3 else "huge"]
        return replace(reply, metrics={name: min(value, 50) if name == "horizon" else value
                                       for name in reply.metrics})  # fmt: skip

    sites.twist = only(lie, "lab-a", Evaluated)
    assert sites.serve(tmp_path / "out", say=said.append) is not None
    found = records(tmp_path / "out")
    assert all(r["E"] is not None and r["E"] < 1e3 for r in found)
    assert found[0]["unscored"] == [0] and found[-1]["unscored"] == [0]
    assert any("not averaged in" in line for line in said)
    assert served(tmp_path / "out")["lab-a"]["rejected"] == 0


def test_garbage_is_rejected_and_errors_are_only_told(sites: Sites, tmp_path: Path) -> None:
    said: list[str] = []

    def twist(site: str, requests: tuple, replies: tuple) -> Any:
        if site == "lab-a" and isinstance(requests[0], Ask):
            return b"\x00\x00\x00\x02{}garbage"
        if site == "lab-b" and isinstance(requests[0], Ask):
            return Failure("the agent is not there")
        return replies

    sites.twist = twist
    assert sites.serve(tmp_path / "out", say=said.append) is not None
    about = served(tmp_path / "out")
    assert about["lab-a"]["rejected"] == 3 and about["lab-a"]["set_aside"]
    assert about["lab-b"]["rejected"] == 0 and about["lab-b"]["trained_samples"] == 0
    assert "site lab-b: the agent is not there" in said


def test_a_page_shows_a_run_that_goes_on(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, shown = tmp_path / "out", list[str]()

    refresh, writers = status.LivePage.refresh, set[str]()

    def refreshed(page: status.LivePage) -> None:
        refresh(page)
        assert page._page is not None
        wait([page._page])
        if (out / "report.html").exists():
            shown.append((out / "report.html").read_text())
        writers.update(thread.name for thread in threading.enumerate() if "page" in thread.name)

    monkeypatch.setattr(status, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr(status.LivePage, "refresh", refreshed)
    assert sites.serve(out) is not None
    assert "Not finished: slot" in shown[0]
    assert len(shown) > 1
    assert len(writers) == 1, "or else the C library keeps a page's memory for each"
    last = (out / "report.html").read_text()
    assert "Not finished" not in last
    assert "fedkoopman serve study.toml --out again" in last
    assert '"rows":["lab-a","lab-b","lab-c"]' in last, "rows bear the sites' names"


def test_scores_are_asked_for_only_where_the_model_changed(sites: Sites, tmp_path: Path) -> None:
    assert sites.serve(tmp_path / "out") is not None
    found = records(tmp_path / "out")
    asked = {r.slot for _, batch in sites.asked for r in batch if isinstance(r, Evaluate)}
    assert asked == {0, SLOTS} | {r["slot"] for r in found if r["active"]}


@pytest.mark.parametrize(
    "values, period, message",
    [
        ({"scheme": "centralized"}, 0.0, "comparisons on one machine"),
        ({"system.unknown": {"length": 1.3}}, 0.0, "system.unknown names length"),
        ({"sites.arrivals": "live"}, 0.0, "give seconds per slot"),
    ],
)
def test_what_cannot_be_served_is_refused(
    study: Study, values: dict, period: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_servable(study.with_values(values), period)


def test_a_slot_is_told_in_a_line() -> None:
    record = {"loss": 0.12345, "E": None, "active": [0, 2], "late": [1]}
    line = slot_line(Progress(0, 3, 1500, record), LABS)
    assert line == "slot 3 of 1,500  loss 0.1235  E unknown  trained lab-a,lab-c  late lab-b"
    crowd = slot_line(Progress(0, 3, 9, record | {"active": list(range(9))}), "abcdefghi")
    assert "trained 9 sites" in crowd


@pytest.mark.parametrize("content", [None, "{", "{}", "[]"])
def test_settings_that_are_none_are_refused(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "serve.json"
    if content is not None:
        path.write_text(content)
    before = [signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert main(["--settings", str(path)]) == 2
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert capsys.readouterr().err.startswith("error: ")


def test_nothing_held_out_anywhere_is_refused(sites: Sites, tmp_path: Path) -> None:
    sites.twist = lambda site, requests, replies: tuple(
        replace(one, windows=0, metrics={}) if isinstance(one, Evaluated) else one
        for one in replies
    )
    with pytest.raises(InputError, match="no site holds anything out"):
        sites.serve(tmp_path / "out")


def test_sites_that_were_enrolled_later_have_the_highest_threshold(folder: Path) -> None:
    study = small_study(folder / "thresholds", {"policy.segments": [1, 3, 2]})
    assert problem_of(study, 0, 5).thresholds.tolist() == [1, 3, 2, 3, 3]
    assert (
        problem_of(study.with_values({"policy.segments": 2}), 0, 5).thresholds.tolist() == [2] * 5
    )
