"""Studies made of Python objects: systems and functions in place of names."""

import importlib
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.federation.policies.policy import Situation
from fedkoopman.runs.experiment import experiment_of

SMALL = {
    "slots": 3,
    "segments": {"steps": 30},
    "training": {"epochs": 1},
    "clients": {"count": 2, "probability": 1.0},
    "evaluation": {"trajectories": 2},
    "scheme": "perfect-data",
}


def oscillator(stiffness: float) -> fk.System:
    return fk.System.from_function(
        lambda x: jnp.stack([x[1], -stiffness * x[0]]), dim=2, dt=0.1, names=["q", "p"]
    )


def second_only(situation: Situation) -> list[int]:
    return [1]


def test_a_study_of_objects_runs_as_they_say() -> None:
    study = fk.Study.paper_default(system=oscillator(4.0), policy=lambda s: [1], **SMALL)
    run = fk.run(study)
    assert [record["active"] for record in run.records] == [[1], [1], [1]]
    assert run.model.feature_names_in_.tolist() == ["q", "p"] and run.model.dt_ == 0.1


def test_two_systems_alike_in_name_stay_apart() -> None:
    soft, hard = (fk.Study.paper_default(system=oscillator(k)) for k in (1.0, 9.0))
    assert soft.digest() != hard.digest()
    x = jnp.array([1.0, 0.0])
    slopes = [experiment_of(s, 0).system.vector_field(x)[1] for s in (soft, hard)]
    assert np.allclose(slopes, [-1.0, -9.0])


def test_a_system_of_the_package_is_named_with_its_parameters() -> None:
    by_hand = fk.Study.paper_default(
        system={"name": "lorenz63", "parameters": {"b": 30.0, "dt": 0.01, "substeps": 2}}
    )
    given = fk.systems.Lorenz63(b=30.0, dt=0.01, substeps=2)
    assert fk.Study.paper_default(system=given) == by_hand
    assert fk.Study.paper_default(system=fk.systems.Lorenz63) == fk.Study.paper_default()
    changed = by_hand.with_values({"system": fk.systems.VanDerPol()})
    assert changed.system.name == "van-der-pol" and changed.system.parameters == {}


def test_objects_of_a_session_have_no_run_directory(tmp_path: Path) -> None:
    study = fk.Study.paper_default(system=oscillator(4.0), policy=second_only, **SMALL)
    study = study.with_values({"policy": lambda s: [0]})
    with pytest.raises(fk.InputError, match=r"system.name and policy.name .* session"):
        fk.run(study, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    elsewhere = study.to_toml().replace("<session>.py:FunctionSystem", "<session>.py:gone")
    elsewhere = elsewhere.replace("<session>.py:functionsystem", "<session>.py:gone")
    (tmp_path / "study.toml").write_text(elsewhere)
    with pytest.raises(fk.InputError, match="another Python session, which is gone"):
        fk.Study.load(tmp_path / "study.toml")


def test_objects_of_a_file_go_on_from_a_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rules.py").write_text("def first(situation):\n    return [0]\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        choose = importlib.import_module("my_rules").first
        study = fk.Study.paper_default(policy=choose, **SMALL)
    finally:
        sys.modules.pop("my_rules", None)
    assert study.policy.name == f"{tmp_path / 'my_rules.py'}:first"
    begun = fk.run(study, out=tmp_path / "run")
    again = fk.run(study, out=tmp_path / "run", resume=True)
    assert again.records == begun.records and begun.records[0]["active"] == [0]


def test_what_is_no_object_is_refused_as_before() -> None:
    with pytest.raises(fk.InputError, match="policy is 5: give a table"):
        fk.Study.paper_default(policy=5)
    with pytest.raises(fk.InputError, match=r"segments is .*: give a table"):
        fk.Study.paper_default(segments=second_only)
    with pytest.raises(fk.InputError, match=r"name them, as system\.states"):
        fk.Study.paper_default(system=lambda x: -x).check()
