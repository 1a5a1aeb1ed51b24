"""How long `fedkoopman reproduce all` takes, beside what the PyTorch route would.

    .venv-bench/bin/python benchmarks/reproduction.py [--data PATH] [--out DIR]

Runs the command as a user does, in a fresh process with an empty cache of compiled functions. The
peer (`torch_federation.py`) runs one seed of the default experiment, once before and once after;
its time for everything is that, times the gradient work of all runs in units of that seed's. Writes
benchmarks/results/reproduction.{md,json}.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from federation import RESULTS, SLOTS, spawn

LIMIT = 30.0  # minutes
DEFAULT = "paper-default"


def reproduce(out: Path, data: Path | None, cache: Path) -> dict:
    """Run everything; seconds in all and by item, and peak memory."""
    command = [sys.executable, "-m", "fedkoopman.cli", "reproduce", "all", "--out", str(out)]
    command += ["--data", str(data)] if data else []
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    began = time.time()
    subprocess.run(command, check=True, env={**environment, "XDG_CACHE_HOME": str(cache)})
    seconds = time.time() - began
    finished = sorted((path.stat().st_mtime, path.stem) for path in out.rglob("*.json")
                      if path.parent.name == path.stem)  # fmt: skip
    items, before = {}, began
    for when, name in finished:
        items[name], before = when - before, when
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {"seconds": seconds, "items": items, "gibibytes": memory}


def work(runs: Path) -> dict[str, float]:
    """Samples trained on, times epochs, of every seed of every run."""
    found = {}
    for study in runs.glob("*/seed-*/study.toml"):
        epochs = tomllib.loads(study.read_text(encoding="utf-8"))["training"]["epochs"]
        lines = (study.parent / "records.jsonl").read_text(encoding="utf-8").splitlines()
        samples = sum(json.loads(line)["samples"] for line in lines)
        found[study.parent.relative_to(runs).as_posix()] = samples * epochs
    return found


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the measured double pendulum")
    parser.add_argument("--out", type=Path, help="keep the results here; must not exist yet")
    arguments = parser.parse_args()
    before = spawn(2, "peer", slots=SLOTS, seeds=1, tuned=False)["seconds"]
    with tempfile.TemporaryDirectory() as folder:
        out = arguments.out or Path(folder) / "reproduction"
        ours = reproduce(out, arguments.data, Path(folder) / "cache")
        done = work(out / "runs")
    after = spawn(2, "peer", slots=SLOTS, seeds=1, tuned=False)["seconds"]
    record = {"ours": ours, "peer_seconds": [before, after], "work": done}
    (RESULTS / "reproduction.json").write_text(json.dumps(record, indent=1) + "\n")
    (RESULTS / "reproduction.md").write_text(report(record), encoding="utf-8")
    print(report(record))
    print(f"\nreport: {RESULTS / 'reproduction.md'}")


def report(record: dict) -> str:
    """The record for a reader."""
    ours, done, (before, after) = record["ours"], record["work"], record["peer_seconds"]
    seeds = sum(done.values()) / done[f"{DEFAULT}/seed-0"]
    hours, minutes = min(before, after) * seeds / 3600, ours["seconds"] / 60
    text = [
        "# Reproducing the paper: `fedkoopman reproduce all`",
        "",
        "Made by `benchmarks/reproduction.py`. Wall time of the command with empty caches, all "
        "imports and compilation included, on two cores.",
        "",
        f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}.",
        "",
        f"**{minutes:.1f} minutes** for {len(ours['items'])} items and {len(done)} seeds of runs "
        f"(asked: under {LIMIT:g}, {'met' if minutes < LIMIT else 'missed'}); peak memory "
        f"{ours['gibibytes']:.2f} GiB. The runs have the gradient work of {seeds:,.0f} seeds of "
        f"the default experiment. A plain PyTorch + filterpy + SciPy program took {before:.0f} s "
        f"(before) and {after:.0f} s (after) for one such seed; at the shorter, about "
        f"**{hours:.1f} hours** for all of them, **{60 * hours / minutes:.0f} times** as long. "
        "This counts neither the estimator table nor the theorem, which ours includes.",
        "",
        "| item | seconds |",
        "|---|---|",
        *(f"| {name} | {seconds:.1f} |" for name, seconds in ours["items"].items()),
        "",
        "Runs that several items need are made by the first of them.",
    ]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
