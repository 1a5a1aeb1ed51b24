"""Laws that every algorithm obeys: those of the registry, the extension's, and one of the tests.

The one of the tests looks again at data that were spent; see `reference.census`.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import census
from reference.extension import file_of, member
from reference.federations import assert_same_run, experiment, run, segments
from unit.deploy.in_memory import Sites, small_study

from fedkoopman.deploy.wire import (
    Answered,
    Ask,
    Envelope,
    decode_replies,
    decode_requests,
    encode_replies,
    encode_requests,
    message_digest,
)
from fedkoopman.federation.algorithms import ALGORITHMS
from fedkoopman.federation.options import BufferOptions, ServerOptions
from fedkoopman.federation.server_steps import SERVER_STEPS
from fedkoopman.federation.slot import fault_of
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.koopman.kinds.inclusive import Inclusive
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.runs.run import run as run_study

SUMS, CENSUS = member("affine_sums", "ALGORITHM"), census.ALGORITHM
EVERY = {name: ALGORITHMS.find(name) for name in ALGORITHMS}
EVERY |= {"affine-sums": SUMS, "census": CENSUS}
STAGED = {"staged": "spectral", "staged-edmd": "edmd", "staged-inclusive": "inclusive"}
"""The stages that a model kind has decide what is said: one of each."""
EVERY |= dict.fromkeys(STAGED, EVERY["staged"])
STEPPING = {"fedavg-m-steps": "fedavg-m", "staged-steps": "staged", "fedbuff-slow": "fedbuff"}
"""With a server that takes steps of its own, and averages; with slow clients."""
EVERY |= {name: EVERY[algorithm] for name, algorithm in STEPPING.items()}
NAMES = {name: name for name in ALGORITHMS} | dict.fromkeys(STAGED, "staged") | STEPPING
NAMES |= {
    "affine-sums": f"{file_of('affine_sums')}:ALGORITHM",
    "census": f"{census.__file__}:ALGORITHM",
}
"""How a study names them; nothing is installed."""
SETTINGS: dict[str, Any] = {
    "affine-sums": {"architecture": PaperNetwork(3, 4, hidden_layers=0)},
    "staged": {"architecture": Spectral(3, 6, features=8, horizon=5), "slots": 9},
    "staged-edmd": {"architecture": EDMD.of(state_dim=3, degree=2)},
    "staged-inclusive": {"architecture": Inclusive(3, 5, width=6)},
    "fedavg-m-steps": {
        "server_step": SERVER_STEPS.find("adam"),
        "server": ServerOptions(average=0.5),
    },
    "staged-steps": {
        "architecture": Spectral(3, 6, features=8, horizon=5),
        "slots": 9,
        "server_step": SERVER_STEPS.find("yogi"),
        "server": ServerOptions(average=0.5),
    },
    "fedbuff-slow": {
        "server_step": SERVER_STEPS.find("momentum"),
        "buffering": BufferOptions(buffer=2, delays=(0, 1, 3)),
    },
    "fedbuff": {"buffering": BufferOptions(buffer=2)},
}
"""What an algorithm needs in an experiment, where it does not take any."""
VALUES: dict[str, Any] = {
    "affine-sums": {"network.hidden_layers": 0, "network.components": 3},
    "census": {"sites.repeat": False},
    "staged": {"network.kind": "spectral", "network.components": 6, "network.features": 8},
    "staged-edmd": {"network.kind": "edmd"},
    "staged-inclusive": {"network.kind": "inclusive"},
    "fedavg-m-steps": {"server.step": "adam", "server.average": 0.5},
    "fedbuff-slow": {
        "server.step": "momentum",
        "algorithm.buffer": 2,
        "algorithm.delays": [0, 1, 3],
    },
}
VALUES["staged-steps"] = VALUES["staged"] | {"server.step": "yogi", "server.average": 0.5}
"""And in a study of a pendulum; without repeats a site forgets what it need not keep."""
SLOTS = 6
DATA = ("waiting", "arrived", "none")


class Watched:
    """An algorithm, and all that was asked and answered in it."""

    def __init__(self, algorithm: Any) -> None:
        self._algorithm = algorithm
        self.answers: list[tuple] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._algorithm, name)

    def answer(self, problem: Any, request: Any, segments: Any, asked: Any) -> Any:
        before = digests(request, segments)
        reply = self._algorithm.answer(problem, request, segments, asked)
        self.answers.append((request, segments, asked, reply, before))
        return reply


def digests(request: Any, states: Any) -> tuple:
    return message_digest(request), [one.tobytes() for one in states]


class Played:
    """A whole federation with an algorithm."""

    def __init__(self, name: str) -> None:
        self.algorithm = Watched(EVERY[name])
        given = {"algorithm": self.algorithm, "slots": SLOTS, **SETTINGS.get(name, {})}
        self.experiment = experiment(**given)
        self.problem = self.experiment.problem
        self.schemas = self.algorithm.messages(self.problem)
        self.outcomes = run(self.experiment, threads=1)
        self.answers = list(self.algorithm.answers)
        assert len(self.answers) >= SLOTS


@pytest.fixture(scope="module", params=EVERY)
def played(request):
    return Played(request.param)


def test_every_request_names_a_reply_and_every_reply_has_a_request(played):
    schemas = played.schemas
    requests = {kind: one for kind, one in schemas.items() if one.reply}
    replies = {one.reply for one in requests.values()}
    assert requests and replies == schemas.keys() - requests.keys()
    for request in requests.values():
        assert request.words and request.data in DATA
        assert schemas[request.reply].words and not schemas[request.reply].reply
        if schemas[request.reply].changes:
            assert schemas[request.reply].arrays.items() <= request.arrays.items()


def test_requests_and_replies_fit_their_schemas(played):
    for request, _, _, reply, _ in played.answers:
        assert played.schemas[request.kind].fault(request) == ""
        assert fault_of(played.schemas, request, reply) == ""


def test_an_answer_depends_on_request_data_and_seed_alone_and_leaves_them(played):
    for request, states, asked, reply, before in played.answers:
        again = played.algorithm.answer(played.problem, request, states, asked)
        assert message_digest(again) == message_digest(reply)
        assert digests(request, states) == before


def test_messages_come_through_the_wire_bit_for_bit(played):
    envelope = Envelope("study:0")
    for request, _, asked, reply, _ in played.answers:
        body = encode_requests(envelope, [Ask(asked.slot, request)])
        _, [got] = decode_requests(body)
        assert message_digest(got.message) == message_digest(request)
        answered = Answered("lab", asked.slot, message_digest(request), 5, reply)
        _, [back] = decode_replies(encode_replies(envelope, [answered]))
        assert message_digest(back.message) == message_digest(reply)


def test_the_state_keeps_its_form(played):
    def form(state):
        return {name: (array.shape, array.dtype) for name, array in state.arrays.items()}

    first = form(played.outcomes[0].state)
    for outcome in played.outcomes:
        assert form(outcome.state) == first
        for array in outcome.state.arrays.values():
            assert isinstance(array, np.ndarray) and np.isfinite(array).all()
    assert form(run(played.experiment, threads=1)[0].state) == first


def test_the_model_is_one_that_the_kind_takes(played):
    kind, models = played.problem.architecture, set()
    for outcome in played.outcomes:
        model = played.algorithm.model(played.problem, outcome.state.arrays)
        assert {name: leaf.shape for name, leaf in model.items()} == dict(kind.shapes())
        assert {leaf.dtype for leaf in model.values()} == {played.problem.model_dtype}
        kind.from_named(model)
        models.add(b"".join(model[name].tobytes() for name in sorted(model)))
    assert len(models) > SLOTS // 2


def test_what_it_tells_can_be_written(played):
    for outcome in played.outcomes:
        json.dumps(outcome.record, allow_nan=False)


@pytest.mark.parametrize("slot", range(1, SLOTS))
def test_a_federation_goes_on_from_any_slot(played, slot):
    rest = run(played.experiment, played.outcomes[slot].state)
    assert_same_run(rest, played.outcomes[slot + 1 :])
    assert rest[-1].state.spent == played.outcomes[-1].state.spent


# On disk, and at sites


PLAIN = dict(zip(STEPPING.values(), STEPPING, strict=True))
"""Those whose laws on disk follow from the ones with more to keep."""


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """Where the sites of all studies are, so that their code is compiled once."""
    return tmp_path_factory.mktemp("example") / "study"


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=pytest.mark.slow if n in PLAIN else ()) for n in EVERY],
)
def local(request, example, tmp_path_factory):
    """A study of three sites, and the directory of its local run."""
    folder = tmp_path_factory.mktemp("algorithm")
    values = {"algorithm.name": NAMES[request.param], **VALUES.get(request.param, {})}
    study = small_study(example, {"slots": SLOTS, **values})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)
        run_study(study, out=folder / "local")
        yield study, folder / "local"


def records(out: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    return [{key: value for key, value in one.items() if key != "seconds"} for one in found]


def assert_same_files(out: Path, expected: Path) -> None:
    assert records(out) == records(expected)
    name = "model.safetensors"
    assert (out / name).read_bytes() == (expected / name).read_bytes()


@pytest.mark.parametrize("slot", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_stopped_run_is_resumed_to_the_same_model(local, slot, tmp_path):
    study, expected = local

    def stop(event: Any) -> None:
        if event.record["slot"] == slot:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, out=tmp_path / "cut", progress=stop)
    run_study(study, out=tmp_path / "cut", resume=True)
    assert_same_files(tmp_path / "cut", expected)


def test_a_served_federation_equals_a_local_run(local, tmp_path):
    study, expected = local
    sites = Sites(study, tmp_path / "sites")
    sites.serve(tmp_path / "served")
    arrived, trained, waiting = sites.account()
    sites.close()
    assert_same_files(tmp_path / "served", expected)
    assert arrived == trained + waiting > 0
    told = records(expected)
    if study.algorithm.name != NAMES["census"]:
        # The scale spends nothing; features, and the first sums after them, use all data again.
        spent = sum(one["samples"] for one in told if one.get("stage") != "scale")
        if study.network.kind == "spectral":
            assert waiting == 0 and told[-1]["stage"] == "sums" and told[-1]["samples"] == trained
        elif study.network.kind == "inclusive":
            assert told[-1]["stage"] == "features" and told[-1]["samples"] <= trained < spent
        else:
            assert trained == spent
        return
    taken = sum(one["samples"] for one in told if not census.looks(one["slot"]))
    assert trained == taken == told[-1]["taken"][-1]
    buffered = {one["slot"]: sum(one["buffered"]) for one in told}
    for before, one in pairwise(told):
        if census.looks(one["slot"]):  # all that was taken, and what waits now
            assert one["samples"] == one["seen"][-1] == before["taken"][-1] + buffered[one["slot"]]


# Data that are looked at again


def test_looking_at_all_data_spends_none():
    played = Played("census")
    held: list[tuple[int, int]] = []
    for one, outcome in pairwise(played.outcomes):
        slot, record, state = outcome.state.slot, outcome.record, outcome.state
        held += [(slot, n) for n in record["arrived"]]
        found = segments(played.experiment, held)
        total = sum((states.sum(axis=0) for states in found.values()), np.zeros(3))
        if census.looks(slot):
            np.testing.assert_allclose(state.arrays["seen"][:3], total, rtol=1e-12)
            assert state.arrays["seen"][3] == sum(map(len, found.values())) == record["samples"]
            assert record["active"] == [0, 1, 2]
            assert state.spent == one.state.spent
            assert sum(map(len, state.buffers)) >= sum(map(len, one.state.buffers))
        else:
            np.testing.assert_allclose(state.arrays["taken"][:3], total, rtol=1e-12)
            assert not any(state.buffers)
            assert sorted((m, n) for n, slots in enumerate(state.spent) for m in slots) == held
    waited = [outcome for outcome in played.outcomes if any(outcome.state.buffers)]
    assert waited, "no data waited in a slot that looks: choose another seed"
