"""One laboratory of three lies: the pendulum example, with the guard and without.

    .venv/bin/python benchmarks/trust_laboratories.py [--seeds 5] [--first 20] [--only flip,drift]

The second laboratory lies from slot `--first` on, also as a judge (`trust_attacks.py`). E is the
mean over the last 50 slots; the ratio is to E of the two others alone, without a guard, on the same
draws. Writes `benchmarks/results/trust_laboratories.md`.
"""

import argparse
import math
import platform
import statistics
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from trust_attacks import ATTACKS, Lying
from trust_cases import number

from fedkoopman.config.scaffold import example_files, write_scaffold
from fedkoopman.config.study import Study
from fedkoopman.errors import ComputationError
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.simulation import simulate_federation
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.site_preparation import Sites, prepared_sites

PAGE = Path(__file__).parent / "results" / "trust_laboratories.md"
LIAR, TAIL = 1, 50
ASKED = [
    "nan", "times-3", "times-30", "times-100", "flip", "flip-times-3", "random", "random-weights",
    "constant", "million", "yesterday", "drift", "half-drift",
]  # fmt: skip


def records(
    study: Study, sites: Sites, seed: int, attack: str = "none", first: int = 0, alone: bool = False
) -> list[dict[str, Any]]:
    """What a run tells; `alone`: without the liar. A ruined model ends it early."""
    honest = experiment_of(study, seed, sites)
    if alone:
        stay = [n for n in range(len(honest.clients)) if n != LIAR]
        thresholds = tuple(float(honest.problem.thresholds[n]) for n in stay)
        clients = tuple(honest.clients[n] for n in stay)
        honest = replace(honest, clients=clients, segments=thresholds)
    if attack != "none":
        honest = replace(honest, algorithm=Lying(honest.algorithm, [LIAR], attack, first))
    found: list[dict[str, Any]] = []
    with Workers(cores()) as workers, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            for outcome in simulate_federation(honest, workers):
                found.append(outcome.record)
        except ComputationError:
            found.append({"slot": 0, "E": math.inf, "active": []})
    return found


def error(found: list[dict[str, Any]]) -> float:
    """E over the last slots."""
    return statistics.fmean(record["E"] for record in found[-TAIL:])


def named_after(found: list[dict[str, Any]], first: int) -> str:
    """After how many of its lies the liar was set aside."""
    sent = 0
    for record in found:
        sent += record["slot"] >= first and LIAR in record["active"]
        if LIAR in record.get("suspects", ()) and sent:
            return str(sent)
    return "–"


def main() -> None:
    """Run everything, print rows as they come, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=20)
    parser.add_argument("--only", default="", help=f"some of {', '.join(ATTACKS)}")
    given = parser.parse_args()
    attacks = given.only.split(",") if given.only else ASKED
    with tempfile.TemporaryDirectory() as folder:
        write_scaffold(Path(folder) / "swings", example_files("pendulum"))
        guarded = Study.load(Path(folder) / "swings" / "study.toml")
        sites = prepared_sites(guarded)
        plain = guarded.with_values({"aggregation.guard": "off"})
        seeds = range(given.seeds)
        without = [error(records(plain, sites, seed, alone=True)) for seed in seeds]
        rows = []
        for attack in ("none", *attacks):
            cells = []
            for study in (plain, guarded):
                runs = [records(study, sites, s, attack, given.first) for s in seeds]
                ratios = [number(error(r) / w) for r, w in zip(runs, without, strict=True)]
                cells.append(" ".join(ratios))
            wrong = sum(bool({0, 2} & {*r.get("suspects", ())}) for run in runs for r in run[-1:])
            after = " ".join(named_after(run, given.first) for run in runs)
            rows.append([attack, *cells, after if attack != "none" else "", str(wrong)])
            print(" | ".join(rows[-1]), flush=True)
    lines = [
        "# One laboratory of three lies",
        "",
        f"By `python benchmarks/trust_laboratories.py --seeds {given.seeds} --first {given.first}` "
        f"on {platform.machine()}, {cores()} cores.",
        "The pendulum example, 150 slots, the paper's network. One number per seed: E of the last "
        "50 slots over E of the two others alone, without a guard. Named: after how many lies the "
        "liar was set aside. Wrong: runs that end with an honest laboratory set aside.",
        "",
        "| attack | plain mean | guard | named | wrong |",
        "|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    PAGE.write_text("\n".join(lines) + "\n")
    print(f"page: {PAGE}")


if __name__ == "__main__":
    main()
