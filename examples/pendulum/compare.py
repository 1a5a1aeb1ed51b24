"""Judge models of the pendulum on the truth: swings without noise, which no laboratory has.

python compare.py runs/first runs/no-equations

The models of a run with several seeds are averaged: one seed's E is known to a third.
"""

import sys
from pathlib import Path

import numpy as np

import fedkoopman as fk
from fedkoopman.evaluation import TestSet, evaluate

STEPS = (1, 5, 50)


def truth(count: int = 20, steps: int = 300) -> np.ndarray:
    """Swings (count, steps + 1, 2) from where the laboratories let go, but others than theirs."""
    starts = np.random.default_rng(1).uniform((0.3, -1.0), (2.0, 1.0), (count, 2))
    system = fk.systems.Pendulum(length=1.0, dt=0.02)
    return np.stack([fk.simulate(system, steps=steps, initial=x0) for x0 in starts])


def angle_error(model: fk.DeepKoopman, x: np.ndarray, steps: int) -> float:
    """Root mean square error of the angle so many steps ahead, in degrees."""
    wrong = [model.predict(one[:-steps], n_steps=steps)[:, 0] - one[steps:, 0] for one in x]
    return float(np.degrees(np.sqrt(np.mean(np.square(wrong)))))


def scores(run: Path, x: np.ndarray) -> np.ndarray:
    """Angle errors and E of a run, averaged over its seeds."""
    files = sorted(run.glob("seed-*/model.safetensors")) or [run / "model.safetensors"]
    models = [fk.load_model(file) for file in files]
    test = TestSet(x)
    found = [
        [*(angle_error(m, x, n) for n in STEPS), evaluate(m.architecture_, m.weights_, test).e]
        for m in models
    ]
    return np.mean(found, axis=0)


def main(runs: list[str]) -> None:
    """Print a line per run."""
    x = truth()
    steps = "".join(f"{n:>5} steps" for n in STEPS)
    print(f"{'angle error [degrees] after':30}{steps}{'E':>9}")
    for run in runs:
        *errors, score = scores(Path(run), x)
        print(f"{run:30}" + "".join(f"{error:>11.2f}" for error in errors) + f"{score:>9.4f}")


if __name__ == "__main__":
    main(sys.argv[1:])
