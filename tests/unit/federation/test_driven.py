"""A federation learns a driven pendulum: from CSV files to the shared model, in both engines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import driven
from unit.deploy.in_memory import Sites

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.evaluation import TestSet, evaluate
from fedkoopman.federation.sites import schedule
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.prediction import predict_site
from fedkoopman.runs.site_preparation import prepared_sites

KINDS = {
    "edmd": {"network.degree": 2},
    "spectral": {"network.features": 8, "network.horizon": 5, "network.components": 6},
    "inclusive": {"network.components": 6},
    "paper": {"network.components": 6},
}


@pytest.fixture(autouse=True)
def no_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take longer than the slots."""
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driven.write_study(tmp_path_factory.mktemp("driven") / "study")


@pytest.fixture(scope="module")
def prepared(file: Path) -> Any:
    return prepared_sites(Study.load(file))


def test_sites_hold_states_and_the_inputs_that_act_from_them_on(prepared) -> None:
    """The equations, from each row with its input, lead to the next row."""
    for site in prepared.sites:
        for rows in site.train:
            ahead = [driven.pendulum(row[:2], row[2], 0.05) for row in rows[:-1]]
            assert np.abs(ahead - rows[1:, :2])[5:].max() < 0.01


def test_a_run_is_least_squares_of_the_pooled_rows(file, prepared) -> None:
    study = Study.load(file, {"network.degree": 1})
    e = experiment_of(study, study.seed, prepared)
    rows = [e.deliveries.train[n][k] for slot in schedule(e) for n, k in slot.items()]
    now = np.concatenate([one[:-1] for one in rows])
    ahead = np.concatenate([one[1:] for one in rows])
    found = np.linalg.lstsq(np.hstack([np.ones((len(now), 1)), now]), ahead[:, :2], rcond=None)[0]
    model = fk.run(study).model
    assert model.input_names_ == ("torque",)
    x, u = np.array([0.3, -0.2]), np.array([1.5])
    expected = np.concatenate([[1.0], x, u]) @ found
    np.testing.assert_allclose(model.simulate(x, U=u[None], relift=0)[0], expected, atol=1e-8)


@pytest.mark.parametrize(
    "kind",  # one solved at once and one trained by gradients
    [pytest.param(n, marks=() if n in ("edmd", "paper") else pytest.mark.slow) for n in KINDS],
)
def test_a_served_model_is_that_of_a_run(kind, file, tmp_path) -> None:
    study = Study.load(file, {**KINDS[kind], "network.kind": kind, "network.bilinear": True})
    run = fk.run(study)
    sites = Sites(study, tmp_path / "sites")
    sites.serve(tmp_path / "served")
    sites.close()
    served = fk.load_model(tmp_path / "served" / "model.safetensors")
    for name, leaf in run.model.architecture_.named(run.model.weights_).items():
        own = served.architecture_.named(served.weights_)[name]
        np.testing.assert_array_equal(own, leaf, err_msg=name)
    assert served.input_names_ == ("torque",)
    assert np.isfinite(run.summary["E"]["mean"])


def test_scores_of_a_driven_model_are_those_of_its_predictions(file, prepared) -> None:
    study = Study.load(file, {"network.window": 2, "network.degree": 2})
    model = fk.run(study).model
    rows = np.stack([one.states[:40] for one in prepared.sites[0].held_out])
    found = evaluate(model.architecture_, model.weights_, TestSet(rows, 3, 0.4, 1))
    X, U = list(rows[..., :2]), list(rows[..., 2:])
    one = model.predict(X, U=U, relift=0)
    newest = np.mean([(p[:-1] - x[2:]) ** 2 for p, x in zip(one, X, strict=True)])
    # ℓ3 is of windows: of the newest state and of the one before, which is copied.
    assert found.l3 == pytest.approx(newest / 2, rel=1e-6)
    far = [
        np.mean([(p[:-h] - x[1 + h :]) ** 2 for p, x in zip(ahead, X, strict=True)])
        for h in (1, 2, 3)
        for ahead in [model.predict(X, h, U=U, relift=0)]
    ]
    older = [0.0, *far[:-1]]
    expected = [(a + b) / 2 for a, b in zip(far, older, strict=True)]
    assert found.e1 == pytest.approx(np.mean(expected), rel=0.1)


def test_the_shared_model_filters_and_forecasts_a_sites_data(file) -> None:
    study = Study.load(file, {"network.degree": 3})
    model = fk.run(study).model
    from fedkoopman.config.site_file import SiteFile

    found = predict_site(model, SiteFile.load(file.parent / "lab-c" / "site.toml"), 5)
    assert "torque held at the last value" in found.basis
    assert all(np.isfinite(mean).all() for mean in found.future.means)


def test_a_rows_input_may_act_from_the_row_on(tmp_path) -> None:
    """The same recording, with every input one row earlier."""
    until = driven.write_study(tmp_path / "until")
    later = driven.write_study(tmp_path / "from", 'hold = "from"')
    for name in ("lab-a", "lab-b", "lab-c"):
        data = later.parent / name / "data.csv"
        head, *lines = data.read_text().split()
        cells = [line.split(",") for line in lines]
        moved = [
            (a[0], a[1], b[2] if b[0] == a[0] else "0.0")
            for a, b in zip(cells, [*cells[1:], cells[-1]], strict=True)
        ]
        data.write_text("\n".join([head, *map(",".join, moved)]) + "\n")
    both = [prepared_sites(Study.load(one)) for one in (until, later)]
    for one, other in zip(both[0].sites, both[1].sites, strict=True):
        for a, b in zip(one.train, other.train, strict=True):
            # The input before the first row is not known where inputs act from their row on.
            assert np.abs(a - b)[10:-1].max() < 0.02


MISTAKES = {
    "no sites": ({"network.inputs": ["u"]}, "simulated clients have none"),
    "unknown": ({"network.inputs": ["rudder", "thrust"]}, "rudder"),
    "bilinear without": ({"network.inputs": [], "network.bilinear": True}, "bilinear"),
    "depth": ({"network.depth": 2}, "depth 1"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told(case, file) -> None:
    values, words = MISTAKES[case]
    base = fk.Study.paper_default() if case == "no sites" else None
    with pytest.raises(fk.InputError, match=words):
        study = base.with_values(values) if base else Study.load(file, values)
        fk.run(study)


def test_one_voltage_in_and_one_out_is_learned_without_equations(tmp_path) -> None:
    """Windows of outputs and inputs are the state; a free simulation follows new inputs."""
    model = fk.run(Study.load(driven.write_circuit(tmp_path / "circuit"))).model
    Y, U = driven.circuit(3, 150, seed=9)
    linear = fk.DMD(n_delays=2).fit(Y, U=[u[1:] for u in U])
    for y, u in zip(Y, U, strict=True):
        acting = u[1:]  # what acts from row k on is what stands in row k + 1
        more = {"U": acting[2:], "past": acting[:2], "relift": 1}
        error = np.sqrt(np.mean((model.simulate(y[:3], **more) - y[3:]) ** 2))
        plain = np.sqrt(np.mean((linear.simulate(y[:3], **more) - y[3:]) ** 2))
        assert error < plain / 4, "no better than a linear model"
        assert error < 0.02 * y.std()
