"""Report, card and `inspect` of a driven model tell what its inputs do."""

import json
import re

import numpy as np
import pytest
from reference import driven

import fedkoopman as fk
from fedkoopman.config.study import Study
from fedkoopman.errors import InputError
from fedkoopman.koopman.card import facts
from fedkoopman.reports.run import write_report


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run of a driven pendulum, whose torque moves the rate by dt in one step."""
    folder = tmp_path_factory.mktemp("driven-report")
    study = Study.load(driven.write_study(folder / "study"), {"network.degree": 3})
    return fk.run(study, out=folder / "run"), folder / "run"


def test_one_unit_moves_the_states_as_the_equations_say(done):
    """By finite differences of the equations at the mean of the states."""
    model = done[0].model
    (row,) = facts(model)["inputs"]
    x = np.ravel(model.reference_)
    expected = driven.pendulum(x, 1.0, 0.05) - driven.pendulum(x, 0.0, 0.05)
    found = [row["moves"][name] for name in ("theta", "omega")]
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert row["name"] == "torque" and expected[1] > 0.04


def test_the_page_shows_the_inputs_and_what_they_do(done):
    model, folder = done[0].model, done[1]
    page = write_report(folder).read_text(encoding="utf-8")
    moved = facts(model)["inputs"][0]["moves"]["omega"]
    assert "What the inputs do" in page
    assert re.search(rf"torque</th>.*{re.escape(f'{moved:+.3g}')}</td>", page)
    rollout = json.loads((folder / "rollout.json").read_text())
    assert len(rollout["inputs"]) == len(rollout["truth"])
    card = (folder / "model.md").read_text(encoding="utf-8")
    assert f"torque omega {moved:+.3g}" in card


def test_inputs_of_another_length_are_refused(done, tmp_path):
    source = done[1]
    for file in source.rglob("*"):
        if file.is_file() and "checkpoint" not in file.parts:
            target = tmp_path / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    file = tmp_path / "rollout.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"inputs": content["inputs"][:-1]}))
    with pytest.raises(InputError, match="the inputs do not have the length"):
        write_report(tmp_path)
