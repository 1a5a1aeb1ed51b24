"""Runs of every model kind: both precisions, the same bytes every time, and clear refusals."""

import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.cli import app

SMALL = {
    "slots": 6,
    "segments.steps": 40,
    "training.epochs": 1,
    "policy.segments": 1,
    "clients.count": 2,
    "clients.probability": 1.0,
    "evaluation.trajectories": 2,
    "evaluation.tail_slots": 2,
}
KINDS = {
    "edmd": {"network.dictionary": "rbf", "network.features": 8},
    "spectral": {"network.components": 6, "network.features": 6},
    "inclusive": {"network.components": 5, "network.width": 6},
}
CASES = [(kind, precision) for kind in KINDS for precision in ("float32", "float64")]
GATE = (("edmd", "float32"), ("spectral", "float32"), ("inclusive", "float64"))


@pytest.mark.parametrize(
    ("kind", "precision"),
    [pytest.param(*case, marks=() if case in GATE else pytest.mark.slow) for case in CASES],
)
def test_a_study_gives_the_same_bytes_in_every_run(kind, precision, tmp_path, monkeypatch):
    monkeypatch.setattr("fedkoopman.reports.run.write_report", lambda folder: folder)
    study = fk.Study.paper_default().with_values(
        {**SMALL, **KINDS[kind], "network.kind": kind, "training.precision": precision}
    )
    runs = [fk.run(study, out=tmp_path / name) for name in ("one", "other")]
    one, other = (
        (run.out / "model.safetensors").read_bytes() for run in runs if run.out is not None
    )
    assert one == other
    model = runs[0].model
    assert all(np.isfinite(leaf).all() for leaf in model.weights_.values())
    widths = {leaf.dtype for leaf in model.weights_.values()}
    assert widths == {np.dtype(precision if kind == "inclusive" else "float64")}
    assert {"scale"} < {one.get("stage", "scale") for one in runs[0].records}
    assert np.isfinite([one["E"] for one in runs[0].records]).all()


def test_a_kind_that_is_solved_needs_no_precision_in_training():
    """Monomials have nothing that is drawn or trained, so both precisions give one model."""
    models = [
        fk.run(
            fk.Study.paper_default().with_values(
                {**SMALL, "network.kind": "edmd", "training.precision": precision}
            )
        ).model
        for precision in ("float32", "float64")
    ]
    np.testing.assert_array_equal(models[0].operator_, models[1].operator_)


WRONG = [
    ({"network.kind": "edmd", "algorithm.name": "fedavg-m"}, 'give algorithm.name = "auto"'),
    ({"network.kind": "spectral", "algorithm.name": "fedavg-m"}, 'give algorithm.name = "auto"'),
    ({"network.kind": "inclusive", "algorithm.name": "fedavg-m"}, 'give algorithm.name = "auto"'),
    ({"algorithm.name": "staged"}, 'paper is not: give algorithm.name = "auto"'),
    ({"network.degree": 0}, "network.degree is 0"),
    ({"network.degree": 13}, "network.degree is 13"),
    ({"network.kind": "edmd", "network.degree": 12, "network.window": 3}, "at most 2000"),
    ({"network.dictionary": "spline"}, "network.dictionary is 'spline'"),
    ({"network.features": 0}, "network.features is 0"),
    ({"network.kind": "edmd", "network.dictionary": "rbf", "network.features": 3000}, "most 2000"),
    ({"network.kind": "spectral", "network.features": 3000}, "at most 2000"),
    ({"network.learned": 3}, "network.learned is 3: give true or false"),
    ({"network.horizon": 0}, "network.horizon is 0"),
    ({"network.kind": "spectral", "network.horizon": 300}, "network.horizon is 300 but segments"),
    ({"network.kind": "spectral", "network.horizon": 10**8}, "give at most 299"),
    ({"network.discount": -1}, "network.discount is -1"),
    ({"network.discount": "nan"}, "network.discount is"),
    ({"network.ridge": -0.1}, "network.ridge is -0.1"),
    ({"network.kind": "edmd", "network.ridge": 1.0}, "at least 0 and below 1"),
    ({"network.kind": "spectral", "network.ridge": 2.0}, "at least 0 and below 1"),
    ({"network.kind": "spectral", "network.components": 2}, "network.components is 2, smaller"),
    ({"network.kind": "spectral", "network.components": 149}, "from 3 to 148"),
    ({"network.kind": "inclusive", "network.components": 3}, "give more than 3"),
    ({"network.kind": "spectal"}, "spectal"),
]


@pytest.mark.parametrize(("values", "says"), WRONG)
@pytest.mark.parametrize("verb", ["check", "run"])
def test_what_cannot_work_is_refused_in_one_line_before_anything_is_written(
    verb, values, says, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text("slots = 3\n")
    options = [f"--set={key}={value}" for key, value in values.items()]
    out = ["--out", "results"] if verb == "run" else []
    assert app.main([verb, "study.toml", *out, *options]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and says in said.err
    assert [one.name for one in tmp_path.iterdir()] == ["study.toml"]
