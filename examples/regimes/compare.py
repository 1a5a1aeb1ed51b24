"""Judge models on swings of every range, whoever trained them: held-out swings of all laboratories.

python compare.py runs/shared runs/lab-small runs/lab-middle runs/lab-large

It is run where all laboratories' files are, beside study.toml; the models of a run with several
seeds are scored one by one and their errors averaged. Errors are root mean squares of the angle, in
degrees, over every start in the swings. What the model says is compared with smoothed states.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fedkoopman as fk
from fedkoopman.runs.site_preparation import prepared_sites

RANGES = ("small", "middle", "large")
STEPS = (1, 5, 20, 50, 100)

Swings = dict[str, list[np.ndarray]]
Forecaster = Callable[[np.ndarray, int], np.ndarray]
"""States and a number of steps to the states so many steps later, of all but the last rows."""


def held_out(study: fk.Study) -> Swings:
    """States (T, 2) of all laboratories' held-out swings, by how far they swing."""
    found: Swings = {name: [] for name in RANGES}
    for site in prepared_sites(study).sites:
        for one in site.held_out:
            found[one.name.split("-")[1]].append(one.states)
    return found


def lifted_once(model: fk.DeepKoopman) -> Forecaster:
    """Lift, apply K again and again, and decode."""
    return lambda x, steps: model.predict(x, n_steps=steps, relift=0)[:-steps]


def lifted_again(model: fk.DeepKoopman) -> Forecaster:
    """Lift, apply K and decode in every step."""
    return lambda x, steps: model.predict(x, n_steps=steps, relift=1)[:-steps]


def holding(x: np.ndarray, steps: int) -> np.ndarray:
    """The last state, for ever."""
    return x[:-steps]


def degrees_off(forecast: Forecaster, x: np.ndarray, steps: int) -> float:
    """Root mean square error of the angle in one swing."""
    wrong = forecast(x, steps)[:, 0] - x[steps:, 0]
    return float(np.degrees(np.sqrt(np.mean(wrong**2))))


def errors(forecast: Forecaster, swings: Swings, steps: int) -> list[float]:
    """By range; all swings have the same length."""
    every = [[degrees_off(forecast, x, steps) for x in swings[name]] for name in RANGES]
    return [float(np.sqrt(np.mean(np.square(one)))) for one in every]


def worst(forecast: Forecaster, swings: Swings, steps: int) -> float:
    """The largest error in a swing, as a share of holding's or of the swing's spread, whichever is
    larger: beyond 1.5 a forecast explodes."""
    found = []
    for x in [x for name in RANGES for x in swings[name]]:
        spread = float(np.degrees(x[:, 0].std()))
        bound = max(spread, degrees_off(holding, x, steps))
        found.append(degrees_off(forecast, x, steps) / bound)
    return max(found)


def models(run: Path) -> list[fk.DeepKoopman]:
    """Of every seed of a run."""
    files = sorted(run.glob("seed-*/model.safetensors")) or [run / "model.safetensors"]
    return [fk.load_model(file) for file in files]


def main() -> None:
    """Print a table for each way to forecast and number of steps."""
    given = argparse.ArgumentParser(description="Judge models on swings of every range.")
    given.add_argument("runs", nargs="+", type=Path)
    given.add_argument("--study", type=Path, default=Path("study.toml"))
    given.add_argument("--steps", nargs="+", type=int, default=STEPS)
    chosen = given.parse_args()
    swings = held_out(fk.Study.load(chosen.study))
    every = {run: models(run) for run in chosen.runs}
    for title, way in (("lifted once", lifted_once), ("lifted in every step", lifted_again)):
        for steps in chosen.steps:
            print(
                f"{f'{steps} steps, {title}':32}" + "".join(f"{n:>10}" for n in (*RANGES, "worst"))
            )
            for run, found in every.items():
                rows = [
                    [*errors(way(m), swings, steps), worst(way(m), swings, steps)] for m in found
                ]
                _show(str(run), [*np.mean(rows, axis=0)[:-1], np.max(rows, axis=0)[-1]])
            _show("holding", [*errors(holding, swings, steps), worst(holding, swings, steps)])
            print()


def _show(name: str, row: list[float]) -> None:
    print(f"{name:32}" + "".join(f"{value:10.2f}" for value in row))


if __name__ == "__main__":
    main()
