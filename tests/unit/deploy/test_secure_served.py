"""Served runs of which the server sees only sums: real agents and coordinator, no network."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from unit.deploy.in_memory import LABS, SMALL, Sites, small_study

from fedkoopman.config.site_file import SiteFile
from fedkoopman.config.study import Study
from fedkoopman.deploy.server import coordinator
from fedkoopman.deploy.server.status import read_status
from fedkoopman.deploy.server.summing import MASKED_STEPS
from fedkoopman.deploy.site.ledger import ledger_entries
from fedkoopman.deploy.site.preview import preview_lines
from fedkoopman.deploy.site.store import OPENED
from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Mask,
    Masked,
    Offer,
    Poll,
    Polled,
    Refused,
    Share,
    Unmask,
    decode_replies,
    encode_requests,
)
from fedkoopman.federation.slot import ask
from fedkoopman.runs.run import run

SECURE: dict[str, Any] = {"aggregation.secure": True, "clients.probability": 1.0, "slots": 3}
FIVE = (*LABS, "lab-d", "lab-e")
STEPS = {"keys": Offer, "shares": Share, "vectors": Mask, "unmasking": Unmask}


class Crash(BaseException):
    """The process ends here."""


def no_end(patch: pytest.MonkeyPatch) -> None:
    """No page, and no comparison with other models, which take longer than the slots."""
    patch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)
    patch.setattr(coordinator, "benefit_told", lambda *_: {})


@pytest.fixture(autouse=True)
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "equals" not in request.node.name:
        no_end(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with five laboratories: the last two have the data of the first two."""
    found = tmp_path_factory.mktemp("secure")
    small_study(found / "study")
    for name, like in zip(FIVE[3:], LABS, strict=False):
        shutil.copytree(found / "study" / like, found / "study" / name)
        file = found / "study" / name / "site.toml"
        file.write_text(file.read_text().replace(f'"{like}"', f'"{name}"'))
    return found


def study_of(folder: Path, names: tuple[str, ...] = LABS, **values: Any) -> Study:
    files = [f"{name}/site.toml" for name in names]
    given = {"sites.files": files, "clients.count": len(names)}
    return small_study(folder / "study", {**SECURE, **given, **values})


@pytest.fixture(scope="module")
def prepared(folder: Path) -> dict[int, Path]:
    """States of sites whose data are read, by how many there are."""
    found = {}
    for names in (LABS, FIVE):
        found[len(names)] = folder / f"prepared-{len(names)}"
        sites = Sites(study_of(folder, names), found[len(names)], names)
        for name in names:
            sites.start(name)
        sites.close()
    return found


@pytest.fixture
def opened(
    folder: Path, tmp_path: Path, prepared: dict[int, Path], request: pytest.FixtureRequest
) -> Iterator[Sites]:
    names = getattr(request, "param", LABS)
    shutil.copytree(prepared[len(names)], tmp_path / "sites")
    sites = Sites(study_of(folder, names), tmp_path / "sites", names)
    yield sites
    sites.close()


