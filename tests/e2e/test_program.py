"""The program as a whole: version, help, its written reference."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

import fedkoopman
from fedkoopman.cli.reference import reference
from fedkoopman.cli.reproduce import RESULTS

REPOSITORY = Path(__file__).parents[2]


def test_version(site) -> None:
    outcome = site.run("--version")
    assert (outcome.code, outcome.out) == (0, f"fedkoopman {fedkoopman.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_verbs_and_an_example(site, arguments: list[str]) -> None:
    outcome = site.run(*arguments)
    assert outcome.code == 0
    for words in ("estimate", "reproduce", "fedkoopman reproduce table-estimators"):
        assert words in outcome.out


def test_as_a_process_of_its_own(site) -> None:
    outcome = site.run_alone("--version")
    assert (outcome.code, outcome.out, outcome.err) == (0, "fedkoopman 0.1.0\n", "")


def test_the_list_of_results(site) -> None:
    outcome = site.run("reproduce", "--list")
    assert outcome.code == 0
    assert outcome.out.startswith("table-estimators  ")


def test_the_written_reference_is_not_stale() -> None:
    written = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    assert written == reference(), "docs/cli.md is stale: run `make docs`"


def test_reproduce_hands_its_options_to_the_result(site, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    module = ModuleType("fake_result")
    module.run = lambda **options: calls.append(options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fake_result", module)
    monkeypatch.setitem(RESULTS, "table-estimators", ("fake_result", ""))
    assert site.run("reproduce", "table-estimators").code == 0
    more = ["--trajectories", "200", "--seed", "7", "--out", "results"]
    assert site.run("reproduce", "table-estimators", *more).code == 0
    assert calls == [
        {"trajectories": 10, "seed": 0, "out": None},
        {"trajectories": 200, "seed": 7, "out": Path("results")},
    ]
