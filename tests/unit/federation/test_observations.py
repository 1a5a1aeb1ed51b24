"""The scheme `observations`: clients train on what they see, without a filter."""

import hashlib
import json
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.federations import STEPS, TRAINING, experiment, final, jobs_of, model_bytes, run

import fedkoopman as fk
from fedkoopman.errors import InputError
from fedkoopman.evaluation import evaluate
from fedkoopman.federation.experiment import Experiment
from fedkoopman.federation.simulation import first_state
from fedkoopman.federation.sites import Address, Sites, held_out, judges_segments
from fedkoopman.federation.streams import generator
from fedkoopman.federation.workers import Workers
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.training import client_update
from fedkoopman.runs.experiment import experiment_of

ARCHITECTURE = PaperNetwork(state_dim=2, components=6, width=8)
ADDRESSES = [Address(slot, n) for slot in (1, 2) for n in range(3)]
SMALL = {
    "scheme": "observations",
    "slots": 4,
    "segments.steps": 30,
    "training.epochs": 1,
    "policy.segments": 1,
    "clients.count": 2,
    "evaluation.trajectories": 3,
}


def observing(**changes: Any) -> Experiment:
    """The tests' federation, with a network of observations."""
    return experiment(**{"scheme": "observations", "architecture": ARCHITECTURE, **changes})


def held(e: Experiment, **which: bool) -> dict[Address, Any]:
    with Workers(1) as pool:
        return Sites(e, **{"perfect": False, **which}).segments(ADDRESSES, pool)


def small(**changes: Any) -> fk.Study:
    return fk.Study.paper_default().with_values(SMALL | changes)


def test_clients_hold_what_their_sensors_show_of_the_truth_with_their_own_noise() -> None:
    e = observing()
    truth, seen = held(e, perfect=True), held(e, raw=True)
    for slot, n in ADDRESSES:
        sensor = e.clients[n].sensor
        noise = generator(e.seed, "noise", slot, n).standard_normal((STEPS, 2))
        expected = (truth[slot, n] - sensor.offset) @ sensor.matrix.T + noise  # Σ_h = I
        np.testing.assert_allclose(seen[slot, n], expected, rtol=1e-12, atol=1e-12)


def test_they_are_the_observations_that_the_filter_of_the_same_seed_sees() -> None:
    """Filtered here, they are the states that clients of `kf-fedkl` train on."""
    e = observing()
    seen, states = held(e, raw=True), held(experiment())
    for slot, n in ADDRESSES:
        client = e.clients[n]
        found = fk.estimate(
            client.dynamics, client.sensor, seen[slot, n], process_noise=client.process_noise,
            observation_noise=client.observation_noise, initial_mean=np.zeros(3),
            initial_cov=np.eye(3), method="ukf", alpha=0.1, beta=2.0, kappa=-1.0,
        )  # fmt: skip
        np.testing.assert_allclose(found.mean, states[slot, n], rtol=1e-8, atol=1e-8)


def test_a_slot_trains_on_the_observations() -> None:
    e = observing(slots=1)
    came = run(e)[-1].record["arrived"]
    (job, *_) = jobs_of(e, came)
    alone = observing(slots=1, clients=(e.clients[came[0]],))
    with Workers(1) as pool:
        [z] = Sites(alone, perfect=False, raw=True).segments([Address(1, 0)], pool).values()
    first = ARCHITECTURE.from_named(first_state(e).arrays)
    update = client_update(
        ARCHITECTURE, TRAINING, first, [z], seed=job.asked.seed, learning_rate=1e-3
    )
    assert final(run(alone)) == model_bytes(ARCHITECTURE.named(update))


def test_the_model_is_tested_on_every_clients_own_view_and_scored_by_their_mean() -> None:
    e = observing()
    [whole] = held_out(experiment())
    tests = held_out(e)
    for client, test in zip(e.clients, tests, strict=True):
        expected = (whole.trajectories - client.sensor.offset) @ client.sensor.matrix.T
        np.testing.assert_allclose(test.trajectories, expected, rtol=1e-12, atol=1e-12)
    last = run(e)[-1]
    weights = ARCHITECTURE.from_named(last.state.arrays)
    each = [evaluate(ARCHITECTURE, weights, test) for test in tests]
    assert len({one.l3 for one in each}) == 3
    assert last.record["l3"] == pytest.approx(np.mean([one.l3 for one in each]), rel=1e-12)
    assert last.record["E"] == pytest.approx(np.mean([one.e for one in each]), rel=1e-12)


