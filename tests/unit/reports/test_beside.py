"""A report with another run beside: both runs' numbers, and forecasts of the same trajectory."""

import json
import shutil

import pytest

from fedkoopman import Study, run, write_report
from fedkoopman.cli import main

SMALL = {"slots": 6, "segments": {"steps": 60}, "clients": {"count": 2}, "policy": {"segments": 1}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    run(Study.from_dict(SMALL | {"name": "papers"}), out=folder / "paper")
    ours = Study.from_dict(SMALL | {"name": "ours", "network": {"kind": "edmd"}})
    run(ours, out=folder / "ours")
    return folder


def test_the_page_has_both_runs_numbers_and_a_sentence(runs):
    page = write_report(runs / "ours", runs / "paper").read_text(encoding="utf-8")
    assert "ours beside papers" in page and "beside-forecast" in page
    for name in ("ours", "paper"):
        told = json.loads((runs / name / "summary.json").read_text())["E1"]["mean"]
        assert f"{told:.4g}" in page
    mine, its = (
        json.loads((runs / name / "summary.json").read_text())["E1"]["mean"]
        for name in ("ours", "paper")
    )
    assert mine < its
    assert f"states that ours predicts are {(its / mine) ** 0.5:.3g} times closer" in page


def test_without_another_run_nothing_is_said_of_one(runs):
    page = write_report(runs / "ours").read_text(encoding="utf-8")
    assert "beside" not in page.split("<script")[0]


def test_another_truth_is_not_drawn_beside(runs, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(runs / "paper", other)
    found = json.loads((other / "rollout.json").read_text())
    found["truth"][3][0] += 1.0
    (other / "rollout.json").write_text(json.dumps(found))
    page = write_report(runs / "ours", other).read_text(encoding="utf-8")
    assert "ours beside papers" in page and "beside-forecast" not in page


def test_errors_of_different_quantities_are_not_compared(runs, tmp_path):
    """As of a run with `scheme = "observations"`."""
    other = tmp_path / "other"
    shutil.copytree(runs / "paper", other)
    found = json.loads((other / "rollout.json").read_text())
    found["names"] = ["z1", "z2", "z3"]
    (other / "rollout.json").write_text(json.dumps(found))
    page = write_report(runs / "ours", other).read_text(encoding="utf-8")
    assert "ours predicts x1, x2, x3 and papers z1, z2, z3: errors of different" in page
    assert "times closer" not in page


def test_a_directory_without_a_run_is_refused_before_anything_runs(tmp_path, capsys):
    out = tmp_path / "out"
    code = main(["run", "--set", "slots=2", "--out", str(out), "--beside", str(tmp_path)])
    assert code == 2 and not out.exists()
    assert "is no run directory: give one that a run has made" in capsys.readouterr().err