def records(out: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    for record in found:
        record.pop("seconds")
    return found


def model(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


KINDS: dict[str, dict[str, Any]] = {
    "updates": {"clients.probability": 0.7, "slots": SMALL["slots"]},
    "sums": {"network.kind": "edmd", "network.components": "auto"},
    "features and sums": {"network.kind": "spectral", "network.components": "auto", "slots": 8},
}


@pytest.mark.parametrize(
    "kind", ["updates", "sums", pytest.param("features and sums", marks=pytest.mark.slow)]
)
def test_a_served_run_equals_a_local_one(folder: Path, tmp_path: Path, kind: str) -> None:
    study = study_of(folder, **KINDS[kind])
    local = run(study, out=tmp_path / "local")
    sites = Sites(study, tmp_path / "sites")
    heard: list[Any] = []

    def listen(site: str, requests: tuple, replies: tuple) -> tuple:
        heard.extend(replies)
        return replies

    sites.twist = listen
    summary = sites.serve(tmp_path / "served")
    arrived, trained, waiting = sites.account()
    sites.close()
    assert model(tmp_path / "served") == model(tmp_path / "local")
    assert records(tmp_path / "served") == records(tmp_path / "local")
    assert summary is not None and summary | {"seconds": 0} == local.summary | {"seconds": 0}
    assert arrived == trained + waiting and trained > 0
    # In the plain the server has heard of errors alone.
    assert {one.message.kind for one in heard if isinstance(one, Answered)} == {"compared-errors"}
    words = np.concatenate([one.words for one in heard if isinstance(one, Masked)])
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-7


def vanishing(sites: Sites, step: str, gone: tuple[str, ...], slot: int) -> list[str]:
    """From a step of a slot on, some sites do not answer until the slot is over."""
    lost: list[str] = []

    def twist(site: str, requests: tuple, replies: tuple) -> tuple | None:
        last = requests[-1]
        if site in gone and isinstance(last, STEPS[step]) and last.slot == slot:
            lost.append(site)
            return None
        return replies

    sites.twist = twist
    return lost


@pytest.mark.parametrize(
    ("opened", "gone"),
    [
        pytest.param(LABS, ("lab-b",), marks=pytest.mark.slow),
        (FIVE, ("lab-b", "lab-e")),
    ],
    indirect=["opened"],
    ids=["1 of 3", "2 of 5"],
)
@pytest.mark.parametrize("step", STEPS)
def test_sites_that_vanish_are_survived(
    opened: Sites, tmp_path: Path, step: str, gone: tuple[str, ...]
) -> None:
    lost = vanishing(opened, step, gone, 2)
    said: list[str] = []
    out = tmp_path / "out"
    assert opened.serve(out, period=0.0, deadline=30.0, say=said.append) is not None
    assert set(lost) == set(gone)
    places = [opened.names.index(name) for name in gone]
    found = {record["slot"]: record for record in records(out)}
    everybody = list(range(len(opened.names)))
    if step == "unmasking":  # their vectors are in the sum
        assert found[2]["active"] == everybody and "late" not in found[2]
    else:
        assert found[2]["active"] == [n for n in everybody if n not in places]
        assert found[2]["late"] == places
    assert not any("NO SUM" in line for line in said)
    arrived, trained, waiting = opened.account()
    assert trained == sum(record["samples"] for record in found.values())
    assert arrived == trained + waiting
    assert all(site["rejected"] == 0 for site in read_status(out)["sites"].values())


@pytest.mark.parametrize("step", STEPS)
def test_below_the_threshold_a_slot_fails_and_the_next_has_all_data(
    opened: Sites, tmp_path: Path, step: str
) -> None:
    vanishing(opened, step, ("lab-a", "lab-c"), 2)
    out, said = tmp_path / "out", list[str]()
    assert opened.serve(out, say=said.append) is not None
    found = {record["slot"]: record for record in records(out)}
    assert found[2]["active"] == [] and found[2]["samples"] == 0
    assert found[2]["late"] == [0, 1, 2]
    assert found[2]["unsummed"] == "1 of 3 sites are left, and 2 are needed"
    assert [line for line in said if "NO SUM" in line] == [
        "NO SUM in slot 2: 1 of 3 sites are left, and 2 are needed; nobody's data are used, and "
        "the next slot tries again"
    ]
    arrived, trained, waiting = opened.account()
    assert trained == found[1]["samples"] + found[3]["samples"] and arrived == trained + waiting
    assert 1 in found[3]["active"] or found[3].get("alone") == [1]


@pytest.fixture(scope="module")
def whole(folder: Path, prepared: dict[int, Path]) -> Path:
    """A run that nothing happened to."""
    shutil.copytree(prepared[3], folder / "whole sites")
    sites = Sites(study_of(folder), folder / "whole sites")
    with pytest.MonkeyPatch.context() as patch:
        no_end(patch)
        sites.serve(folder / "whole")
    sites.close()
    return folder / "whole"


@pytest.mark.parametrize(
    ("step", "restart"),
    [*((step, False) for step in (*MASKED_STEPS, "checkpointed")), ("unmasked", True)],
)
def test_a_killed_server_begins_the_slot_anew_with_new_keys(
    opened: Sites, tmp_path: Path, whole: Path, step: str, restart: bool
) -> None:
    out, crashed = tmp_path / "out", list[str]()

    def crash(here: str, slot: int, _: Path) -> None:
        if (here, slot) == (step, 2) and not crashed:
            crashed.append(here)
            raise Crash

    sessions: set[str] = set()
    vectors: list[bytes] = []

    def listen(site: str, requests: tuple, replies: tuple) -> tuple:
        for one in replies:
            if isinstance(one, Masked) and one.slot == 2:
                sessions.add(one.session)
                vectors.append(one.words.tobytes())
        return replies

    opened.twist = listen
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "crash_if_asked", crash)
        with pytest.raises(Crash):
            opened.serve(out)
        if restart:  # sites' sessions are gone, what they keep is on the disk
            opened.close()
        assert opened.serve(out) is not None
    assert model(out) == model(whole) and records(out) == records(whole)
    anew = step not in ("offered", "shared", "checkpointed")
    assert len(sessions) == 1 + anew and len(set(vectors)) == len(vectors) == 3 * (1 + anew)
    arrived, trained, waiting = opened.account()
    assert trained == sum(r["samples"] for r in records(out)) and arrived == trained + waiting


@pytest.mark.parametrize("restart", [False, True])
def test_no_second_sum_of_other_sites_is_opened_in_a_slot(
    opened: Sites, tmp_path: Path, restart: bool
) -> None:
    """A server that has opened a sum, and comes again for the sum without one of the sites."""
    out, crashed, said = tmp_path / "out", list[str](), list[str]()

    def crash(here: str, slot: int, _: Path) -> None:
        if (here, slot) == ("unmasked", 2) and not crashed:
            crashed.append(here)
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "crash_if_asked", crash)
        with pytest.raises(Crash):
            opened.serve(out)
        if restart:
            opened.close()
        refusals: list[str] = []
        vanishing(opened, "keys", ("lab-b",), 2)
        lose = opened.twist

        def twist(site: str, requests: tuple, replies: tuple) -> Any:
            refusals.extend(one.reason for one in replies if isinstance(one, Refused))
            return lose(site, requests, replies)

        opened.twist = twist
        assert opened.serve(out, say=said.append) is not None
    assert sum("difference of two would show" in one for one in refusals) == 2
    found = {record["slot"]: record for record in records(out)}
    assert found[2]["active"] == [] and found[2]["unsummed"].startswith("0 of 3 sites are left")
    assert len(found[3]["active"]) >= 2  # goes on
    arrived, trained, waiting = opened.account()
    assert trained == found[1]["samples"] + found[3]["samples"] and arrived == trained + waiting


