"""Means and spreads over seeds: all that a report computes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkoopman.reports.run_files import RunFiles, SeedRecords


@dataclass(frozen=True)
class Curve:
    """A metric over slots, averaged over seeds."""

    slots: np.ndarray
    mean: np.ndarray
    """NaN where any seed's value was not finite: a mean of the rest would hide it."""
    low: np.ndarray
    high: np.ndarray
    """One standard deviation to either side; equal to the mean where there is one seed."""


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    std: float


def learning_curve(seeds: tuple[SeedRecords, ...], metric: str) -> Curve:
    """The mean of a metric in each slot over the seeds that have reached it.

    The losses and errors are never negative and are drawn on a logarithmic axis, so the band is
    not let fall below the lowest seed: there mean − std can be anywhere down to below zero.
    """
    slots = np.unique(np.concatenate([seed.slots for seed in seeds]))
    values = np.full((len(seeds), len(slots)), np.nan)
    reached = np.zeros(values.shape, bool)
    for row, seed in enumerate(seeds):
        columns = np.searchsorted(slots, seed.slots)
        values[row, columns] = seed.metrics[metric]
        reached[row, columns] = True
    count = reached.sum(axis=0)
    mean = np.where(reached, values, 0).sum(axis=0) / count
    squares = np.where(reached, (values - mean) ** 2, 0).sum(axis=0)
    std = np.sqrt(squares / np.maximum(count - 1, 1))
    lowest = np.where(reached, values, np.inf).min(axis=0)
    return Curve(slots=slots, mean=mean, low=np.maximum(mean - std, lowest), high=mean + std)


def tail_mean(seed: SeedRecords, metric: str, tail: int) -> float:
    """The mean over a seed's last slots, without the untrained model; NaN if any is not finite."""
    trained = seed.slots > 0
    values = seed.metrics[metric]
    return float(np.mean(values[trained][-tail:] if trained.any() else values))


def over_seeds(values: list[float]) -> Spread:
    """Mean and standard deviation (n − 1; 0 for one seed)."""
    several = len(values) > 1
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)) if several else 0.0)


def tail_spread(run: RunFiles, metric: str) -> Spread:
    """What the run's summary says of a metric; of an unfinished run, what its records say."""
    if run.summary is not None and isinstance(told := run.summary.get(metric), Mapping):
        return Spread(_number(told.get("mean")), _number(told.get("std")))
    return over_seeds([tail_mean(seed, metric, run.tail) for seed in run.seeds])


def untrained(run: RunFiles, metric: str) -> Spread | None:
    """The metric of the untrained models; None if a run has no slot 0."""
    if any(seed.slots[0] != 0 for seed in run.seeds):
        return None
    return over_seeds([float(seed.metrics[metric][0]) for seed in run.seeds])


def client_updates(run: RunFiles) -> float:
    """Trainings by clients, per seed."""
    return float(np.mean([sum(ids.size for ids in seed.active) for seed in run.seeds]))


def dropped_segments(run: RunFiles) -> int:
    """Segments left out because their estimate diverged, over all seeds."""
    return sum(ids.size for seed in run.seeds for ids in seed.dropped)


def trained_samples(run: RunFiles) -> float:
    """Samples trained on, per seed."""
    return float(np.mean([seed.samples for seed in run.seeds]))


def seconds(run: RunFiles) -> float:
    """How long the run has taken."""
    told = (run.summary or {}).get("seconds")
    return float(told) if told is not None else max(seed.seconds for seed in run.seeds)


def not_finite(run: RunFiles) -> dict[int, int]:
    """Slots per seed in which some metric was not finite, where there are any."""
    counts = {
        seed.seed: int(np.isnan(np.array(list(seed.metrics.values()))).any(axis=0).sum())
        for seed in run.seeds
    }
    return {seed: count for seed, count in counts.items() if count}


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
