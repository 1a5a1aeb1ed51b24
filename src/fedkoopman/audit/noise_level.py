"""Attack (d), noise level: whose sensor is noisier?

Of two sites the attacker does not know how noisy they are. It knows it of all others, learns from
their updates how noise shows in them, and says which of the two is noisier. In a federation whose
sites are equally noisy there is nothing to tell, so the audit simulates one more, in which they
differ. Where the server sees sums only, it compares two slots by the mean noise of those who took
part.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.audit.features import RIDGE, Sample, crossed, time_blocks
from fedkoopman.audit.statistics import Measured, measured, widened
from fedkoopman.federation.experiment import Experiment

__all__ = ["NoiseLevel", "levels_of", "noise_attack", "with_noise_levels"]

SMALL = 0.6
"""Share of right answers up to which a leak is too small to be of use."""
LEAST = 4
"""Sites with different noise: two in question, and two to learn from."""
RANGE = 3.0
"""Variances go from 2⁻³ to 2³ times the study's."""
BLOCKS = 5
SHUFFLES = 200


@dataclass(frozen=True)
class NoiseLevel:
    """What the attack reached.

    Attributes:
        pairs: share of the pairs of which the noisier one is named.
        shuffled: the same, learned from levels that mean nothing, in the mean.
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
    shares, pairs = (_summed if sample.shared else _alone)(sample, present)
    truth, random = shares @ levels[present], np.random.default_rng(seed)
    mixed = [shares @ random.permutation(levels[present]) for _ in range(SHUFFLES)]
    everybody = np.arange(len(truth))
    shuffled = [_right(pairs, values, everybody) for values in mixed]
    found = measured(
        lambda cases: _right(pairs, truth, cases), everybody, chance=0.5, small=SMALL, seed=seed
    )
    return NoiseLevel(
        pairs=widened(found, shuffled),
        shuffled=float(np.mean(shuffled)),
        sites=len(present),
        cases=len(truth),
    )


class Pairs(NamedTuple):
    """Pairs of cases, and how their levels are compared."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    weights: NDArray[np.float64]
    """(pairs, cases): by how much each case's level speaks for the first being noisier. Both of a
    pair have none: levels of the pair are not learned from."""


def _alone(sample: Sample, present: NDArray[np.int64]) -> tuple[NDArray[np.float64], Pairs]:
    """Sites as cases; which share each site has in a case, and the pairs."""
    place, count = np.searchsorted(present, sample.clients), len(present)
    gram = sample.features @ sample.features.T
    first, second = np.triu_indices(count, 1)
    weights = np.zeros((len(first), count))
    for row, i, j in zip(weights, first, second, strict=True):
        rest = np.flatnonzero((place != i) & (place != j))
        inner = gram[np.ix_(rest, rest)]
        penalty = RIDGE * max(np.trace(inner) / len(rest), 1e-300)
        aim = gram[place == i].mean(axis=0)[rest] - gram[place == j].mean(axis=0)[rest]
        each = np.linalg.solve(inner + penalty * np.eye(len(rest)), aim)
        # levels count from the mean of those that are known
        row[:] = np.bincount(place[rest], weights=each - each.mean(), minlength=count)
    return np.eye(count), Pairs(first, second, weights)


def _summed(sample: Sample, present: NDArray[np.int64]) -> tuple[NDArray[np.float64], Pairs]:
    """Sums as cases; a pair is of one block of time, and all other blocks are learned from."""
    slots, newest = np.unique(sample.slots, return_index=True)
    shares = np.zeros((len(slots), len(present)))
    place = np.searchsorted(present, sample.clients)
    shares[np.searchsorted(slots, sample.slots), place] = 1
    shares /= shares.sum(axis=1, keepdims=True)
    blocks = time_blocks(slots, BLOCKS)
    hat = crossed(sample.features[newest], blocks)
    first, second = np.triu_indices(len(slots), 1)
    within = blocks[first] == blocks[second]
    first, second = first[within], second[within]
    known = blocks[None] != blocks[first][:, None]
    weights = (hat[first] - hat[second]) * known
    weights -= known * (weights.sum(axis=1) / np.maximum(known.sum(axis=1), 1))[:, None]
    return shares, Pairs(first, second, weights)


def _right(pairs: Pairs, truth: NDArray[np.float64], cases: NDArray[np.int64]) -> float:
    """The share of right answers over pairs of the given cases, of which some may repeat; where
    both are equally noisy there is no answer."""
    times = np.bincount(cases, minlength=len(truth))
    apart = np.sign(truth[pairs.first] - truth[pairs.second])
    count = times[pairs.first] * times[pairs.second] * (apart != 0)
    right = (1 + np.sign(pairs.weights @ truth) * apart) / 2  # half where nothing is said
    total = count.sum()
    return float((count * right).sum() / total) if total else float("nan")
