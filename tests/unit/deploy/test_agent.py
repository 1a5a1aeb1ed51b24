"""What an agent answers: a closed list, exactly once, and never more than it says."""

import dataclasses
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.site_lab import SAMPLES, asked, make_site, make_study, recording, write_recording

from fedkoopman.deploy.site.agent import Agent
from fedkoopman.deploy.site.answers import ANSWERS
from fedkoopman.deploy.site.ledger import ledger_entries
from fedkoopman.deploy.site.preview import preview_lines
from fedkoopman.deploy.wire import (
    Acknowledge,
    Acknowledged,
    Answered,
    Ask,
    Envelope,
    Evaluate,
    Evaluated,
    Poll,
    Polled,
    Refused,
    decode_replies,
    digest_of,
    encode_requests,
    message_digest,
)
from fedkoopman.errors import InputError
from fedkoopman.evaluation import Metrics, combined
from fedkoopman.federation.aggregators.mean import mean
from fedkoopman.federation.messages import Message
from fedkoopman.federation.slot import ask
from fedkoopman.runs.run import run

EVERY = {"clients__probability": 1.0}
"""A segment arrives in every slot."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    site = make_site(tmp_path / "lab-a")
    study = make_study(tmp_path, sites__repeat=False, **EVERY)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        yield agent


def model(agent: Agent, shift: float = 0.0) -> dict[str, np.ndarray]:
    problem = agent.work.problem
    first = problem.algorithm.model(problem, problem.algorithm.begin(problem))
    return {name: (leaf + shift).astype(leaf.dtype) for name, leaf in first.items()}


def only(agent: Agent, request: Any, **more: Any) -> Any:
    (reply,) = asked(agent, request, **more)
    return reply


def refused(agent: Agent, request: Any, **more: Any) -> str:
    reply = only(agent, request, **more)
    assert isinstance(reply, Refused), reply
    assert reply.site == "lab-a"
    return reply.reason


@pytest.mark.parametrize(
    ("policy", "precision"),
    [
        ("threshold", "float32"),
        ("random", "float64"),
        pytest.param("threshold", "float64", marks=pytest.mark.slow),
        pytest.param("random", "float32", marks=pytest.mark.slow),
        pytest.param("round-robin", "float32", marks=pytest.mark.slow),
        pytest.param("round-robin", "float64", marks=pytest.mark.slow),
    ],
)
def test_three_agents_learn_the_model_of_the_local_engine(
    tmp_path: Path, policy: str, precision: str
) -> None:
    names = ["lab-a", "lab-b", "lab-c"]
    seed = {"threshold": 0, "random": 1, "round-robin": 2}[policy]
    study = make_study(
        tmp_path, names, policy__name=policy, training__precision=precision, seed=seed,
        training__learning_rate=[0.001, 0.002, 0.003], clients__probability=[0.5, 0.9, 0.7],
        sites__repeat=seed != 1, segments__steps=30,
        aggregation__guard="off",  # the server here is the test, which takes the mean
    )  # fmt: skip
    sites = [make_site(tmp_path / n, 5 + i, n, 10 * i) for i, n in enumerate(names)]
    agents = [
        Agent(site, study, n, 3, tmp_path / f"state-{n}", settle=0.0)
        for n, site in enumerate(sites)
    ]
    problem = agents[0].work.problem
    weights = problem.algorithm.model(problem, problem.algorithm.begin(problem))
    included, scores = [0, 0, 0], list[Metrics]()
    for slot in range(1, study.slots + 1):
        first = [
            asked(
                agent, Acknowledge(slot - 1, included[n]), Evaluate(slot - 1, weights),
                Poll(slot),
            )
            for n, agent in enumerate(agents)
        ]  # fmt: skip
        assert all(isinstance(one, Acknowledged) for one, _, _ in first)
        scores.append(combined([(Metrics(**e.metrics), e.windows) for _, e, _ in first]))
        waiting = np.array([polled.buffered for _, _, polled in first])
        active = ask(problem, weights, slot, waiting)
        updates = [only(agents[n], Ask(slot, Message("train", weights))) for n in active]
        for n in active:
            included[n] = slot
        if updates:
            models = [one.message.arrays for one in updates]
            weights = mean(weights, models, [one.samples for one in updates])
    local = run(study)
    assert digest_of(weights) == digest_of(problem.architecture.named(local.model.weights_))
    assert [one.e1 for one in scores[1:]] == [record["E1"] for record in local.records[:-1]]
    tables = {}
    for n, agent in enumerate(agents):
        asked(agent, Acknowledge(study.slots, included[n]))
        last = only(agent, Evaluate(study.slots, weights, measure=True))
        tables[agent.site] = last.scores
        assert agent.buffer.account().trained == sum(agent.buffer.trained().values())
        agent.close()
    assert tables == local.summary["sites"]
    samples = sum(record["samples"] for record in local.records)
    assert samples == sum(sum(agent_.values()) for agent_ in _trained(tmp_path))


def _trained(folder: Path) -> Iterator[dict[int, int]]:
    from fedkoopman.deploy.site.buffer import trained_by_slot
    from fedkoopman.deploy.site.store import reading

    for n in range(3):
        with reading(folder / f"state-{n}") as c:
            yield trained_by_slot(c)


def test_poll_train_acknowledge(agent: Agent) -> None:
    assert asked(agent, Acknowledge(0, 0), Poll(1)) == (
        Acknowledged("lab-a", 0),
        Polled("lab-a", 1, SAMPLES, 1),
    )
    trained = only(agent, Ask(1, Message("train", model(agent))))
    assert isinstance(trained, Answered)
    assert (trained.slot, trained.samples) == (1, SAMPLES)
    assert trained.base == message_digest(Message("train", model(agent)))
    assert asked(agent, Acknowledge(1, 1), Poll(2))[1] == Polled("lab-a", 2, SAMPLES, 1)
    assert agent.buffer.trained() == {1: SAMPLES}


def test_the_same_training_again_is_answered_from_the_store(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(agent, Poll(1))
    first = only(agent, Ask(1, Message("train", model(agent))))
    monkeypatch.setattr(agent.work, "answer", lambda *_: pytest.fail("trained twice"))
    again = only(agent, Ask(1, Message("train", model(agent))))
    assert digest_of(again.message.arrays) == digest_of(first.message.arrays)
    assert (again.base, again.samples) == (first.base, first.samples)


def test_another_model_in_the_same_slot_is_trained_anew_a_few_times(agent: Agent) -> None:
    only(agent, Poll(1))
    found = [only(agent, Ask(1, Message("train", model(agent, n)))) for n in range(ANSWERS)]
    assert len({digest_of(one.message.arrays) for one in found}) == ANSWERS
    assert {one.samples for one in found} == {SAMPLES}
    assert "different requests were answered in slot 1" in refused(
        agent, Ask(1, Message("train", model(agent, 99)))
    )
    only(agent, Acknowledge(1, 1))
    assert agent.buffer.account().trained == SAMPLES


def test_what_happens_again_after_a_restart(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-a")
    study = make_study(tmp_path, **EVERY)

    def start() -> Agent:
        return Agent(site, study, 0, 1, tmp_path / "state", settle=0.0)

    with start() as agent:
        polled = only(agent, Poll(2))
        trained = only(agent, Ask(2, Message("train", model(agent))))
    with start() as agent:
        assert only(agent, Poll(2)) == polled
        again = only(agent, Ask(2, Message("train", model(agent))))
        assert digest_of(again.message.arrays) == digest_of(trained.message.arrays)
        only(agent, Acknowledge(2, 2))
    with start() as agent:
        only(agent, Acknowledge(2, 2))
        assert agent.buffer.trained() == {2: 2 * SAMPLES}
        assert agent.status()["acknowledged"] == 2


def test_late_and_out_of_order(agent: Agent) -> None:
    only(agent, Poll(1))
    only(agent, Ask(1, Message("train", model(agent))))
    assert "acknowledge first" in refused(agent, Poll(2))
    asked(agent, Acknowledge(1, 0))
    assert "slot 1 is over" in refused(agent, Ask(1, Message("train", model(agent))))
    assert "slot 1 is over" in refused(agent, Poll(1))
    assert "slot 2 was not polled" in refused(agent, Ask(2, Message("train", model(agent))))
    assert only(agent, Poll(4)).buffered == 4 * SAMPLES
    assert only(agent, Acknowledge(0, 0)) == Acknowledged("lab-a", 0)
    assert agent.buffer.account().trained == 0


@pytest.mark.parametrize("request_", [Poll(0), Poll(13), Acknowledge(13, 0), Acknowledge(2, 3)])
def test_slots_that_are_not(agent: Agent, request_: Any) -> None:
    assert refused(agent, request_)
    assert agent.buffer.account().delivered == 0


def bad_models(good: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    nan = {name: leaf.copy() for name, leaf in good.items()}
    nan["operator"][0, 0] = np.nan
    return {
        "not finite": nan,
        "not float32": {name: leaf.astype(np.float64) for name, leaf in good.items()},
        "shape": good | {"operator": np.zeros((2, 2), np.float32)},
        "'operator'": {name: leaf for name, leaf in good.items() if name != "operator"},
    }


@pytest.mark.parametrize(
    "kind", [lambda slot, model: Ask(slot, Message("train", model)), Evaluate], ids=["ask", "score"]
)
@pytest.mark.parametrize("reason", ["not finite", "not float32", "shape", "'operator'"])
def test_a_model_of_another_form_is_refused(agent: Agent, reason: str, kind: Any) -> None:
    only(agent, Poll(1))
    assert reason in refused(agent, kind(1, bad_models(model(agent))[reason]))
    assert agent.buffer.kept(1) is None


def header(body: bytes, **changes: Any) -> bytes:
    (length,) = struct.unpack_from(">I", body)
    said = json.loads(body[4 : 4 + length]) | changes
    text = json.dumps(said).encode()
    return struct.pack(">I", len(text)) + text + body[4 + length :]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"said": [{"kind": "data", "slot": 1}]}, "there is no request or reply 'data': known are"),
        ({"said": [{"kind": "poll", "slot": 1, "states": True}]}, "fields of poll"),
        ({"said": [{"kind": "polled", "slot": 1}]}, "there is no request"),
        ({"said": [{"kind": "poll", "slot": "../../etc"}]}, "is no count"),
        ({"run": "import os"}, "unknown fields"),
    ],
)
def test_there_is_no_other_request(agent: Agent, changes: dict[str, Any], reason: str) -> None:
    body = header(encode_requests(agent.envelope, [Poll(1)]), **changes)
    (reply,) = decode_replies(agent.answer(body, "an app"))[1]
    assert isinstance(reply, Refused)
    assert reason in reply.reason
    last = ledger_entries(agent.store.path.parent)[-1]
    assert (last.peer, last.kinds) == ("an app", "refused")


@pytest.mark.parametrize("body", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(2**20)])
def test_noise_is_refused(agent: Agent, body: bytes) -> None:
    (reply,) = decode_replies(agent.answer(body, "somebody"))[1]
    assert isinstance(reply, Refused)


def test_another_study_seed_or_version_is_refused(agent: Agent) -> None:
    digest, _, seed = agent.envelope.study.partition(":")
    for study in (f"{digest}:{int(seed) + 1}", f"{'0' * 64}:{seed}", ""):
        reason = refused(agent, Poll(1), envelope=Envelope(study))
        assert "give the site the kit of this study" in reason
    reason = refused(agent, Poll(1), envelope=Envelope(agent.envelope.study, "9.9"))
    assert "the server has fedkoopman 9.9" in reason
    assert agent.buffer.account().delivered == 0


def test_without_consent_nothing_is_answered(tmp_path: Path) -> None:
    said = ["nobody agreed"]
    site, study = make_site(tmp_path / "lab-a"), make_study(tmp_path)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0, agreed=lambda: said[0]) as agent:
        assert refused(agent, Poll(1)) == "nobody agreed"
        said[0] = ""
        assert isinstance(only(agent, Poll(1)), Polled)


def test_too_many_messages_are_refused(agent: Agent) -> None:
    body = encode_requests(agent.envelope, [Poll(1)])
    replies = [decode_replies(agent.answer(body, "s"))[1][0] for _ in range(200)]
    refusals = [one for one in replies if isinstance(one, Refused)]
    assert refusals and "wait a little" in refusals[0].reason
    assert len(replies) - len(refusals) >= 40
    assert len(ledger_entries(agent.store.path.parent)) < 100
    agent.exchange(body, "s")
    assert any("came too fast" in e.words for e in ledger_entries(agent.store.path.parent))


def test_what_fails_inside_is_a_refusal(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.buffer, "poll", lambda _: 1 / 0)
    assert refused(agent, Poll(1)) == "it failed there (ZeroDivisionError): see the agent's log"
    monkeypatch.undo()
    assert isinstance(only(agent, Poll(1)), Polled)


def test_every_answer_is_in_the_ledger_before_it_leaves(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = agent.store.path.parent
    asked(agent, Acknowledge(0, 0), Evaluate(0, model(agent)), Poll(1))
    only(agent, Ask(1, Message("train", model(agent))))
    kinds = [entry.kinds for entry in ledger_entries(state)]
    assert kinds == ["acknowledged + evaluated + polled", "update"]
    monkeypatch.setattr(agent.ledger, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):  # nothing is returned
        only(agent, Poll(1))


def test_a_full_disk_is_refused_with_the_cause_and_goes_on(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-a")
    study = make_study(tmp_path, network__width=200, **EVERY)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        only(agent, Poll(1))
        with agent.store.looking() as c:
            ((used,),) = c.execute("PRAGMA page_count")
            c.execute(f"PRAGMA max_page_count = {used}")
        reason = refused(
            agent, Ask(1, Message("train", model(agent)))
        )  # an update needs some pages
        assert "full: see that its disk has room" in reason
        assert str(tmp_path) not in reason
        assert agent.buffer.kept(1) is None
        for _ in range(100):  # and the ledger too, in the end
            reply = only(agent, Poll(1))
            if isinstance(reply, Refused):
                break
        assert "full: see that its disk has room" in reply.reason
        assert agent.buffer.account().delivered == SAMPLES
        written = len(ledger_entries(tmp_path / "state"))
        with agent.store.looking() as c:
            c.execute("PRAGMA max_page_count = 100000")
        assert isinstance(only(agent, Ask(1, Message("train", model(agent)))), Answered)
        only(agent, Acknowledge(1, 1))
        assert agent.buffer.account().trained == SAMPLES
        late, *_ = ledger_entries(tmp_path / "state")[written:]
        assert late.kinds == "refused"


def test_scores_are_means_and_counts_without_names(agent: Agent) -> None:
    plain = only(agent, Evaluate(0, model(agent)))
    assert isinstance(plain, Evaluated)
    assert set(plain.metrics) == set(Metrics._fields)
    assert (plain.windows, plain.measured, plain.scores) == (2, {}, {})
    full = only(agent, Evaluate(12, model(agent), measure=True))
    assert set(full.measured) == {"states", "count", "moments", "counts", "spans"}
    assert full.scores["held_out_segments"] == 2
    said = json.dumps(full.scores)
    assert "r00" not in said and "csv" not in said
    assert only(agent, Evaluate(3, model(agent))).slot == 3


def test_a_site_that_holds_nothing_out_has_no_scores(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-a", held_out=0.0)
    study = make_study(tmp_path)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        found = only(agent, Evaluate(12, model(agent), measure=True))
        assert (found.windows, found.metrics, found.measured) == (0, {}, {})
        assert found.scores["state_error"] == [None] * 5
        agent.warm()


def test_no_observation_and_no_state_leaves(agent: Agent) -> None:
    """Whatever is answered holds none of the numbers that were recorded or estimated."""
    said = b""
    for requests in (
        [Acknowledge(0, 0), Evaluate(0, model(agent), measure=True), Poll(1)],
        [Ask(1, Message("train", model(agent)))],
    ):
        said += agent.exchange(encode_requests(agent.envelope, requests), "s")
    states = np.concatenate([one for one in agent.buffer.states(1)])
    held = agent.intake.catalogue.held_out()[0]
    for secret in (*recording(0).ravel(), *states.ravel(), *held.states.ravel()):
        for kind in ("<f4", "<f8"):
            assert np.asarray(secret, kind).tobytes() not in said
        assert repr(float(secret)).encode() not in said


def test_a_live_site_answers_from_what_has_come(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-a", 0)
    study = make_study(tmp_path, sites__arrivals="live")
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        assert only(agent, Poll(1)).buffered == 0
        assert "nothing waits" in refused(agent, Ask(1, Message("train", model(agent))))
        assert only(agent, Evaluate(12, model(agent), measure=True)).scores == {}
        for n in range(3):
            write_recording(tmp_path / "lab-a" / "data" / f"{n}.csv", n)
        agent.scan()
        assert only(agent, Poll(1)).buffered == 0
        only(agent, Acknowledge(1, 0))
        assert only(agent, Poll(2)).buffered == 2 * SAMPLES
        assert only(agent, Ask(2, Message("train", model(agent)))).samples == 2 * SAMPLES
        only(agent, Acknowledge(2, 2))
        assert only(agent, Evaluate(2, model(agent))).windows == 1
        status = agent.status()
        assert (status["delivered"], status["trained"], status["buffered"]) == (80, 80, 0)
        assert status["last_intake"] and status["last_request"]
        json.dumps(status)


def test_a_new_study_forgets_the_data_of_the_old_one(tmp_path: Path) -> None:
    site, study = make_site(tmp_path / "lab-a"), make_study(tmp_path, **EVERY)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        only(agent, Poll(3))
    other = study.with_values({"seed": 5})
    with Agent(site, other, 0, 1, tmp_path / "state", settle=0.0) as agent:
        assert agent.buffer.account().delivered == 0
        assert only(agent, Poll(1)).buffered == SAMPLES
    assert len(ledger_entries(tmp_path / "state")) == 2


def test_sites_that_come_later_have_the_last_of_a_list(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-c", name="lab-c")
    study = make_study(
        tmp_path, ["lab-a", "lab-b"], training__learning_rate=[0.1, 0.2],
        clients__probability=[0.5, 0.0],
    )  # fmt: skip
    with Agent(site, study, 2, 3, tmp_path / "state", settle=0.0) as agent:
        assert agent.work.facts().probability == 0.0
        agent.warm()


@pytest.mark.parametrize(
    "change", [{"scheme": "centralized"}, {"system__unknown": {"length": 1.0}}]
)
def test_studies_that_need_all_data_in_one_place_are_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    site = make_site(tmp_path / "lab-a")
    with pytest.raises(InputError):
        Agent(site, make_study(tmp_path, **change), 0, 1, tmp_path / "state")
    assert not (tmp_path / "state").exists()


def test_a_preview_shows_what_would_be_sent_and_keeps_nothing(tmp_path: Path) -> None:
    site, study = make_site(tmp_path / "lab-a"), make_study(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    lines = preview_lines(site, study, 0, 1)
    assert sorted(tmp_path.rglob("*")) == before
    text = "\n".join(lines)
    with Agent(site, study, 0, 1, tmp_path / "state", settle=0.0) as agent:
        size = len(agent.exchange(encode_requests(agent.envelope, [Acknowledge(1, 0)]), ""))
    assert f"acknowledge (in every slot): {size:,} bytes" in text
    for part in ("poll (", "samples that wait: 40, in segments: 1", "train (",
                 "weights after local training, from 40 samples",
                 "operator: float32 3 × 3, 36 bytes", "evaluate (", "2 held-out windows",
                 "compare-scale (once, after the last slot): counts, sums and squares of states",
                 "errors of forecasts by steps ahead, 25 numbers",
                 "nothing of this was sent"):  # fmt: skip
        assert part in text, part


def test_a_preview_of_a_live_site_tells_what_it_left_out(tmp_path: Path) -> None:
    site = make_site(tmp_path / "lab-a", 3)
    (tmp_path / "lab-a" / "data" / "bad.csv").write_text("x,v\n1,oops\n")
    study = make_study(tmp_path, sites__arrivals="live")
    text = "\n".join(preview_lines(site, study, 0, 1))
    assert "left out: data/bad.csv: " in text
    assert "samples that wait: 80, in segments: 2" in text
    for file in (tmp_path / "lab-a" / "data").glob("*.csv"):
        file.unlink()
    assert "asked for nothing" in "\n".join(preview_lines(site, study, 0, 1))


def test_replies_are_plain_data() -> None:
    for kind in (Polled, Answered, Evaluated, Acknowledged, Refused):
        names = {field.name for field in dataclasses.fields(kind)}
        assert not names & {"states", "observations", "segments_names", "files"}
