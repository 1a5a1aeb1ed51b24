"""Table III: state estimators on Lorenz63.

ε is the mean of ‖x − x̂‖₁ / d over the last 100 of 300 steps and all trajectories, 𝒱 the standard
deviation of that error across trajectories, averaged over the same steps. Each trajectory has its
own initial state and its own random orthogonal sensor. The paper filters; the smoother that it then
trains on is shown as well.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from scipy import stats

from fedkoopman.errors import ComputationError
from fedkoopman.estimation import estimate
from fedkoopman.paper.estimators_judging import (
    EKF,
    PARTICLE,
    RESAMPLED,
    UKF,
    Score,
    estimator_claims,
    readings,
)
from fedkoopman.paper.items import Findings, Numbers, Options, Table, Tell
from fedkoopman.sensors import LinearSensor, Sensor, observe
from fedkoopman.systems import Lorenz63, simulate
from fedkoopman.version import NUMERICS

STEPS, TAIL, PARTICLES = 300, 100, 1000
FAST_TRAJECTORIES = 3
LEVELS = (1.0, 4.0)

RESAMPLES = 4000
"""Bootstrap samples of the trajectories, for intervals of differences of 𝒱."""

METHODS = {
    UKF: ("ukf", False),
    RESAMPLED: ("ukf-resampled", False),
    EKF: ("ekf", False),
    PARTICLE: ("particle", False),
    "UKF + smoother": ("ukf", True),
    "UKF with resampling + smoother": ("ukf-resampled", True),
}

PAPER = {
    UKF: ((0.6755, 0.3397), (1.3686, 0.6850)),
    RESAMPLED: ((0.7173, 0.3650), (1.3653, 0.7091)),
    EKF: ((2.1662, 0.8122), (3.0394, 1.5896)),
    PARTICLE: ((0.6814, 0.3241), (1.3843, 0.6324)),
}
"""ε, 𝒱 at Σ = I and Σ = 4I."""


class Estimators:
    """The item."""

    def slots(self, options: Options) -> int:
        """It runs no federation."""
        return 0

    def settings(self, options: Options) -> dict[str, Any]:
        """Trajectories and their seed."""
        count = min(options.trajectories, FAST_TRAJECTORIES if options.fast else 10**9)
        return {"version": NUMERICS, "form": 2, "trajectories": count, "seed": options.seed}

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Run all methods at both noise levels on the same trajectories."""
        settings = self.settings(options)
        trajectories, seed = settings["trajectories"], settings["seed"]
        system = Lorenz63()
        x = simulate(system, steps=STEPS, seed=seed, batch=trajectories)
        sensors: list[Sensor] = [
            LinearSensor.random_frame(3, seed=seed * 100_003 + b) for b in range(trajectories)
        ]
        scores, spreads = [], []
        for noise in LEVELS:
            z = np.stack(
                [
                    observe(sensor, x[b : b + 1, 1:], noise=noise, seed=seed * 100_003 + b)[0]
                    for b, sensor in enumerate(sensors)
                ]
            )
            errors = {}
            for name in METHODS:
                tell(f"{name}, Σ = {noise:g} I")
                errors[name], seconds = _errors(name, system, sensors, z, x[:, 1:], noise, seed)
                scores.append(_score(name, noise, errors[name], seconds))
            found = spread_differences({n: errors[n] for n in PAPER}, PARTICLE, seed)
            spreads += [{"noise": noise, **one} for one in found]
        return {**settings, "scores": [asdict(s) for s in scores], "spreads": spreads}

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """The table and the text's statements about it."""
        scores = [Score(**score) for score in numbers["scores"]]
        rows = [(s.method, s.noise, s.error, s.spread, s.interval, s.seconds) for s in scores]
        columns = ("method", "noise", "error", "spread", "interval", "seconds")
        spreads = numbers["spreads"]
        return Findings(
            claims=estimator_claims(scores, spreads, _extended(scores)),
            table=Table(
                ("method", *_columns(1.0), *_columns(4.0), "ms per trajectory"),
                tuple(_row(name, scores) for name in METHODS),
            ),
            numbers=(
                Numbers("", columns, tuple(rows)),
                Numbers("spreads", tuple(spreads[0]), tuple(tuple(s.values()) for s in spreads)),
            ),
            notes=_notes(numbers["trajectories"], numbers["seed"]),
            sources=tuple((name, _source(name, numbers)) for name in METHODS),
        )


