"""Several runs on a page: their numbers, what differs, and forecasts of the same trajectory."""

import json
import shutil

import pytest
from unit.reports.test_run_report import charts_of, read

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


def test_the_page_has_both_runs_numbers_and_a_sentence(runs, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", str(runs / "ours"), str(runs / "paper"), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    mine, its = (
        json.loads((runs / name / "summary.json").read_text())["E1"]["mean"]
        for name in ("ours", "paper")
    )
    assert mine < its
    ratio = float(f"{(its / mine) ** 0.5:.3g}")
    assert f"states that ours predicts are {ratio:,g} times closer" in text
    assert '<td data-name="ours">edmd</td><td data-name="papers">paper</td>' in text
    charts = charts_of(text)
    for chart in ("ahead", "horizons"):
        names = {line["name"] for line in charts[chart]["frames"][0]["series"]}
        assert {"ours", "papers", "holding the last value", "EDMD of degree 3"} <= names
    names = {line["name"] for line in charts["states"]["series"]}
    assert {"truth", "papers: lifted once"} <= names
    assert {line["name"] for line in charts["error"]["series"]} == {"ours", "papers"}


def test_runs_of_one_name_are_told_apart_by_their_directories(runs, tmp_path):
    shutil.copytree(runs / "paper", tmp_path / "copy")
    text = write_report([runs / "paper", tmp_path / "copy"], out=tmp_path / "p.html").read_text()
    assert {line["name"] for line in charts_of(text)["error"]["series"]} == {"paper", "copy"}


def test_a_forecast_that_dies_is_told_on_the_first_screen(runs):
    text = write_report(runs / "paper").read_text(encoding="utf-8")
    assert '<p class="warning">Its forecasts die at once' in text
    assert text.index("Its forecasts die at once") < text.index('id="summary"')


def test_without_another_run_nothing_is_said_of_one(runs):
    write_report(runs / "ours")
    assert "beside-scores" not in read(runs / "ours").tables


def test_another_truth_is_not_drawn_beside(runs, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(runs / "paper", other)
    found = json.loads((other / "rollout.json").read_text())
    found["truth"][3][0] += 1.0
    (other / "rollout.json").write_text(json.dumps(found))
    text = write_report(runs / "ours", other).read_text(encoding="utf-8")
    assert "Of other trajectories, and not drawn: papers." in text
    assert not any("papers" in line["name"] for line in charts_of(text)["states"]["series"])


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