def asked(sites: Sites, name: str, *requests: Any) -> list[Any]:
    agent = sites.start(name)
    return list(decode_replies(agent.answer(encode_requests(agent.envelope, requests), "x"))[1])


def test_a_site_sends_nothing_in_the_plain(opened: Sites) -> None:
    agent = opened.start("lab-a")
    problem = agent.work.problem
    state = problem.algorithm.begin(problem)
    [polled] = asked(opened, "lab-a", Poll(1))
    assert isinstance(polled, Polled)
    message = ask(problem, state, 1, np.array([polled.buffered] * 3))[0]
    [refused] = asked(opened, "lab-a", Ask(1, message))
    assert isinstance(refused, Refused) and "only sums leave the sites" in refused.reason
    for kind in ("compare-scale", "measure", "nothing"):
        [refused] = asked(opened, "lab-a", Ask(3, replace(message, kind=kind)))
        assert isinstance(refused, Refused)
    for step in (Share(1, "s", 2, {}), Mask(1, "s", {}, message), Unmask(1, "s", ("0", "1"))):
        [refused] = asked(opened, "lab-a", step)
        assert isinstance(refused, Refused) and "not known here" in refused.reason
    [offered] = asked(opened, "lab-a", Offer(1, "s"))
    assert len(offered.keys) == 64
    [again] = asked(opened, "lab-a", Offer(1, "s"))
    assert again == offered
    [other] = asked(opened, "lab-a", Offer(1, "t"))
    assert other.keys != offered.keys
    for bad in (Offer(1, "a b"), Offer(1, "x" * 65), Offer(0, "u"), Offer(99, "u")):
        [refused] = asked(opened, "lab-a", bad)
        assert isinstance(refused, Refused)
    assert agent.buffer.account().unacknowledged == 0


