"""Table III: state estimators on Lorenz63.

ε is the mean of ‖x − x̂‖₁ / d over the last 100 of 300 steps and all trajectories, 𝒱 the standard
deviation of that error across trajectories, averaged over the same steps. Each trajectory has its
own initial state and its own random orthogonal sensor. The paper filters; the smoother that it then
trains on is shown as well.

The paper leaves two things open. Whether the true states have process noise: both readings are
computed, from the same initial states and with the same noise in the observations. And the sampling
interval: the three Kalman filters are computed at others as well.
"""

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fedkoopman.errors import ComputationError
from fedkoopman.estimation import DivergenceWarning, estimate
from fedkoopman.paper.estimators_judging import FILTERS, PARTICLE, Score
from fedkoopman.paper.estimators_showing import (
    INTERVAL,
    LEVELS,
    METHODS,
    PAPERS_TRAJECTORIES,
    PARTICLES,
    STEPS,
    SWEPT,
    TAIL,
    TRUTHS,
    findings_of,
)
from fedkoopman.paper.items import Findings, Options, Tell
from fedkoopman.paper.printed import small_sample_range
from fedkoopman.sensors import LinearSensor, Sensor, observe
from fedkoopman.systems import Lorenz63, simulate
from fedkoopman.version import NUMERICS

Errors = NDArray[np.float64]
"""‖x − x̂‖₁ / d over the last steps, (trajectories, steps)."""

INTERVALS, FAST_INTERVALS = (0.01, 0.02, 0.05, 0.1), (0.01, 0.02)
FAST_TRAJECTORIES = 3

CLOCKED = 5
"""How often a Gaussian filter is run to time it; particles take long enough to be timed once."""
RESAMPLES = 4000
"""Bootstrap samples of the trajectories, for differences of 𝒱."""


class Estimators:
    """The item."""

    def slots(self, options: Options) -> int:
        """It runs no federation."""
        return 0

    def settings(self, options: Options) -> dict[str, Any]:
        """Trajectories and their seed, sampling intervals and particles."""
        count = min(options.trajectories, FAST_TRAJECTORIES if options.fast else 10**9)
        return {
            "version": NUMERICS,
            "form": 3,
            "trajectories": count,
            "seed": options.seed,
            "intervals": list(FAST_INTERVALS if options.fast else INTERVALS),
            "particles": PARTICLES,
        }

    def compute(self, options: Options, tell: Tell) -> dict[str, Any]:
        """Run all methods under both readings and at both noise levels; then other intervals."""
        settings = self.settings(options)
        count, seed = settings["trajectories"], settings["seed"]
        scores: list[Score] = []
        spreads: list[dict[str, Any]] = []
        cells: list[dict[str, Any]] = []
        largest: dict[str, float] = {}
        for interval in (INTERVAL, *(i for i in settings["intervals"] if i != INTERVAL)):
            system = Lorenz63(dt=interval)
            for truth, noise in ((truth, noise) for truth in TRUTHS for noise in LEVELS):
                place = {"truth": truth, "noise": noise}
                seen = _observed(system, count, seed, noise, noisy=TRUTHS[truth])
                errors = {}
                for name in METHODS if interval == INTERVAL else SWEPT:
                    tell(f"{name}, dt = {interval:g}, Σ = {noise:g} I, truth by {truth}")
                    errors[name], seconds = _errors(name, system, seen, noise, seed)
                    if interval == INTERVAL:
                        _check(name, errors[name], noise)
                        scores.append(_score(truth, name, noise, errors[name], seconds))
                    if name in FILTERS:
                        cell = _cell(errors[name], seed)
                        cells.append({"interval": interval, **place, "method": name, **cell})
                if interval == INTERVAL:
                    largest[truth] = max(largest.get(truth, 0.0), float(np.abs(seen.x).max()))
                    found = spread_differences({n: errors[n] for n in FILTERS}, PARTICLE, seed)
                    spreads += [{**place, **one} for one in found]
        return {
            **settings,
            "scores": [asdict(s) for s in scores],
            "spreads": spreads,
            "cells": cells,
            "largest": largest,
        }

    def findings(self, numbers: dict[str, Any]) -> Findings:
        """The tables and the text's statements about them."""
        return findings_of(numbers)


class Seen(NamedTuple):
    """Trajectories, and what is observed of each."""

    x: NDArray[np.float64]
    sensors: list[Sensor]
    z: NDArray[np.float64]