def spread_differences(
    errors: Mapping[str, np.ndarray], least: str, seed: int
) -> list[dict[str, Any]]:
    """By how much the 𝒱 of methods is above that of one of them, with 95 % bootstrap intervals.

    Arguments:
        errors: by method (trajectories, steps), of the same trajectories.
        least: the method that the others are compared with.
        seed: of the resampling, in which whole trajectories are drawn, the same for all methods.
    """
    count = len(errors[least])
    draws = np.random.default_rng([seed, count]).multinomial(
        count, np.full(count, 1 / count), size=RESAMPLES
    )
    shares = np.vstack([np.ones(count), draws]) / count

    def spreads(error: np.ndarray) -> np.ndarray:
        centred = error - error.mean(axis=0)
        squares = shares @ centred**2 - (shares @ centred) ** 2
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)).mean(axis=1))

    own = spreads(errors[least])
    found = []
    for name in (name for name in errors if name != least):
        gaps = spreads(errors[name]) - own
        low, high = np.quantile(gaps[1:], [0.025, 0.975])
        middle = float(gaps[0])
        found.append({"method": name, "difference": middle, "low": float(low), "high": float(high)})
    return found


def _errors(
    name: str,
    system: Lorenz63,
    sensors: list[Sensor],
    z: np.ndarray,
    truth: np.ndarray,
    noise: float,
    seed: int,
) -> tuple[np.ndarray, float]:
    """‖x − x̂‖₁ / d over the last steps (trajectories, steps), and seconds per trajectory."""
    method, smooth = METHODS[name]

    def run(rows: slice) -> np.ndarray:
        found = estimate(
            system, sensors[rows], z[rows], process_noise=noise, observation_noise=noise,
            method=method, smooth=smooth, particles=PARTICLES, seed=seed,
        )  # fmt: skip
        if not np.all(found.ok):
            count = int(np.sum(~np.asarray(found.ok)))
            raise ComputationError(
                f"{name} diverged on {count} trajectories at Σ = {noise:g} I: no table was made"
            )
        return np.asarray(found.mean)

    # Compile outside the clock: the shape of a batch for the Gaussian filters, of one trajectory
    # for particles.
    run(slice(0, 1) if method == "particle" else slice(None))
    start = time.perf_counter()
    mean = run(slice(None))
    seconds = (time.perf_counter() - start) / len(z)
    return np.abs(truth - mean).mean(axis=-1)[:, -TAIL:], seconds


def _score(name: str, noise: float, error: np.ndarray, seconds: float) -> Score:
    each = error.mean(axis=1)
    half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    spread = float(error.std(axis=0).mean())
    return Score(
        name, noise, float(each.mean()), spread, float(half), seconds, tuple(each.tolist())
    )


def _label(noise: float) -> str:
    return "I" if noise == 1 else f"{noise:g}I"


def _columns(noise: float) -> tuple[str, str, str]:
    label = _label(noise)
    return f"Σ = {label}: ours", f"95 % interval of ε, {label}", f"Σ = {label}: paper"


def _row(name: str, scores: list[Score]) -> tuple[str, ...]:
    cells = [name]
    mine = [s for s in scores if s.method == name]
    for level, score in enumerate(mine):
        low, high = score.error - score.interval, score.error + score.interval
        cells += [f"{score.error:.4f} ± {score.spread:.4f}", f"{low:.3f} to {high:.3f}"]
        paper = PAPER.get(name)
        cells.append("–" if paper is None else "{:.4f} ± {:.4f}".format(*paper[level]))
    cells.append(f"{1e3 * np.mean([s.seconds for s in mine]):.3g}")
    return tuple(cells)


def _extended(scores: list[Score]) -> str:
    """Why the extended filter's row differs from the paper's."""
    times = [
        f"{PAPER[EKF][level][0] / s.error:.2g}"
        for level, s in enumerate(s for s in scores if s.method == EKF)
    ]
    return (
        "ours has exact Jacobians of the discrete step and equals a textbook twin "
        "(tests/reference/filters.py) and the library cuthbert to 1e-8 (benchmarks/estimation.py); "
        f"the paper's ε of the extended filter is {' and '.join(times)} times ours at Σ = I and 4I"
    )


def _source(name: str, numbers: dict[str, Any]) -> str:
    method, smooth = METHODS[name]
    particles = f", particles={PARTICLES}" if method == "particle" else ""
    return (
        f"fedkoopman reproduce table-estimators --trajectories {numbers['trajectories']} "
        f"--seed {numbers['seed']}\n"
        f"# fedkoopman.estimation.estimate(…, method={method!r}, smooth={smooth}{particles}, "
        f"process_noise=Σ, observation_noise=Σ, seed={numbers['seed']}), Σ = 1 and 4"
    )


def _notes(trajectories: int, seed: int) -> tuple[str, ...]:
    return (
        f"{trajectories} trajectories (the paper takes 10) of {STEPS} steps at dt = 0.02 (the "
        f"paper states no sampling interval), seed {seed}; errors over the last {TAIL} steps; the "
        "same trajectories and noise for all rows.",
        readings(),
        "Cells are ε ± 𝒱: the mean error ‖x − x̂‖₁/d, and its standard deviation across "
        "trajectories. Smoothed rows are not in the paper's table; the paper trains on them.",
        "Seconds are measured on this machine, after compilation, with all cores in use.",
    )


ITEM = Estimators()