def test_a_study_without_secure_aggregation_has_no_sessions(folder: Path, tmp_path: Path) -> None:
    study = study_of(folder, **{"aggregation.secure": False})
    sites = Sites(study, tmp_path / "sites")
    [refused] = asked(sites, "lab-a", Offer(1, "s"))
    sites.close()
    assert isinstance(refused, Refused) and "no secure aggregation" in refused.reason


def test_an_impossible_sum_is_refused_and_told(opened: Sites, tmp_path: Path) -> None:
    """A site that breaks the rules spoils the slot, but not the model; who it was is not known."""
    out, said = tmp_path / "out", list[str]()

    def twist(site: str, requests: tuple, replies: tuple) -> tuple:
        def changed(one: Any) -> Any:
            if not isinstance(one, Masked) or site != "lab-b":
                return one
            more = np.zeros_like(one.words)
            if one.slot == 1:
                more[-1] = 1000  # samples that nobody has
            if one.slot == 2:
                more[0] = 2**39  # in the first digit of a weight
            return replace(one, words=one.words + more)

        return tuple(map(changed, replies))

    opened.twist = twist
    assert opened.serve(out, say=said.append) is not None
    found = {record["slot"]: record for record in records(out)}
    assert "samples where" in found[1]["unsummed"]
    assert "changes the model by" in found[2]["unsummed"]
    assert found[1]["active"] == found[2]["active"] == [] and found[3]["active"] == [0, 1, 2]
    assert sum("NO SUM" in line for line in said) == 2
    assert all(site["rejected"] == 0 for site in read_status(out)["sites"].values())
    assert opened.account()[2] == 0  # all data were trained on in the end


def test_what_breaks_the_rules_of_a_session_is_rejected(opened: Sites, tmp_path: Path) -> None:
    out, said = tmp_path / "out", list[str]()

    def twist(site: str, requests: tuple, replies: tuple) -> tuple:
        def changed(one: Any) -> Any:
            if isinstance(one, Masked) and site == "lab-c":
                return replace(one, words=one.words[1:])
            return one

        return tuple(map(changed, replies))

    opened.twist = twist
    assert opened.serve(out, say=said.append) is not None
    about = read_status(out)["sites"]["lab-c"]
    assert about["rejected"] == 3 and about["set_aside"] == 3 and about["trained_samples"] == 0
    assert "masked words, not" in about["last_rejection"]
    assert all(record["active"] == [0, 1] for record in records(out))


def test_the_ledger_and_the_preview_say_what_leaves_the_site(
    opened: Sites, tmp_path: Path, folder: Path
) -> None:
    assert opened.serve(tmp_path / "out") is not None
    agent = opened.start("lab-a")
    slot, sums = json.loads(agent.store.note(OPENED) or "")
    assert slot == 3 and list(sums) == ["update"]
    agent.buffer.rewind()  # a restored server may repeat slots
    assert agent.store.note(OPENED) == ""
    opened.close()
    entries = ledger_entries(tmp_path / "sites" / "lab-a")
    kinds = {entry.kinds for entry in entries}
    assert {"offered", "shared", "masked update", "unmasked"} <= kinds
    assert "update" not in kinds and "sums-to-compare" not in kinds
    masked = [entry for entry in entries if entry.kinds == "masked update"]
    assert len(masked) == 3 and all(entry.base for entry in masked)
    assert masked[0].words.startswith("masked update of ") and "words" in masked[0].words
    site = SiteFile.load(folder / "study" / "lab-a" / "site.toml")
    lines = preview_lines(site, study_of(folder), 0, 3)
    text = "\n".join(lines)
    assert "weights after local training, masked: " in text
    assert "the server learns the sum over sites" in text
    assert "sums-to-compare" not in text and "numbers, masked" in text
