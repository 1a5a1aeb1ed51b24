"""Do fewer bad samples make a better model? Gate, lost tracks and Huber's loss, measured.

    .venv/bin/python benchmarks/better_data.py [--slots 100] [--seeds 3]
    .venv/bin/python benchmarks/better_data.py --why

The default federation (Lorenz63, five clients) with the paper's settings and with ours
(`--recommended`); with its own noise, and with an outlier of ten standard deviations in 5 % of the
observations. Prints a table and writes it to benchmarks/results/better_data.md. With `--why`: which
samples the gate leaves out, and what becomes of E where others are left out instead.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.config.study import Study
from fedkoopman.estimation.estimates import cores
from fedkoopman.estimation.left_out import kept_samples, stretches
from fedkoopman.federation import sites
from fedkoopman.federation.sites import Address, Sites, arrived
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of
from fedkoopman.runs.run import run

ABOUT = """The default federation (Lorenz63, five clients) with the paper's settings and with ours
(`--recommended`); with its own noise, and with an outlier of ten standard deviations in 5 % of the
observations."""
SHARE, SIZE, LAST = 0.05, 10.0, 10
"""Of the outliers: how many observations, and how many standard deviations; slots at the end over
which E is averaged."""
RANDOM = 0.005
"""Share of samples that is left out at random, to cut segments into as many pieces."""
WHY = "\n## Which samples the gate leaves out\n"
OUTLIERS = 1 << 16
"""Tells their draws from all others."""
KEEP, GATE, HUBER = {"estimation.lost_track": "keep"}, "estimation.gate", "training.huber"
PAPER: dict[str, dict[str, Any]] = {
    "all samples": {},
    "gate 1.2": {GATE: 1.2},
    "gate 2": {GATE: 2.0},
    "gate 3": {GATE: 3.0},
    "Huber, δ = 1": {HUBER: 1.0},
}
OURS: dict[str, dict[str, Any]] = {
    "all samples": KEEP,
    "lost tracks dropped (the default)": {},
    "… and gate 2": {GATE: 2.0},
    "… and gate 3": {GATE: 3.0},
    "lost tracks dropped, Huber, δ = 1": {HUBER: 1.0},
}
HEAD = (
    "| federation | settings | samples left out | error of the states used | E | E over that of "
    "the first row, by seed |\n|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Found:
    """What one setting gives.

    Attributes:
        left_out: share of all samples that were not used.
        states: root mean square error per state of the samples that were used.
        scores: E of every seed.
    """

    left_out: float
    states: float
    scores: NDArray[np.float64]


def used_states(study: Study, seed: int, workers: Workers) -> tuple[float, int, int]:
    """Squared error of the states that are trained on, how many there are, and of how many."""
    experiment = experiment_of(study, seed)
    wanted = [
        Address(slot, n) for slot in range(1, study.slots + 1) for n in arrived(experiment, slot)
    ]
    truth = Sites(experiment, perfect=True).segments(wanted, workers)
    whole = Sites(experiment_of(study.with_values({GATE: 0.0}), seed), False)
    before = whole.segments(wanted, workers)
    found = Sites(experiment, False).segments(wanted, workers)
    square, count = 0.0, 0
    for address in wanted:
        states, every, true = found[address], before[address], truth[address]
        if states is None or every is None or true is None:
            continue
        # Where a stretch lay in the segment is told by its first state.
        for part in stretches(states):
            first = int(np.flatnonzero((every == part[0]).all(axis=1))[0])
            square += float(np.sum((part - true[first : first + len(part)]) ** 2))
        count += kept_samples(states)
    return square / experiment.system.dim, count, len(wanted) * experiment.steps


def measured(study: Study, seeds: int, workers: Workers) -> Found:
    """States and scores of one setting."""
    parts = [used_states(study, seed, workers) for seed in range(seeds)]
    square, count, every = (sum(column) for column in zip(*parts, strict=True))
    scores = [
        float(np.mean([record["E"] for record in records[-LAST:]]))
        for records in run(study, seeds=seeds).all_records.values()
    ]
    return Found(1 - count / every, float(np.sqrt(square / count)), np.array(scores))


@contextmanager
def outliers() -> Iterator[None]:
    """Simulated observations with gross errors, of which nobody is told."""
    clean = Sites._observe

    def observe(self: Sites, members: Any, clients: Any, truths: Any) -> NDArray[np.float64]:
        z = clean(self, members, clients, truths)
        for lane, address in enumerate(members):
            client = clients[lane]
            named = (self._experiment.seed, OUTLIERS, address.slot, client.identity)
            random = np.random.default_rng(named)
            hit = random.random(len(z[lane])) < SHARE
            noise = random.standard_normal(z[lane].shape) @ self._roots[address.client].T
            z[lane] += SIZE * noise * hit[:, None]
        return z

    Sites._observe = observe  # type: ignore[method-assign]
    try:
        yield
    finally:
        Sites._observe = clean  # type: ignore[method-assign]


def rows(mode: str, first: Study, settings: dict, seeds: int, workers: Workers) -> Iterator[str]:
    """A table's rows, one per setting."""
    base: Found | None = None
    for title, values in settings.items():
        found = measured(first.with_values(values), seeds, workers)
        base = base or found
        ratios = found.scores / base.scores
        beside = "" if base is found else ", ".join(f"{ratio:.2f}" for ratio in ratios)
        yield (
            f"| {mode} | {title} | {found.left_out:.1%} | {found.states:.3g} "
            f"| {np.mean(found.scores):.3g} | {beside} |"
        )


