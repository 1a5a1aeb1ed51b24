"""The program as a whole: version, help, its written reference."""

import json
from pathlib import Path

import pytest

import fedkoopman
from fedkoopman.cli.reference import reference

REPOSITORY = Path(__file__).parents[2]
THREE = ("--trajectories", "3", "--seed", "7")


def test_version(site) -> None:
    outcome = site.run("--version")
    assert (outcome.code, outcome.out) == (0, f"fedkoopman {fedkoopman.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_verbs_and_an_example(site, arguments: list[str]) -> None:
    outcome = site.run(*arguments)
    assert outcome.code == 0
    for words in (
        "run",
        "sweep",
        "tune",
        "config",
        "estimate",
        "reproduce",
        "fedkoopman run --set slots=50",
    ):
        assert words in outcome.out


def test_as_a_process_of_its_own(site) -> None:
    outcome = site.run_alone("--version")
    version = f"fedkoopman {fedkoopman.__version__}\n"
    assert (outcome.code, outcome.out, outcome.err) == (0, version, "")


def test_the_list_of_results(site) -> None:
    outcome = site.run("reproduce", "--list")
    assert outcome.code == 0
    listed = [line.split()[0] for line in outcome.out.splitlines()]
    assert listed[0] == "fig-systems" and len(listed) == 14 and "table-estimators" in listed


def test_the_written_reference_is_not_stale() -> None:
    written = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "docs/cli.md is stale: run `make docs`"


def test_reproduce_writes_the_estimator_table(site) -> None:
    """All methods on three trajectories: ours within the range of a correct filter, the paper's as
    printed."""
    outcome = site.run("reproduce", "table-estimators", *THREE, "--out", "results")
    assert outcome.code == 0
    assert outcome.out.rstrip().endswith("report: results/index.html")
    folder = site.folder / "results" / "table-estimators"
    data = json.loads((folder / "table-estimators.json").read_text(encoding="utf-8"))["data"]
    assert data["trajectories"] == 3 and data["seed"] == 7
    assert len(data["scores"]) == 2 * 12  # with and without process noise in the truth
    errors = {(s["method"], s["noise"]): s["error"] for s in data["scores"] if "(1)" in s["truth"]}
    assert len(errors) == 12
    for (method, noise), error in errors.items():
        assert 0.15 < error / noise**0.5 < 0.9, (method, noise, error)
    assert errors["UKF + smoother", 1.0] < 0.8 * errors["UKF", 1.0]
    text = (folder / "table-estimators.md").read_text(encoding="utf-8")
    assert "2.1662 ± 0.8122" in text and "paired difference" in text
    assert (folder / "table-estimators.csv").read_text().startswith("truth,method,")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table(site) -> None:
    found = []
    for out in ("one", "other"):
        assert site.run("reproduce", "table-estimators", *THREE, "--out", out).code == 0
        path = site.folder / out / "table-estimators" / "table-estimators.json"
        found.append(json.loads(path.read_text(encoding="utf-8"))["data"])
    assert [s["each"] for s in found[0]["scores"]] == [s["each"] for s in found[1]["scores"]]