def test_arrivals_are_those_of_the_other_schemes() -> None:
    found, other = run(observing()), run(experiment())
    assert [o.record["arrived"] for o in found] == [o.record["arrived"] for o in other]


def test_judges_hold_observations_too() -> None:
    assert {z.shape for own in judges_segments(observing(), False, raw=True) for z in own} == {
        (STEPS, 2)
    }


def digests(folder: Path) -> dict[str, str]:
    """Of what a run leaves that does not tell the time."""
    names = ("model.safetensors", "model.md", "rollout.json", "untrained.json")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("observations")
    fk.run(small(), out=folder / "run")
    return folder / "run"


def test_a_run_says_what_it_predicts(finished: Path) -> None:
    model = fk.load_model(finished / "model.safetensors")
    assert model.learned_.names == ("z1", "z2") and model.learned_.units == ("", "")
    assert model.learned_.architecture.components == 8  # 4 d_z
    assert "not states" in model.learned_.information["predicts"]
    card = (finished / "model.md").read_text()
    assert "| z1 |" in card and "what the clients' sensors show (z), not states" in card
    rollout = json.loads((finished / "rollout.json").read_text())
    assert rollout["names"] == ["z1", "z2"] and len(rollout["truth"][0]) == 2
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["scheme"] == "observations" and summary["l3"]["mean"] > 0
    page = unescape(fk.write_report(finished).read_text())
    assert "On what each client's sensor shows of noise-free held-out trajectories" in page


def test_a_run_gives_the_same_bytes_again_and_resumed(finished: Path, tmp_path: Path) -> None:
    def stop(event: Any) -> None:
        if event.record["slot"] == 2:
            raise KeyboardInterrupt

    fk.run(small(), out=tmp_path / "again")
    with pytest.raises(KeyboardInterrupt):
        fk.run(small(), out=tmp_path / "cut", progress=stop)
    fk.run(small(), out=tmp_path / "cut", resume=True)
    assert digests(tmp_path / "again") == digests(tmp_path / "cut") == digests(finished)


@pytest.mark.parametrize(
    "kind",
    ["edmd", *(pytest.param(k, marks=pytest.mark.slow) for k in ("spectral", "inclusive"))],
)
def test_other_kinds_of_model_learn_observations_too(kind: str) -> None:
    model = fk.run(small(**{"network.kind": kind, "slots": 8, "clients.probability": 1.0})).model
    assert model.learned_.architecture.state_dim == 2
    assert np.isfinite(np.asarray(model.predict(np.zeros((3, 2)), n_steps=1))).all()


def test_nothing_is_estimated_where_nothing_is_filtered() -> None:
    """`clients.process_noise = "auto"` would filter some segments first."""
    e = experiment_of(small(**{"clients.process_noise": "auto"}), 0)
    assert [client.process_noise.tolist() for client in e.clients] == [np.eye(3).tolist()] * 2


IDENTITY = {"kind": "identity"}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"clients.sensor": [IDENTITY, {"kind": "random-frame"}]},
            'scheme is "observations" but the sensors of clients.sensor show 2 and 3 components: '
            'give sensors that show as many, or scheme = "kf-fedkl"',
        ),
        (
            {"network.components": 1},
            "network.components is 1, smaller than an observation of lorenz63: give a whole "
            'number >= 2, or "auto"',
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        small(**values).check()
    assert str(caught.value) == told


def test_sensors_of_different_kinds_that_show_as_many_components_fit() -> None:
    matrix = {"kind": "linear", "matrix": [[1, 0, 0], [0, 0, 1]]}
    study = small(**{"clients.sensor": [matrix, {"kind": "random-frame"}]})
    e = experiment_of(study, 0)
    assert [test.trajectories.shape[-1] for test in held_out(e)] == [2, 2]
    np.testing.assert_allclose(
        held_out(e)[0].trajectories,
        held_out(experiment_of(small(scheme="kf-fedkl"), 0))[0].trajectories[..., [0, 2]],
    )
