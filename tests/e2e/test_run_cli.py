"""`fedkoopman run` and `fedkoopman sweep` as a user runs them, on tiny studies."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedkoopman.reports.wording import number

STUDY = """
name = "tiny: a study"
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
FILES = {
    "study.toml",
    "records.jsonl",
    "checkpoint",
    "model.safetensors",
    "rollout.json",
    "summary.json",
    "report.html",
}


@pytest.fixture
def tiny(site):
    (site.folder / "tiny.toml").write_text(STUDY, encoding="utf-8")
    return site


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refused(outcome, *words: str) -> None:
    """Exit 2, one line on stderr that says this, nothing on stdout."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err


def test_a_run_leaves_its_directory_and_says_where(tiny) -> None:
    outcome = tiny.run_alone("run", "tiny.toml", "--out", "out")
    assert outcome.code == 0
    assert {path.name for path in (tiny.folder / "out").iterdir()} >= FILES
    lines = outcome.out.splitlines()
    assert lines[-2:] == ["model: out/model.safetensors", "report: out/report.html"]
    summary = json.loads((tiny.folder / "out/summary.json").read_text(encoding="utf-8"))
    for name in ("l1", "l2", "l3", "E", "horizon"):
        assert number(summary[name]["mean"], 4) in outcome.out
    assert "±" not in outcome.out
    assert outcome.err.splitlines()[-1].startswith("slot 3 of 3  loss ")
    records = (tiny.folder / "out/records.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["slot"] for line in records] == [1, 2, 3]


def test_without_out_the_directory_is_named_after_the_study(tiny) -> None:
    assert tiny.run("run", "tiny.toml").code == 0
    assert (tiny.folder / "runs/tiny-a-study/summary.json").is_file()


def test_several_seeds(tiny) -> None:
    options = ["--seeds", "2", "--set", "seed=4", "--out", "out", "--no-progress"]
    outcome = tiny.run("run", "tiny.toml", *options)
    assert (outcome.code, outcome.err) == (0, "")
    assert "model: out/seed-4/model.safetensors\n" in outcome.out
    summary = json.loads((tiny.folder / "out/summary.json").read_text(encoding="utf-8"))
    assert summary["seeds"] == [4, 5]
    assert f"{summary['l3']['mean']:.4g} ± {summary['l3']['std']:.2g}" in outcome.out


def test_a_finished_run_is_not_overwritten_but_may_be_resumed(tiny) -> None:
    assert tiny.run("run", "tiny.toml", "--seeds", "2", "--out", "out").code == 0
    before = contents(tiny.folder / "out")
    refused(tiny.run("run", "tiny.toml", "--out", "out"), "--resume", "--out")
    assert contents(tiny.folder / "out") == before
    for named in ([], ["tiny.toml"]):
        outcome = tiny.run("run", *named, "--resume", "--out", "out")
        assert outcome.code == 0
        assert outcome.out.endswith("report: out/report.html\n")
        after = contents(tiny.folder / "out")
        assert after.keys() == before.keys()
        for name in ("seed-1/records.jsonl", "seed-1/model.safetensors", "summary.json"):
            assert after[name] == before[name]


def test_another_study_is_not_resumed(tiny) -> None:
    assert tiny.run("run", "tiny.toml", "--out", "out").code == 0
    before = contents(tiny.folder / "out")
    outcome = tiny.run("run", "tiny.toml", "--set", "slots=4", "--resume", "--out", "out")
    refused(outcome, "out")
    assert contents(tiny.folder / "out") == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "trainig.epochs=5"], "did you mean 'training.epochs'"),
        (["--set", "training.epochs=0"], "training.epochs is 0"),
        (["--set", "clients.probability=1.5"], "clients.probability is 1.5"),
        (["--set", "network.components=2"], "network.components is 2"),
        (["--set", "slots"], "write KEY=VALUE"),
        (["--seeds", "0"], "0 is below 1"),
        (["--out", "z.csv"], "z.csv"),
        (["--out", "z.csv/inside"], "z.csv"),
        (["missing.toml"], "missing.toml"),
        (["--resume", "--out", "nowhere"], "nowhere holds no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_told_in_one_line(tiny, words: list[str], says: str) -> None:
    before = contents(tiny.folder)
    refused(tiny.run("run", *words), says)
    assert contents(tiny.folder) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable to root")
@pytest.mark.parametrize("verb", [["run"], ["sweep", "--grid", "training.epochs=1,2"]])
def test_an_unwritable_directory_is_told_in_one_line(tiny, verb: list[str]) -> None:
    locked = tiny.folder / "locked"
    locked.mkdir(mode=0o500)
    refused(tiny.run(*verb, "tiny.toml", "--out", "locked/out"), "locked/out", "ermission")


def test_ctrl_c_saves_and_says_how_to_go_on(tiny) -> None:
    """Stopped in the middle and gone on with as it says, the models are those of a whole run."""
    study = ["tiny.toml", "--set", "slots=120", "--seeds", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedkoopman.cli", "run", *study, "--out", "out"],
        cwd=tiny.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    records = tiny.folder / "out/seed-0/records.jsonl"
    while process.poll() is None and not (records.exists() and records.stat().st_size > 3_000):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    said = re.fullmatch(
        r"interrupted: saved at slot (\d+); go on with: fedkoopman (.*)", err.splitlines()[-1]
    )
    assert said is not None, err
    held = records.read_text(encoding="utf-8").splitlines()
    assert 0 < int(said[1]) <= json.loads(held[-1])["slot"] < 120
    assert said[2] == "run --resume --out out"
    assert tiny.run(*said[2].split()).code == 0
    assert tiny.run("run", *study, "--out", "whole").code == 0
    for seed in ("seed-0", "seed-1"):
        model = (tiny.folder / "out" / seed / "model.safetensors").read_bytes()
        assert model == (tiny.folder / "whole" / seed / "model.safetensors").read_bytes()


def sweep_rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "sweep.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_sweep_is_tabulated(tiny) -> None:
    grid = ["--grid", "training.epochs=1,2", "--grid", "clients.observation_noise=1,[1,1,1,1,3]"]
    outcome = tiny.run("sweep", "tiny.toml", *grid, "--seeds", "2", "--out", "out")
    assert outcome.code == 0
    assert outcome.out.endswith("report: out/sweep.html\n")
    assert "1 of 4: training.epochs=1,clients.observation_noise=1\n" in outcome.err
    rows = sweep_rows(tiny.folder / "out")
    assert [(r["training.epochs"], r["clients.observation_noise"]) for r in rows] == [
        ("1", "1"),
        ("1", "[1,1,1,1,3]"),
        ("2", "1"),
        ("2", "[1,1,1,1,3]"),
    ]
    page = (tiny.folder / "out/sweep.md").read_text(encoding="utf-8")
    assert "4 of 4 combinations" in page and "over 2 seeds" in page
    for row in rows:
        path = tiny.folder / "out" / row["directory"] / "summary.json"
        summary = json.loads(path.read_text(encoding="utf-8"))
        for metric in ("l1", "l2", "l3", "loss", "E", "horizon"):
            assert float(row[f"{metric}_mean"]) == summary[metric]["mean"]
            assert float(row[f"{metric}_std"]) == summary[metric]["std"]
        spread = f"{summary['E']['mean']:.4g} ± {summary['E']['std']:.2g}"
        assert spread in page and spread in outcome.out
    before = contents(tiny.folder / "out")
    refused(tiny.run("sweep", "tiny.toml", *grid, "--out", "out"), "--resume")
    again = tiny.run("sweep", "--resume", "--out", "out")
    assert again.code == 0
    assert contents(tiny.folder / "out") == before
    other = ["--grid", "training.epochs=1,3", "--resume", "--out", "out"]
    refused(tiny.run("sweep", "tiny.toml", *other), "another grid")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "no --grid"),
        (["--resume", "--out", "nowhere"], "nowhere holds no sweep"),
        (["--grid", "trainig.epochs=5"], "did you mean 'training.epochs'"),
        (["--grid", "training.epochs=1,0"], "training.epochs is 0"),
        (["--grid", "slots=1,2", "--set", "slots=3"], "--set and --grid both give slots"),
        (["--grid", "clients.probability=[0.5,0.5"], "ends before ]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_grid_is_told_in_one_line(tiny, words: list[str], says: str) -> None:
    before = contents(tiny.folder)
    refused(tiny.run("sweep", "tiny.toml", *words), says)
    assert contents(tiny.folder) == before
