"""The comparison of a run on sites: pooled least squares, the site alone, what leaves a site."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.deploy.site_lab import make_site, make_study

from fedkoopman.config.study import Study
from fedkoopman.federation.messages import Message
from fedkoopman.koopman.kinds.edmd import EDMD
from fedkoopman.runs import run as run_module
from fedkoopman.runs.comparison import answer, compared, degree_of, holdings_of, schemas
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.forecast_errors import errors_of, rollout_of
from fedkoopman.runs.run import run
from fedkoopman.runs.site_preparation import Sites, prepared_sites

LABS = ("lab-a", "lab-b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("comparison")
    for n, name in enumerate(LABS):
        make_site(found / name, name=name, first=10 * n)
    return found


@pytest.fixture(scope="module")
def study(folder: Path) -> Study:
    return make_study(folder, LABS)


@pytest.fixture(scope="module")
def sites(study: Study) -> Sites:
    return prepared_sites(study)


def exchanged(study: Study, sites: Sites) -> tuple[list[tuple[Message, Message]], Any]:
    """All requests and replies of a comparison, and what it found."""
    experiment = experiment_of(study, study.seed, sites)
    problem, held = experiment.problem, holdings_of(experiment, sites)
    model = problem.algorithm.model(problem, problem.algorithm.begin(problem))
    said: list[tuple[Message, Message]] = []

    def exchange(request: Message) -> dict[str, Message]:
        replies = {name: answer(problem, request, own) for name, own in held.items()}
        said.extend((request, reply) for reply in replies.values())
        return replies

    return said, compared(problem, model, 0, exchange)


def test_messages_fit_their_schemas_and_have_no_room_for_states(study: Study, sites: Sites) -> None:
    said, _ = exchanged(study, sites)
    known = schemas(experiment_of(study, 0, sites).problem)
    samples = min(len(states) for site in sites.sites for states in site.train)
    assert {one.kind for pair in said for one in pair} == set(known)
    for request, reply in said:
        assert not known[request.kind].fault(request)
        assert reply.kind == known[request.kind].reply and not known[reply.kind].fault(reply)
        for name, leaf in reply.arrays.items():
            assert samples not in leaf.shape, f"{name} is as long as a segment"


@pytest.mark.parametrize("name", ["dmd", "edmd"])
def test_least_squares_are_those_of_the_pooled_data(study: Study, sites: Sites, name: str) -> None:
    _, found = exchanged(study, sites)
    experiment = experiment_of(study, study.seed, sites)
    pooled = [x for own in holdings_of(experiment, sites).values() for x in own.arrived]
    mean, std = np.concatenate(pooled).mean(axis=0), np.concatenate(pooled).std(axis=0)
    kind = EDMD.of(state_dim=2, degree=1 if name == "dmd" else 3)

    def psi(x: np.ndarray) -> np.ndarray:
        a, b = ((x - mean) / std).T
        powers = [(i, j) for i in range(4) for j in range(4 - i) if i + j <= kind.degree]
        return np.column_stack([a**i * b**j for i, j in powers])

    now = np.concatenate([psi(x[:-1]) for x in pooled])
    after = np.concatenate([x[1:] for x in pooled])
    solution, *_ = np.linalg.lstsq(now, after, rcond=None)
    for site in sites.sites:
        errors = [psi(one.states[:-1]) @ solution - one.states[1:] for one in site.held_out]
        spread = np.concatenate([one.states for one in site.held_out]).std(axis=0)
        expected = np.sqrt(np.mean((np.concatenate(errors) / spread) ** 2))
        assert found[site.name][name][0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["paper", "edmd"])
def test_the_site_alone_is_a_run_with_this_site_only(folder: Path, kind: str) -> None:
    changes = {"network.kind": kind}
    both = run(make_study(folder, LABS).with_values(changes)).summary["benefit"]
    one = run(make_study(folder, LABS[:1]).with_values(changes)).summary["benefit"]
    assert both["sites"]["lab-a"]["alone"] == one["sites"]["lab-a"]["federated"]
    assert both["sites"]["lab-a"]["alone"] != both["sites"]["lab-a"]["federated"]
    assert one["sites"]["lab-a"]["alone"] == [None] * len(one["horizons"])
    assert "nothing to federate" in one["sentence"]


def test_the_shared_model_is_the_one_that_the_run_leaves(study: Study, sites: Sites) -> None:
    found = run(study, sites=sites)
    learned = found.model.learned_
    for site in sites.sites:
        expected = errors_of(
            rollout_of(learned.architecture, learned.weights), site.held_out, window=1, depth=1
        )
        own = found.summary["benefit"]["sites"][site.name]["federated"]
        np.testing.assert_allclose(own, expected[~np.isnan(expected)], rtol=1e-12)


def test_a_run_without_arrivals_compares_what_it_can(study: Study, sites: Sites) -> None:
    found = run(study.with_values({"clients.probability": 0.0, "slots": 2}), sites=sites)
    for own in found.summary["benefit"]["sites"].values():
        assert all(own[name][0] is None for name in ("alone", "dmd", "edmd"))
        assert own["holding"][0] > 0 and own["federated"][0] > 0


def test_a_site_that_holds_nothing_out_is_not_in_the_table(tmp_path: Path) -> None:
    make_site(tmp_path / "lab-a")
    make_site(tmp_path / "lab-b", name="lab-b", first=10, held_out=0.0)
    found = run(make_study(tmp_path, LABS)).summary["benefit"]
    assert list(found["sites"]) == ["lab-a"]
    assert "Not compared, as nothing long enough is held out: lab-b." in found["sentence"]


def test_a_finished_run_is_not_compared_again(
    study: Study, sites: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    first = run(study, sites=sites, out=out).summary
    assert json.loads((out / "summary.json").read_text())["benefit"] == first["benefit"]
    monkeypatch.setattr(run_module, "compared", lambda *_: pytest.fail("compared again"))
    assert run(study, sites=sites, out=out, resume=True).summary["benefit"] == first["benefit"]


def test_studies_without_sites_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "compared", lambda *_: pytest.fail("compared"))
    values = {"slots": 1, "segments.steps": 20, "evaluation.trajectories": 1, "clients.count": 1}
    assert "benefit" not in run(Study.paper_default().with_values(values)).summary


def test_many_states_have_a_lower_degree() -> None:
    assert [degree_of(d) for d in (1, 2, 3, 16, 17, 43, 44)] == [3, 3, 3, 3, 2, 2, 1]
