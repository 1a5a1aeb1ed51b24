"""What the server's step, average, FedProx and FedBuff do to E in the default federation.

    .venv/bin/python benchmarks/server_steps.py [--slots 100] [--seeds 2]

Each setting is run with the same seeds. Prints a table: E as the mean over the last 50 slots, of
all seeds, and E over that of the paper's settings with the same seed, as a geometric mean.
"""

import argparse

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.runs.run import run

BUFFERED = {"algorithm.name": "fedbuff"}
ONE_SLOW = {"algorithm.delays": [0, 0, 0, 0, 5]}
ALL_SLOW = {"algorithm.delays": 5}
SETTINGS = {
    "the paper's: none": {},
    "none, learning_rate 0.5": {"server.learning_rate": 0.5},
    "momentum": {"server.step": "momentum"},
    "momentum 0.9": {"server.step": "momentum", "server.momentum": 0.9},
    "momentum 0.9, learning_rate 0.1": {
        "server.step": "momentum",
        "server.momentum": 0.9,
        "server.learning_rate": 0.1,
    },
    "adam": {"server.step": "adam"},
    "yogi": {"server.step": "yogi"},
    "adagrad": {"server.step": "adagrad"},
    "average 0.8": {"server.average": 0.8},
    "momentum, average 0.8": {"server.step": "momentum", "server.average": 0.8},
    "proximal 0.01": {"training.proximal": 0.01},
    "proximal 0.1": {"training.proximal": 0.1},
    "fedbuff, buffer 1": BUFFERED | {"algorithm.buffer": 1},
    "fedbuff, buffer 3": BUFFERED,
    "fedbuff, buffer 1, one of five 5 slots behind": BUFFERED | ONE_SLOW | {"algorithm.buffer": 1},
    "… and staleness 0": BUFFERED | ONE_SLOW | {"algorithm.buffer": 1, "algorithm.staleness": 0},
    "fedbuff, buffer 3, one of five 5 slots behind": BUFFERED | ONE_SLOW,
    "fedbuff, buffer 1, all 5 slots behind": BUFFERED | ALL_SLOW | {"algorithm.buffer": 1},
    "fedbuff, buffer 3, all 5 slots behind": BUFFERED | ALL_SLOW,
}


def main() -> None:
    """Run all settings, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="", help="settings whose names contain this, and none")
    given = parser.parse_args()
    found = {}
    print("| setting | E | times the first |\n|---|---|---|")
    chosen = {n: v for n, v in SETTINGS.items() if given.only in n or not v}
    for name, values in chosen.items():
        studies = [Study.paper_default(given.slots, seed) for seed in range(given.seeds)]
        ends = [run(study.with_values(values)).summary["E"]["mean"] for study in studies]
        found[name] = np.array(ends, float)
        ratio = np.exp(np.log(found[name] / found["the paper's: none"]).mean())
        print(f"| {name} | {', '.join(f'{e:.3g}' for e in ends)} | {ratio:.3g} |", flush=True)


if __name__ == "__main__":
    main()
