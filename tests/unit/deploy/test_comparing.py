"""Served runs compare models as local ones do, byte for byte, and believe no lies about it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.in_memory import LABS, Sites, only, small_study

from fedkoopman.deploy.server.comparing import check_compared
from fedkoopman.deploy.wire import Answered, Ask, Refused, decode_replies, encode_requests
from fedkoopman.federation.algorithm import Problem
from fedkoopman.federation.messages import Message
from fedkoopman.runs.comparison import Holdings, answer
from fedkoopman.runs.run import run

MODELS = ("holding", "alone", "dmd", "edmd", "federated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("comparing")


@pytest.fixture(autouse=True)
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture
def sites(folder: Path, tmp_path: Path) -> Iterator[Sites]:
    found = Sites(small_study(folder / "study", {"network.kind": "edmd"}), tmp_path / "sites")
    yield found
    found.close()


def benefit_in(out: Path) -> str:
    return json.dumps(json.loads((out / "summary.json").read_text())["benefit"])


@pytest.mark.parametrize(
    "kind", ["paper", "edmd", pytest.param("spectral", marks=pytest.mark.slow)]
)
def test_the_table_is_that_of_a_local_run_byte_for_byte(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    study = small_study(folder / "study", {"network.kind": kind})
    run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    said: list[str] = []
    sites.serve(tmp_path / "served", say=said.append)
    sites.close()
    assert benefit_in(tmp_path / "served") == benefit_in(tmp_path / "local")
    found = json.loads(benefit_in(tmp_path / "served"))
    assert list(found["sites"]) == list(LABS)
    for own in found["sites"].values():
        assert list(own) == list(MODELS)
        assert all(isinstance(v, float) for name in MODELS for v in own[name])
    assert found["sentence"] in said


def served(sites: Sites, out: Path) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    summary = sites.serve(out, say=said.append)
    assert summary is not None and summary["finished"]
    return summary.get("benefit", {}), said


def lying(kind: str, **arrays: Any) -> Any:
    """A change of a reply of this kind."""

    def change(reply: Answered) -> Answered:
        if reply.message.kind != kind:
            return reply
        given = {name: f(reply.message.arrays[name]) for name, f in arrays.items()}
        return replace(reply, message=Message(kind, {**reply.message.arrays, **given}))

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lying("compared-errors", federated=lambda x: -x), "errors below zero"),
        pytest.param(
            lying("compared-errors", dmd=lambda x: x[:2]), "of shape (2,)", marks=pytest.mark.slow
        ),
        (lying("sums-to-compare", **{"edmd.gram": lambda x: -x}), "that are none"),
        pytest.param(
            lying("sums-to-compare", **{"dmd.pairs": lambda x: x - 1e6}),
            "less than nothing",
            marks=pytest.mark.slow,
        ),
        (lying("sums-to-compare", **{"dmd.shift": lambda x: x * np.nan}), "not finite"),
        pytest.param(
            lying("scale-to-compare", squares=lambda x: -x),
            "squares below zero",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["negative", "shape", "gram", "count", "nan", "squares"],
)
def test_a_lie_is_left_out_and_said(sites: Sites, tmp_path: Path, change: Any, reason: str) -> None:
    sites.twist = only(change, "lab-b", Answered)
    found, said = served(sites, tmp_path / "out")
    assert list(found["sites"]) == ["lab-a", "lab-c"]
    [line] = [line for line in said if "left out of the comparison" in line]
    assert "lab-b" in line and reason in line


def test_sums_far_from_the_others_do_not_count(sites: Sites, tmp_path: Path) -> None:
    change = lying("scale-to-compare", squares=lambda x: x * 1e12)
    sites.twist = only(change, "lab-b", Answered)
    found, said = served(sites, tmp_path / "out")
    assert any("sums of lab-b are far from the others'" in line for line in said)
    assert all(own["edmd"][0] < 0.1 for own in found["sites"].values())


def test_a_site_that_refuses_is_missing_and_the_run_ends(sites: Sites, tmp_path: Path) -> None:
    def twist(site: str, requests: tuple, replies: tuple) -> tuple:
        asked = requests[0]
        compare = isinstance(asked, Ask) and asked.message.kind.startswith("compare-")
        return (Refused(site, "not here"),) if compare and site == "lab-c" else replies

    sites.twist = twist
    assert list(served(sites, tmp_path / "out")[0]["sites"]) == ["lab-a", "lab-b"]


def test_if_nobody_compares_the_run_ends_without_a_table(sites: Sites, tmp_path: Path) -> None:
    def twist(site: str, requests: tuple, replies: tuple) -> tuple:
        asked = requests[0]
        compare = isinstance(asked, Ask) and asked.message.kind.startswith("compare-")
        return (Refused(site, "not here"),) if compare else replies

    sites.twist = twist
    assert not served(sites, tmp_path / "out")[0]


def test_a_site_that_takes_long_is_asked_again_and_computes_once(
    sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, late = list[str](), {"lab-a": 1}

    def counted(problem: Problem, request: Message, holdings: Holdings) -> Message:
        computed.append(request.kind)
        return answer(problem, request, holdings)

    monkeypatch.setattr("fedkoopman.deploy.site.work.comparison.answer", counted)

    def twist(site: str, requests: tuple, replies: tuple) -> tuple | None:
        asked = requests[0]
        if isinstance(asked, Ask) and asked.message.kind == "compare-errors" and late.pop(site, 0):
            return None
        return replies

    sites.twist = twist
    found, _ = served(sites, tmp_path / "out")
    assert list(found["sites"]) == list(LABS)
    assert computed.count("compare-errors") == len(LABS)


def test_nothing_is_compared_before_the_last_slot(sites: Sites) -> None:
    agent = sites.start("lab-a")
    for slot, word in ((1, "after slot 6"), (6, "scale-to-compare")):
        body = encode_requests(agent.envelope, [Ask(slot, Message("compare-scale"))])
        [reply] = decode_replies(agent.exchange(body, "a test"))[1]
        assert isinstance(reply, Refused | Answered)
        assert word in (reply.reason if isinstance(reply, Refused) else reply.message.kind)


def test_states_that_were_deleted_are_not_compared_with(folder: Path, tmp_path: Path) -> None:
    study = small_study(folder / "study", {"sites.repeat": False})
    sites = Sites(study, tmp_path / "sites")
    found, _ = served(sites, tmp_path / "out")
    sites.close()
    for own in found["sites"].values():
        assert own["federated"][0] > 0 and own["alone"][0] is None and own["dmd"][0] is None


def test_a_reply_of_nothing_can_be() -> None:
    nothing = {"count": np.zeros(1), "total": np.zeros(2), "squares": np.zeros(2)}
    assert check_compared(Message("scale-to-compare", nothing)) == ""
    errors = {"holding": np.array([0.1, np.nan, np.inf])}
    assert check_compared(Message("compared-errors", errors)) == ""
