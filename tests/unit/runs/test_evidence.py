"""What a run leaves for its report: errors, bands and views, against the model's own functions."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.federation.sites import held_out
from fedkoopman.runs.experiment import experiment_of

SMALL = {
    "slots": 6, "segments": {"steps": 60}, "clients": {"count": 2}, "policy": {"segments": 1},
    "network": {"kind": "edmd", "degree": 2}, "evaluation": {"trajectories": 6},
}  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[fk.Run, Path]:
    out = tmp_path_factory.mktemp("evidence") / "run"
    return fk.run(fk.Study.from_dict(SMALL), out=out), out


def test_errors_are_those_of_the_model_and_of_holding(done: tuple[fk.Run, Path]) -> None:
    run, out = done
    found = json.loads((out / "evidence.json").read_text())
    paths = held_out(experiment_of(run.study, 0))[0].trajectories
    for place, lead in enumerate(found["leads"]):
        ahead = [run.model.predict(x, n_steps=lead)[:-lead] - x[lead:] for x in paths]
        held = [x[:-lead] - x[lead:] for x in paths]
        if run.model.relift_ == 0:
            expected = np.sqrt(np.mean(np.concatenate(ahead) ** 2, axis=0))
            np.testing.assert_allclose(found["errors"]["model"][place], expected, rtol=2e-4)
        expected = np.sqrt(np.mean(np.concatenate(held) ** 2, axis=0))
        np.testing.assert_allclose(found["errors"]["holding"][place], expected, rtol=2e-4)
    assert found["leads"][:4] == [1, 2, 3, 5] and max(found["leads"]) <= 60


def test_forecasts_stand_at_the_samples_that_they_are_for(done: tuple[fk.Run, Path]) -> None:
    run, out = done
    shown = json.loads((out / "evidence.json").read_text())["shown"]
    x = held_out(experiment_of(run.study, 0))[0].trajectories[0]
    np.testing.assert_allclose(shown["truth"], x, rtol=1e-4)
    one = np.array(shown["forecasts"]["model"][0], float)
    assert np.isnan(one[0]).all()
    np.testing.assert_allclose(one[1:], run.model.predict(x, n_steps=1)[:-1], rtol=1e-4, atol=1e-4)


def test_bands_cover_what_they_promise_and_clients_see_what_they_saw(
    done: tuple[fk.Run, Path],
) -> None:
    found = json.loads((done[1] / "evidence.json").read_text())
    place = found["levels"].index(0.95)
    assert 0.75 < found["calibration"][0]["covered"][place] <= 1
    assert [view["name"] for view in found["sites"]] == ["client 0", "client 1"]
    for view in found["sites"]:
        observed, seen, true = (np.array(view[n]) for n in ("observed", "seen", "true_seen"))
        assert observed.shape == seen.shape == true.shape
        noise = np.sqrt(np.mean((observed - true) ** 2))  # of variance 1, as the study says
        assert 0.8 < noise < 1.2 and np.sqrt(np.mean((seen - true) ** 2)) < noise


def test_evidence_changes_no_model(done: tuple[fk.Run, Path], tmp_path: Path) -> None:
    fk.run(fk.Study.from_dict(SMALL), out=tmp_path / "plain", evidence=False)
    assert not (tmp_path / "plain" / "evidence.json").exists()
    ours, plain = (folder / "model.safetensors" for folder in (done[1], tmp_path / "plain"))
    assert ours.read_bytes() == plain.read_bytes()


def test_every_client_alone_is_compared_with_all(tmp_path: Path) -> None:
    found = fk.run(fk.Study.from_dict(SMALL), alone=True).summary["benefit"]
    assert set(found["sites"]) == {"client 0", "client 1"}
    assert {"alone", "federated", "holding", "dmd", "edmd"} == set(found["mean"])
    assert all(isinstance(own["alone"][0], float) for own in found["sites"].values())
