"""`fedkoopman tune` as a user runs it, on tiny studies."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STUDY = """
name = "tiny: a study"
slots = 8
[segments]
steps = 30
[clients]
count = 2
probability = 1.0
[training]
epochs = 1
[policy]
segments = 1
[evaluation]
trajectories = 2
"""


@pytest.fixture
def tiny(site):
    (site.folder / "tiny.toml").write_text(STUDY, encoding="utf-8")
    return site


def found_in(out: Path) -> dict:
    """What `tune.json` says but for times."""
    found = json.loads((out / "tune.json").read_text(encoding="utf-8"))
    for trial in found["trials"]:
        trial.pop("seconds")
    return found


def test_a_tuning_is_tabulated_and_its_best_study_runs(tiny) -> None:
    outcome = tiny.run("tune", "tiny.toml", "--budget", "4", "--out", "out")
    assert outcome.code == 0, outcome.err
    found = found_in(tiny.folder / "out")
    assert "first: as-given\n" in outcome.err and "rung 3 of 3, 1 of 1: " in outcome.err
    words = outcome.out.splitlines()
    for trial in found["trials"]:
        names = [f"{k.split('.')[1]} = {v}" for k, v in trial["values"].items()]
        name = ", ".join(names) or "the study as given"
        assert any(line.startswith(f"  {name} ") for line in words)
    scores = {
        trial["candidate"]: trial["score"] for trial in found["trials"] if trial["slots"] == 8
    }
    [best] = [line for line in words if line.startswith("best: ")]
    assert f"is {min(scores.values()):.3g} of holding's" in best
    assert ("note: holding the last state" in outcome.out) == (min(scores.values()) >= 1)
    assert f"({scores['as-given']:.3g})" in best or "no candidate came below it" in best
    kinds = {trial["values"].get("network.kind", "paper") for trial in found["trials"]}
    assert kinds == {"spectral", "edmd", "inclusive", "paper"}
    assert (
        "chosen on seeds 1000000 to 1000002; the test set of the study's own seed was not used"
        in words
    )
    assert words[-3:] == [
        "trials: out/tune.json",
        "study: out/best.toml",
        "next: fedkoopman run out/best.toml --out runs/tiny-a-study-tuned",
    ]
    assert tiny.run(*words[-1].split()[2:]).code == 0
    assert (tiny.folder / "runs/tiny-a-study-tuned/model.safetensors").is_file()
    again = tiny.run("tune", "--resume", "--out", "out", "--no-progress")
    assert (again.code, again.out) == (0, outcome.out)
    assert "rung" not in again.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_stopped_anywhere_and_resumed_it_ends_the_same(tiny, stop: signal.Signals) -> None:
    only = ["--set", "slots=80", "--set", "algorithm.name=fedavg-m"]  # kinds that compile fast
    words = ["tune", "tiny.toml", *only, "--budget", "4", "--seeds", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedkoopman.cli", *words, "--out", "out"],
        cwd=tiny.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and not list(
        tiny.folder.glob("out/slots-10/*/seed-*/records.jsonl")
    ):
        time.sleep(0.01)
    process.send_signal(stop)
    out, err = process.communicate()
    if stop == signal.SIGINT:
        assert (process.returncode, out) == (130, ""), err
        said = re.fullmatch(
            r"interrupted: saved in rung .*; go on with: fedkoopman (.*)", err.splitlines()[-1]
        )
        assert said and said[1] == "tune --resume --out out", err
    assert len(found_in(tiny.folder / "out")["trials"]) >= 1
    assert not (tiny.folder / "out/best.toml").exists()
    assert tiny.run("tune", "--resume", "--out", "out").code == 0
    assert tiny.run(*words, "--out", "whole").code == 0
    assert found_in(tiny.folder / "out") == found_in(tiny.folder / "whole")
    best = (tiny.folder / "out/best.toml").read_bytes()
    assert best == (tiny.folder / "whole/best.toml").read_bytes()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "2"], "budget is 2: give at least 3"),
        (["--budget", "many"], "'many' is not a whole number"),
        (["--seed", "0"], "include the study's own, 0"),
        (["--seeds", "0"], "0 is below 1"),
        (["--seed", "-1"], "-1 is below 0"),
        (["--set", "trainig.epochs=5"], "did you mean 'training.epochs'"),
        (["--set", "network.components=2"], "network.components is 2"),
        (["--out", "z.csv"], "z.csv is a file and no tuning"),
        (["--out", "."], "is a directory with other files and no tuning"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_told_in_one_line(tiny, words: list[str], says: str) -> None:
    before = tiny.files()
    outcome = tiny.run("tune", "tiny.toml", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ") and outcome.err.count("\n") == 1
    assert says in outcome.err
    assert tiny.files() == before


def test_what_is_no_tuning_is_not_resumed(tiny) -> None:
    for words, says in (
        (["--out", "nowhere"], "nowhere holds no tuning to resume"),
        (["--out", "nowhere", "--set", "slots=3"], "name the study file too"),
    ):
        outcome = tiny.run("tune", "--resume", *words)
        assert (outcome.code, outcome.out) == (2, "")
        assert says in outcome.err and outcome.err.count("\n") == 1
    assert not (tiny.folder / "nowhere").exists()
