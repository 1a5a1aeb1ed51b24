"""`fedkoopman reproduce` as a researcher runs it: pages, figures, data, and nothing done twice."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedkoopman.paper.items import CATALOGUE

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

FAST = ("--fast", "--seeds", "2", "--out", "paper")
MEASURED = os.environ.get("FEDKOOPMAN_DOUBLE_PENDULUM")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_an_item_is_written_in_full_and_not_computed_again(site) -> None:
    outcome = site.run("reproduce", "fig-restart", *FAST)
    assert outcome.code == 0, outcome.err
    assert outcome.out.rstrip().endswith("report: paper/index.html")
    assert "undecided" in outcome.out and "holds" not in outcome.out
    folder = site.folder / "paper"
    names = {path.name for path in (folder / "fig-restart").iterdir()}
    assert {f"fig-restart{s}" for s in (".json", ".csv", ".pdf", ".png", ".html", ".md")} <= names
    page = (folder / "fig-restart" / "fig-restart.html").read_text(encoding="utf-8")
    for text in ("Fig. 7f", "less diverse", "--fast", "segments", "restart = 50"):
        assert text in page
    assert "Fig. 7f" in (folder / "paper.md").read_text(encoding="utf-8")
    with (folder / "fig-restart" / "fig-restart.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 * 2 and all(float(row["loss"]) > 0 for row in rows)
    before = contents(folder)
    again = site.run("reproduce", "fig-restart", *FAST)
    assert again.code == 0 and contents(folder) == before


@pytest.mark.slow
def test_items_share_runs_and_one_index(site) -> None:
    assert site.run("reproduce", "fig-epochs", "fig-policy", *FAST).code == 0
    runs = sorted(path.name for path in (site.folder / "paper" / "runs").iterdir())
    assert len(runs) == 6 + 7 - 1 and "fast-paper-default" in runs
    index = (site.folder / "paper" / "index.html").read_text(encoding="utf-8")
    assert "Fig. 7d" in index and "Fig. 7e" in index


def test_a_killed_command_goes_on_where_it_was(site) -> None:
    """Killed while it runs, then run again: finished runs are kept as they are."""
    command = [sys.executable, "-m", "fedkoopman.cli", "reproduce", "fig-policy", *FAST]
    process = subprocess.Popen(command, cwd=site.folder, stderr=subprocess.PIPE)
    runs = site.folder / "paper" / "runs"
    while process.poll() is None and len(list(runs.glob("*/summary.json"))) < 2:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = [path.parent for path in runs.glob("*/seed-*/summary.json")]
    before = {folder: (folder / "records.jsonl").read_bytes() for folder in finished}
    assert before and not (site.folder / "paper" / "fig-policy" / "fig-policy.csv").exists()
    assert site.run("reproduce", "fig-policy", *FAST).code == 0
    for folder, records in before.items():  # they tell seconds, which another run would not repeat
        assert (folder / "records.jsonl").read_bytes() == records
    alone = site.folder / "alone"
    assert site.run("reproduce", "fig-policy", *FAST[:-1], str(alone)).code == 0
    one, two = ((site.folder / d / "fig-policy" / "fig-policy.csv") for d in ("paper", "alone"))
    assert one.read_bytes() == two.read_bytes()


def test_an_interrupted_command_says_how_to_go_on(site) -> None:
    command = [sys.executable, "-m", "fedkoopman.cli", "reproduce", "fig-policy", *FAST]
    process = subprocess.Popen(command, cwd=site.folder, stderr=subprocess.PIPE, text=True)
    runs = site.folder / "paper" / "runs"
    while process.poll() is None and not list(runs.glob("*/seed-*/records.jsonl")):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130
    assert told.rstrip().endswith(
        "go on with: fedkoopman reproduce fig-policy --seeds 2 --fast --out paper"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fig-nose"], "did you mean 'fig-noise'"),
        (["fig-double-pendulum"], "10.17632/7yd2ntbh3w"),
        (["fig-double-pendulum", "--data", "nowhere"], "nowhere"),
        (["fig-double-pendulum", "--data", "."], "10.17632/7yd2ntbh3w"),
        (["fig-double-pendulum", "--data", "z.csv"], "z.csv"),
        (["fig-policy", "--seeds", "0"], "0 is below 1"),
        (["fig-policy", "--seed", "-1"], "-1 is below 0"),
        (["fig-policy", "--out", "z.csv"], "z.csv is a file"),
    ],
)
def test_bad_input_is_one_line(site, arguments, told, monkeypatch) -> None:
    monkeypatch.delenv("FEDKOOPMAN_DOUBLE_PENDULUM", raising=False)
    before = site.files()
    outcome = site.run("reproduce", *arguments)
    assert outcome.code == 2 and told in outcome.err
    assert outcome.err.count("\n") == 1 and "Traceback" not in outcome.err
    assert site.files() == before


def test_fast_results_do_not_replace_others(site) -> None:
    assert site.run("reproduce", "theorem1", "--fast", "--out", "paper").code == 0
    outcome = site.run("reproduce", "theorem1", "--out", "paper")
    assert outcome.code == 2 and "--fast: choose another --out" in outcome.err


@pytest.mark.slow
def test_the_whole_paper_in_small(site) -> None:
    """Every item, as `reproduce all --fast` makes it."""
    data = ("--data", MEASURED) if MEASURED else ()
    outcome = site.run_alone("reproduce", "all", "--fast", "--out", "paper", *data)
    assert outcome.code == 0, outcome.err
    made = [n for n, about in CATALOGUE.items() if MEASURED or not about.needs_data]
    index = (site.folder / "paper" / "index.html").read_text(encoding="utf-8")
    report = (site.folder / "paper" / "paper.md").read_text(encoding="utf-8")
    for name in made:
        assert (site.folder / "paper" / name / f"{name}.html").is_file()
        suffixes = (".md", ".csv") if name.startswith("table") else (".pdf", ".png", ".csv")
        for suffix in suffixes:
            assert (site.folder / "paper" / name / f"{name}{suffix}").stat().st_size > 0
        assert CATALOGUE[name].paper in index and CATALOGUE[name].paper in report
    assert "does not hold" not in outcome.out


def test_another_setting_is_marked_and_not_judged(site) -> None:
    asked = ("fig-7f", "--seeds", "2", "--set", "slots=6", "--set", "training.epochs=1")
    outcome = site.run("reproduce", *asked)
    assert outcome.code == 0, outcome.err
    folder = site.folder / "reproduction-slots=6-training.epochs=1"
    for page in ("index.html", "fig-restart/fig-restart.html", "fig-restart/fig-restart.md"):
        text = (folder / page).read_text(encoding="utf-8")
        assert "not the paper" in text and "slots=6, training.epochs=1" in text, page
    assert "holds" not in outcome.out.replace("does not hold", "") and "undecided" in outcome.out
    with (folder / "fig-restart" / "fig-restart.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 8 * 2
    mixed = site.run("reproduce", "fig-restart", "--out", folder.name)
    assert mixed.code == 2 and "made with --set slots=6" in mixed.err