def _observed(system: Lorenz63, count: int, seed: int, noise: float, *, noisy: bool) -> Seen:
    """The same initial states, sensors and observation noise, with process noise or without."""
    x = simulate(
        system, steps=STEPS, seed=seed, batch=count, process_noise=noise if noisy else None
    )
    sensors: list[Sensor] = [
        LinearSensor.random_frame(3, seed=seed * 100_003 + b) for b in range(count)
    ]
    z = [
        observe(sensor, x[b : b + 1, 1:], noise=noise, seed=seed * 100_003 + b)[0]
        for b, sensor in enumerate(sensors)
    ]
    return Seen(x, sensors, np.stack(z))


def _errors(
    name: str, system: Lorenz63, seen: Seen, noise: float, seed: int
) -> tuple[Errors, float]:
    """Errors, NaN where a filter diverged, and seconds per trajectory."""
    method, smooth = METHODS[name]

    def run(rows: slice) -> NDArray[np.float64]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)  # they are counted
            found = estimate(
                system, seen.sensors[rows], seen.z[rows], process_noise=noise,
                observation_noise=noise, method=method, smooth=smooth, particles=PARTICLES,
                seed=seed,
            )  # fmt: skip
        return np.where(np.asarray(found.ok)[:, None, None], np.asarray(found.mean), np.nan)

    # Compile outside the clock: the shape of a batch for the Gaussian filters, of one trajectory
    # for particles.
    run(slice(0, 1) if method == "particle" else slice(None))
    seconds = np.inf
    # The shortest of some times is what the filter needs; others tell what else the machine did.
    for _ in range(1 if method == "particle" else CLOCKED):
        start = time.perf_counter()
        mean = run(slice(None))
        seconds = min(seconds, (time.perf_counter() - start) / len(seen.z))
    return np.abs(seen.x[:, 1:] - mean).mean(axis=-1)[:, -TAIL:], seconds


def _check(name: str, errors: Errors, noise: float) -> None:
    if lost := int(np.sum(~np.isfinite(errors).all(axis=1))):
        raise ComputationError(
            f"{name} diverged on {lost} trajectories at Σ = {noise:g} I: no table was made"
        )


def _score(truth: str, name: str, noise: float, errors: Errors, seconds: float) -> Score:
    each = errors.mean(axis=1)
    half = stats.t.ppf(0.975, len(each) - 1) * each.std(ddof=1) / np.sqrt(len(each))
    return Score(
        truth, name, noise, float(each.mean()), float(_spreads(errors[None])[0]), float(half),
        seconds, tuple(each.tolist()),
    )  # fmt: skip


def _spreads(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """𝒱 of several samples of trajectories, (samples, trajectories, steps)."""
    return np.asarray(samples.std(axis=1).mean(axis=1))


def _cell(errors: Errors, seed: int) -> dict[str, Any]:
    """ε and 𝒱 of the trajectories that a filter did not lose, and what 10 of them would give."""
    kept = errors[np.isfinite(errors).all(axis=1)]
    size = PAPERS_TRAJECTORIES
    low, high = small_sample_range(kept.mean(axis=1), size, seed=seed)
    least, most = small_sample_range(kept, size, seed=seed, statistic=_spreads)
    return {
        "lost": len(errors) - len(kept),
        "error": float(kept.mean()),
        "error_low": low,
        "error_high": high,
        "spread": float(_spreads(kept[None])[0]),
        "spread_low": least,
        "spread_high": most,
    }


def spread_differences(errors: Mapping[str, Errors], least: str, seed: int) -> list[dict[str, Any]]:
    """By how much the 𝒱 of methods is above that of one of them, with 95 % bootstrap intervals.

    `above` and `below` are one-sided p-values: the share of the samples in which a difference is
    not above (below) 0.

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

    def spreads(error: Errors) -> NDArray[np.float64]:
        centred = error - error.mean(axis=0)
        squares = shares @ centred**2 - (shares @ centred) ** 2
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)).mean(axis=1))

    own = spreads(errors[least])
    found = []
    for name in (name for name in errors if name != least):
        first, *drawn = spreads(errors[name]) - own
        gaps = np.array(drawn)
        low, high = np.quantile(gaps, [0.025, 0.975])
        found.append(
            {
                "method": name,
                "difference": float(first),
                "low": float(low),
                "high": float(high),
                # The numbers themselves are one of the samples: no p-value is 0.
                "above": float((1 + np.sum(gaps <= 0)) / (1 + RESAMPLES)),
                "below": float((1 + np.sum(gaps >= 0)) / (1 + RESAMPLES)),
            }
        )
    return found


ITEM = Estimators()