def print_line(line: str) -> str:
    """Print a line as soon as it is known, and give it back."""
    print(line, flush=True)
    return line


def why(slots: int) -> Iterator[str]:
    """Whether it is leaving out samples that does harm, or which ones; one seed."""
    study = Study.recommended(slots=slots).with_values({GATE: 2.0})
    steps, gate = study.segments.steps, sites.uncertain
    seen = list[NDArray[np.bool_]]()

    def watched(std: NDArray[np.float64], wanted: float) -> NDArray[np.bool_]:
        seen.append(gate(std, wanted))
        return seen[-1]

    def at_random(std: NDArray[np.float64], wanted: float) -> NDArray[np.bool_]:
        random = np.random.default_rng(np.frombuffer(std.tobytes(), np.uint32))
        return random.random(len(std)) < RANDOM

    rules = {
        "none": lambda std, wanted: np.zeros(len(std), bool),
        "by gate 2": watched,
        "the first 20 of every segment": lambda std, wanted: np.arange(len(std)) < 20,
        f"{RANDOM:.1%} at random": at_random,
    }
    yield "| samples left out | how many | E |\n|---|---|---|"
    for title, rule in rules.items():
        sites.uncertain = rule
        try:
            found = run(study)
        finally:
            sites.uncertain = gate
        score = np.mean([record["E"] for record in found.records[-LAST:]])
        yield f"| {title} | {found.summary['left_out']:,} | {score:.3g} |"
    parts = np.array_split(np.mean(seen, axis=0), 10)
    shares = ", ".join(f"{part.mean():.0%}" for part in parts)
    yield f"\nThe gate leaves out, of every tenth of a segment ({steps // 10} samples): {shares}."


def main() -> None:
    """Measure all, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--why", action="store_true")
    given = parser.parse_args()
    page = Path(__file__).parent / "results" / "better_data.md"
    if given.why:
        lines = [print_line(line) for line in why(given.slots)]
        before = page.read_text().split(WHY)[0] if page.exists() else ""
        command = f"`benchmarks/better_data.py --why --slots {given.slots}`"
        page.write_text(before + "\n".join([WHY, *lines, "", command]) + "\n")
        return
    began = time.process_time()
    lines = [print_line(HEAD)]
    with Workers(cores()) as workers:
        for name, study, settings in (
            ("the paper's", Study.paper_default(slots=given.slots), PAPER),
            ("ours", Study.recommended(slots=given.slots), OURS),
        ):
            for title, context in (("", nullcontext()), (", outliers", outliers())):
                with context:
                    found = rows(f"{name}{title}", study, settings, given.seeds, workers)
                    lines += [print_line(line) for line in found]
    took = f"{time.process_time() - began:.0f} s of processor time."
    print(took)
    command = f"`benchmarks/better_data.py --slots {given.slots} --seeds {given.seeds}`"
    text = "\n".join(["# Fewer bad samples: what it brings", "", ABOUT, "", *lines])
    page.write_text(f"{text}\n\n{command}, {took}\n")


if __name__ == "__main__":
    main()
