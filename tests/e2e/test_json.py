"""`--json` ends every verb that prints a table with one line for other programs."""

import inspect
import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from fedkoopman.cli.app import VERBS, app
from fedkoopman.cli.closing import plain

SERVICES = {"serve", "join", "watch"}
WITHOUT_TABLE = {"init", "config", "report", "export", "backup", "restore"}
STUDY = """
name = "tiny"
slots = 3
[segments]
steps = 30
[training]
epochs = 1
[policy]
segments = 1
[evaluation]
trajectories = 2
"""


def test_every_verb_that_prints_a_table_takes_it() -> None:
    commands = get_command(app).commands
    takes = {
        name
        for name, command in commands.items()
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert takes == set(VERBS) - SERVICES - WITHOUT_TABLE
    tables = re.compile(r"new_table\(|Table\(|csv\.writer")
    for name in WITHOUT_TABLE - {"init", "config"}:  # these two share their module with check
        source = inspect.getsource(inspect.getmodule(VERBS[name].function))
        assert not tables.search(source), f"{name} prints a table: return its facts"


@pytest.fixture
def told(site):
    (site.folder / "tiny.toml").write_text(STUDY, encoding="utf-8")

    def run(*words: str) -> dict:
        outcome = site.run(*words, "--json")
        assert outcome.code == 0, outcome.err
        [line] = outcome.out.splitlines()

        def never(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        facts = json.loads(line, parse_constant=never)
        assert isinstance(facts, dict)
        return facts

    return run


def test_from_check_to_forecast(told) -> None:
    assert told("check", "tiny.toml")["name"] == "tiny"
    done = told("run", "tiny.toml", "--no-progress", "--out", "out")
    summary = json.loads(Path("out/summary.json").read_text(encoding="utf-8"))
    assert done == summary | {
        "directory": "out", "model": "out/model.safetensors", "report": "out/report.html",
    }  # fmt: skip
    model = done["model"]
    assert len(told("inspect", model)["states"]) == 3
    Path("x.csv").write_text("x,y,z\n1,2,3\n1,2,3\n1,2,3\n1,2,3\n", encoding="utf-8")
    ahead = told("predict", model, "x.csv", "--steps", "3", "--columns", "x,y,z")
    assert {len(column) for column in ahead["forecast"].values()} == {3}
    kept = told("predict", model, "x.csv", "--steps", "3", "--columns", "x,y,z", "--out", "f.csv")
    assert kept["out"] == "f.csv" and "forecast" not in kept


def test_what_takes_longer_is_told_too(told) -> None:
    swept = told("sweep", "tiny.toml", "--grid", "training.epochs=1,2", "--no-progress")
    assert [one["values"] for one in swept["combinations"]] == [
        {"training.epochs": 1}, {"training.epochs": 2},
    ]  # fmt: skip
    assert Path(swept["report"]).is_file() and Path(swept["table"]).is_file()
    assert told("reproduce", "--list")["items"][0]["name"] == "fig-systems"
    words = ["estimate", "z.csv", "--system", "lorenz63", "--sensor", "sensor.toml"]
    assert told(*words, "--out", "states.csv")["rows"] == 20


def test_sites_of_a_fleet(told, site) -> None:
    assert site.run("init", "swings", "--example", "pendulum").code == 0
    made = told("provision", "swings/study.toml", "--insecure")
    assert [one["name"] for one in made["sites"]] == ["lab-a", "lab-b", "lab-c"]
    assert Path(made["fleet"]).is_dir()


def test_numbers_that_are_not_finite_are_null() -> None:
    numpy = pytest.importorskip("numpy")
    values = {"a": float("nan"), "b": [numpy.float32("inf"), numpy.array([1.0, numpy.nan])]}
    assert plain(values) == {"a": None, "b": [None, [1.0, None]]}
    assert plain({"at": Path("x"), "n": numpy.int64(3)}) == {"at": "x", "n": 3}
