"""What differential privacy costs: the error E against ε, and the time of training.

    .venv/bin/python benchmarks/privacy.py [--seeds 2] [--slots 200]

The paper's default federation in one process, with noise from the sites (one training example or
one segment is a record) and with noise from the server (one site's update is). ε is that of the
site that released most, at δ = 1e-5, over the whole run. Times are seconds of the processor for
one ClientUpdate on five segments of 300 samples, the least of many. Writes
benchmarks/results/privacy.{md,json,svg}.
"""

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np

import fedkoopman as fk
from fedkoopman.koopman.kinds.paper import PaperNetwork
from fedkoopman.koopman.kinds.spectral import Spectral
from fedkoopman.koopman.private_training import Private, site_update
from fedkoopman.koopman.training import Training

RESULTS = Path(__file__).parent / "results"
NOISES = (0.5, 1.0, 2.0, 4.0, 8.0)
CASES = {
    "example": {"privacy.mode": "site", "privacy.record": "sample"},
    "segment": {"privacy.mode": "site", "privacy.record": "segment"},
    "site's update": {"privacy.mode": "central", "privacy.clip": 0.3},
}
REPEATS = 25


def utility(slots: int, seeds: int) -> list[dict]:
    study = fk.Study.paper_default(slots=slots)
    rows = []
    for record, values in {"–": {}, **CASES}.items():
        for noise in NOISES if values else (0.0,):
            given = {**values, "privacy.noise": noise} if values else {}
            found = fk.run(study.with_values(given), seeds=seeds).summary
            private = found.get("privacy", {})
            row = {
                "record": record,
                "noise": noise,
                "epsilon": private.get("epsilon"),
                "E": found["E"]["mean"],
                "std": found["E"]["std"],
                "untrained": found["untrained"]["E"],
            }
            rows.append(row)
            print(row, flush=True)
    return rows


def least_seconds(calls: dict) -> dict[str, float]:
    """Of each call; they take turns, so that a busy machine is busy for all."""
    found = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(REPEATS):
        for name, call in calls.items():
            began = time.process_time()
            call()
            found[name].append(time.process_time() - began)
    return {name: min(times) for name, times in found.items()}


def cost() -> dict[str, dict[str, float]]:
    random, training = np.random.default_rng(0), Training()
    walks = np.cumsum(random.normal(size=(5, 300, 3)), axis=1)
    segments = list((0.1 * walks).astype(np.float32))
    kinds = {"paper": PaperNetwork(3, 12), "spectral": Spectral(3, 20)}
    found = {}
    for name, kind in kinds.items():
        staged = name == "spectral"
        weights = kind.first_features(seed=0) if staged else kind.initialise(seed=0)
        fixed = kind.fixed() if staged else None

        def update(private=None, kind=kind, weights=weights, fixed=fixed):
            site_update(kind, training, weights, segments, seed=0, fixed=fixed, private=private)

        calls = {
            "without": update,
            "example": lambda u=update: u(Private("sample", 1.0, 1.0, 1)),
            "segment": lambda u=update: u(Private("segment", 1.0, 1.0, 1)),
        }
        found[name] = least_seconds(calls)
        print(name, found[name], flush=True)
    return found


def figure(rows: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    plain = rows[0]
    axes.axhline(plain["E"], color="black", linestyle="--", label="without privacy")
    axes.axhline(plain["untrained"], color="grey", linestyle=":", label="untrained model")
    for record in CASES:
        some = [row for row in rows if row["record"] == record and row["E"] is not None]
        some.sort(key=lambda row: row["epsilon"])
        axes.plot(
            [row["epsilon"] for row in some],
            [row["E"] for row in some],
            "o-",
            label=f"one {record}",
        )
    axes.set_ylim(0.5 * plain["E"], 1e6)
    axes.set(xscale="log", yscale="log", xlabel="ε at δ = 1e-5", ylabel="prediction error E")
    axes.legend(fontsize=8)
    plt.rcParams["svg.hashsalt"] = "privacy"
    fig.savefig(RESULTS / "privacy.svg", metadata={"Date": None})


def page(rows: list[dict], times: dict, slots: int, seeds: int) -> str:
    plain = rows[0]
    lines = [
        "# Privacy: what it costs",
        "",
        f"Made by `benchmarks/privacy.py --slots {slots} --seeds {seeds}`. Machine: "
        f"{platform.machine()}, Python {platform.python_version()}. ![E against ε](privacy.svg)",
        "",
        f"## Error against ε: the paper's default federation, {slots} slots, {seeds} seeds",
        "",
        "E is the mean over the last 50 slots and all seeds, ± over seeds. ε is that of the site "
        "that released most (first seed), at δ = 1e-5, as if each record had been in every "
        f"training. Without privacy E is {plain['E']:.3g} ± {plain['std']:.2g}; untrained "
        f"{plain['untrained']:.4g}.",
        "",
        "| one record is a | σ | ε | E | ± | times E without |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows[1:]:
        error = "not finite" if row["E"] is None else f"{row['E']:.3g}"
        ratio = "–" if row["E"] is None else f"{row['E'] / plain['E']:.3g}"
        spread = "–" if row["std"] is None else f"{row['std']:.2g}"
        lines.append(
            f"| {row['record']} | {row['noise']:g} | {row['epsilon']:.3g} | {error} | {spread} | "
            f"{ratio} |"
        )
    lines += [
        "",
        "## Time of one ClientUpdate",
        "",
        f"Five segments of 300 samples, 10 epochs, batches of 64; the least of {REPEATS}, in ms of "
        "the processor. Asked: at most 2.5 times.",
        "",
        "| kind | without | example | times | segment | times |",
        "|---|---|---|---|---|---|",
    ]
    for kind, found in times.items():
        base = found["without"]
        cells = [f"{1e3 * base:.1f}"]
        for record in ("example", "segment"):
            cells += [f"{1e3 * found[record]:.1f}", f"{found[record] / base:.2f}"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--slots", type=int, default=200)
    chosen = parser.parse_args()
    times = cost()
    rows = utility(chosen.slots, chosen.seeds)
    content = {"times": times, "rows": rows}
    (RESULTS / "privacy.json").write_text(json.dumps(content, indent=1) + "\n")
    (RESULTS / "privacy.md").write_text(page(rows, times, chosen.slots, chosen.seeds))
    figure(rows)


if __name__ == "__main__":
    main()
