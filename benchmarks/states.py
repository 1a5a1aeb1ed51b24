"""How good the clients' states are in the default federation, by the settings of the filter.

    .venv/bin/python benchmarks/states.py [--slots 200] [--seeds 3]

For Lorenz63, Van der Pol and the pendulum: root mean square error per state over all segments that
arrive, its median over segments, and how many segments `lost_track` calls lost. Prints a table.
"""

import argparse
import time

import numpy as np

from fedkoopman.config.study import Study
from fedkoopman.estimation.estimates import cores
from fedkoopman.federation.sites import Address, Sites, arrived
from fedkoopman.federation.workers import Workers
from fedkoopman.runs.experiment import experiment_of

RESAMPLED = {"estimation.method": "ukf-resampled"}
LAW = {"estimation.initial_mean": "auto", "estimation.initial_cov": "auto"}
NOISE = {"clients.process_noise": "auto"}
SETTINGS = {
    "the paper's": {},
    "ukf-resampled": RESAMPLED,
    "… and law of x_0": RESAMPLED | LAW,
    "… and Q auto": RESAMPLED | NOISE,
    "… and both": RESAMPLED | LAW | NOISE,
    "… and lost tracks dropped": RESAMPLED | LAW | NOISE | {"estimation.lost_track": "drop"},
}
WIDE = {"estimation.alpha": 1.0, "estimation.kappa": 0.0}
SYSTEMS = {"lorenz63": {}, "van-der-pol": WIDE, "pendulum": WIDE}
"""With what the good settings take beside; the paper's take the paper's α and κ."""


def errors(study: Study, seed: int, workers: Workers) -> tuple[list[float], int, float]:
    """The error of each segment's states, how many segments are left out, and the seconds that it
    took to prepare the experiment."""
    began = time.perf_counter()
    experiment = experiment_of(study, seed)
    seconds = time.perf_counter() - began
    wanted = [
        Address(slot, n) for slot in range(1, study.slots + 1) for n in arrived(experiment, slot)
    ]
    truth = Sites(experiment, perfect=True).segments(wanted, workers)
    found = Sites(experiment, perfect=False).segments(wanted, workers)
    kept = [a for a in wanted if found[a] is not None]
    return (
        [float(np.sqrt(np.mean((found[a] - truth[a]) ** 2))) for a in kept],
        len(wanted) - len(kept),
        seconds,
    )


def main() -> None:
    """Measure every system with every setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print("| system | settings | RMSE | median | left out | preparing, s |")
    print("|---|---|---|---|---|---|")
    with Workers(cores()) as workers:
        for system, wide in SYSTEMS.items():
            for title, values in SETTINGS.items():
                spread = wide if values else {}
                study = Study.paper_default(slots=given.slots).with_values(
                    {"system.name": system, **spread, **values}
                )
                parts = [errors(study, seed, workers) for seed in range(given.seeds)]
                each = np.concatenate([part[0] for part in parts])
                left_out = sum(part[1] for part in parts)
                rms, seconds = np.sqrt(np.mean(each**2)), min(part[2] for part in parts)
                print(
                    f"| {system} | {title} | {rms:.3g} | {np.median(each):.3g} "
                    f"| {left_out} of {len(each) + left_out} | {seconds:.2g} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
