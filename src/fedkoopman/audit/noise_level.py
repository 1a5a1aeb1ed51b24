"""Attack (d), noise level: whose sensor is noisier?

Of two sites the attacker does not know how noisy they are. It knows it of all others, learns from
their updates how noise shows in them, and says which of the two is noisier. In a federation whose
sites are equally noisy there is nothing to tell, so the audit simulates one more, in which they
differ. Where the server sees sums only, it compares two slots by the mean noise of those who took
part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedkoopman.audit.features import RIDGE, Sample, crossed, time_blocks
from fedkoopman.audit.statistics import Measured, measured
from fedkoopman.federation.experiment import Experiment

__all__ = ["NoiseLevel", "levels_of", "noise_attack", "with_noise_levels"]

SMALL = 0.6
"""Share of right answers up to which a leak is too small to be of use."""
LEAST = 4
"""Sites with different noise: two in question, and two to learn from."""
RANGE = 3.0
"""Variances go from 2⁻³ to 2³ times the study's."""
BLOCKS = 5


@dataclass(frozen=True)
class NoiseLevel:
    """What the attack reached.

    Attributes:
        pairs: share of the pairs of which the noisier one is named.
        shuffled: the same, learned from levels that mean nothing.
        sites, cases: how many there were; a case is a site, or a sum.
    """

    pairs: Measured
    shuffled: float
    sites: int
    cases: int


def with_noise_levels(experiment: Experiment, sites: int, *, seed: int) -> Experiment:
    """The federation with so many sites, whose sensors are the study's in turn and whose noise is
    from far below to far above the study's."""
    factors = 2.0 ** np.linspace(-RANGE, RANGE, sites)
    factors = np.random.default_rng(seed).permutation(factors)
    given = experiment.clients
    clients = tuple(
        replace(one, identity=n, observation_noise=one.observation_noise * factor)
        for n, factor in enumerate(factors)
        for one in (given[n % len(given)],)
    )
    segments = experiment.segments
    if not isinstance(segments, int | float):
        segments = tuple(segments[n % len(segments)] for n in range(sites))
    return replace(experiment, clients=clients, segments=segments)


def levels_of(experiment: Experiment) -> NDArray[np.float64]:
    """The logarithm of each site's mean noise variance."""
    variances = [
        np.trace(c.observation_noise) / len(c.observation_noise) for c in experiment.clients
    ]
    return np.log(np.maximum(variances, 1e-300))


def noise_attack(
    sample: Sample, levels: Sequence[float] | NDArray[np.float64], *, seed: int
) -> NoiseLevel | str:
    """Learn, compare and count; or why that cannot be done.

    Arguments:
        levels: of each client.
    """
    levels, present = np.asarray(levels, float), np.unique(sample.clients)
    distinct = len(np.unique(levels[present].round(9)))
    if distinct < LEAST:
        return f"{distinct} different noise levels are too few: there must be {LEAST}"
    truth, weights = _summed(sample, levels) if sample.shared else _alone(sample, levels[present])
    mixed = np.random.default_rng(seed).permutation(truth)
    return NoiseLevel(
        pairs=measured(
            lambda cases: _right(weights, truth, cases), range(len(truth)),
            chance=0.5, small=SMALL, seed=seed,
        ),
        shuffled=_right(weights, mixed, np.arange(len(truth))),
        sites=len(present), cases=len(truth),
    )  # fmt: skip


Weights = dict[tuple[int, int], NDArray[np.float64]]
"""For every pair of cases, by how much each case's level speaks for the first being noisier. Both
of the pair have none: levels of the pair are not learned from."""


def _alone(sample: Sample, levels: NDArray[np.float64]) -> tuple[NDArray[np.float64], Weights]:
    """Sites as cases."""
    place = np.searchsorted(np.unique(sample.clients), sample.clients)
    gram = sample.features @ sample.features.T
    found: Weights = {}
    for i, j in combinations(range(len(levels)), 2):
        rest = np.flatnonzero((place != i) & (place != j))
        inner = gram[np.ix_(rest, rest)]
        penalty = RIDGE * max(np.trace(inner) / len(rest), 1e-300)
        aim = gram[place == i].mean(axis=0)[rest] - gram[place == j].mean(axis=0)[rest]
        each = np.linalg.solve(inner + penalty * np.eye(len(rest)), aim)
        each -= each.mean()  # levels count from the mean of those that are known
        found[i, j] = np.bincount(place[rest], weights=each, minlength=len(levels)).astype(float)
    return levels, found


def _summed(sample: Sample, levels: NDArray[np.float64]) -> tuple[NDArray[np.float64], Weights]:
    """Sums as cases; a pair is of one block of time, and all other blocks are learned from."""
    slots, first = np.unique(sample.slots, return_index=True)
    truth = np.array([levels[sample.clients[sample.slots == slot]].mean() for slot in slots])
    blocks = time_blocks(slots, BLOCKS)
    hat = crossed(sample.features[first], blocks)
    pairs = [(i, j) for i, j in combinations(range(len(slots)), 2) if blocks[i] == blocks[j]]
    found: Weights = {}
    for i, j in pairs:
        apart = hat[i] - hat[j]
        known = blocks != blocks[i]
        apart[known] -= apart[known].mean()
        found[i, j] = apart
    return truth, found


def _right(weights: Weights, truth: NDArray[np.float64], cases: NDArray[np.int64]) -> float:
    """The share of right answers over pairs of the given cases, of which some may repeat; where
    both are equally noisy there is no answer."""
    times = np.bincount(cases, minlength=len(truth))
    right = total = 0.0
    for (i, j), each in weights.items():
        weight = times[i] * times[j]
        if weight and truth[i] != truth[j]:
            said = float(each @ truth)
            total += weight
            right += weight * (0.5 if said == 0 else (said > 0) == (truth[i] > truth[j]))
    return float(right / total) if total else float("nan")
