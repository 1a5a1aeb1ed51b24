"""What the server keeps: one file, whole, and true to what it was given."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from unit.deploy.in_memory import LABS, small_study

from fedkoopman.config.study import Study
from fedkoopman.deploy.server.server_state import STRIKES, ServerDirectory, ServerState, Standing
from fedkoopman.deploy.server.validation import Accepted
from fedkoopman.errors import InputError
from fedkoopman.federation.algorithm import Problem
from fedkoopman.runs.experiment import problem_of
from fedkoopman.runs.run_directory import RunDirectory, study_in

SCORES = {"loss": 1.0, "l1": 0.1, "E": None}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return small_study(tmp_path_factory.mktemp("state") / "study")


@pytest.fixture(scope="module")
def parts(study: Study) -> Problem:
    return problem_of(study, study.seed, 3)


def a_state(first: ServerState, slot: int) -> ServerState:
    weights = {name: leaf + np.float32(slot) for name, leaf in first.arrays.items()}
    sites = {"lab-a": Standing(included=slot, trained=300).struck(slot, "is broken")}
    pending = {"slot": slot, "active": [0]}
    updates = (Accepted(0.25, 100), Accepted(1 / 3, 300))
    return ServerState(slot, weights, sites, updates, SCORES, pending, 1.5)


def test_a_new_run_begins_with_the_untrained_model(
    study: Study, parts: Problem, tmp_path: Path
) -> None:
    with ServerDirectory.open(tmp_path / "out", study, parts, LABS) as directory:
        state = directory.restore()
        assert state.slot == 0 and state.scores is None and state.pending is None
        assert state.of("lab-a") == Standing()
        assert state.arrays["operator"].dtype == np.float32
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert about["sites"] == list(LABS)
    assert set(about["files"]) == {"dynamics.py"}  # nothing of the sites' own


def test_what_was_saved_is_there_again(study: Study, parts: Problem, tmp_path: Path) -> None:
    with ServerDirectory.open(tmp_path / "out", study, parts, LABS) as directory:
        saved = a_state(directory.restore(), 2)
        directory.begin(SCORES)
        directory.append({"slot": 1, "seconds": 1.0})
        directory.save(saved)
        directory.append({"slot": 2, "seconds": 2.0})  # which no checkpoint knows
    with ServerDirectory.open(tmp_path / "out", study, parts, LABS) as directory:
        state = directory.restore()
        assert directory.records() == [{"slot": 1, "seconds": 1.0}]
        assert directory.untrained == SCORES
        directory.name_sites([*LABS, "lab-d"])
    assert set(saved.arrays) == set(state.arrays)
    for name, mine in saved.arrays.items():
        np.testing.assert_array_equal(mine, state.arrays[name])
    for name in ("slot", "sites", "updates", "scores", "pending", "seconds"):
        assert getattr(state, name) == getattr(saved, name), name
    lines = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert json.loads((tmp_path / "out" / "run.json").read_text())["sites"][-1] == "lab-d"


def test_sites_files_are_not_looked_at(study: Study, parts: Problem, tmp_path: Path) -> None:
    text = study.to_toml()
    (tmp_path / "dynamics.py").write_bytes((study.root / "dynamics.py").read_bytes())
    elsewhere = Study.from_dict(tomllib.loads(text), tmp_path)
    assert elsewhere.digest() == study.digest()
    with ServerDirectory.open(tmp_path / "out", elsewhere, parts, LABS) as directory:
        assert directory.restore().slot == 0


def test_local_and_served_runs_do_not_mix(study: Study, parts: Problem, tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path / "local", study, None, False):
        pass
    with (
        pytest.raises(InputError, match="holds a run of fedkoopman run"),
        ServerDirectory.open(tmp_path / "local", study, parts, LABS),
    ):
        pass
    with ServerDirectory.open(tmp_path / "served", study, parts, LABS) as directory:
        directory.save(a_state(directory.restore(), 1))
    with pytest.raises(InputError, match="holds a run of fedkoopman serve"):
        study_in(tmp_path / "served")
    with (
        pytest.raises(InputError, match="holds a run of fedkoopman serve"),
        RunDirectory.open(tmp_path / "served", study, None, True),
    ):
        pass


def test_two_servers_do_not_share_a_directory(study: Study, parts: Problem, tmp_path: Path) -> None:
    with (
        ServerDirectory.open(tmp_path / "out", study, parts, LABS),
        pytest.raises(InputError, match="in use by another process"),
        ServerDirectory.open(tmp_path / "out", study, parts, LABS),
    ):
        pass


def test_a_damaged_checkpoint_is_noticed(study: Study, parts: Problem, tmp_path: Path) -> None:
    with ServerDirectory.open(tmp_path / "out", study, parts, LABS) as directory:
        directory.save(a_state(directory.restore(), 1))
    path = tmp_path / "out" / "checkpoint" / "state.safetensors"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"is broken", b"is honest"))
    with (
        ServerDirectory.open(tmp_path / "out", study, parts, LABS) as directory,
        pytest.raises(InputError, match="is damaged"),
    ):
        directory.restore()


def test_strikes_in_a_row_set_a_site_aside() -> None:
    site = Standing(buffered=100, segments=1)
    for strike in range(1, STRIKES):
        site = site.spent(strike, 100).struck(strike, "lies")
        assert not site.set_aside
    assert site.accepted(8, 50).strikes == 0
    site = site.struck(9, "lies again")
    assert site.set_aside == 9 and site.rejected == STRIKES
    assert site.struck(10, "and again").set_aside == 9
    assert site.refused == 100 * (STRIKES - 1) and site.trained == 0
    back = site.readmitted()
    assert (back.set_aside, back.strikes, back.rejected) == (0, 0, STRIKES)
