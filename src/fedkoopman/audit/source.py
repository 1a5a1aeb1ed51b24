"""Attack (a), source: which site did an update come from?

The attacker knows who sent the updates of some stretches of time, learns from them what each site's
updates look like, and names the senders of all others. Where the server sees sums only, it knows
who took part, and has to say which of them a part of the sum is from.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedkoopman.audit.features import Sample, crossed, time_blocks
from fedkoopman.audit.statistics import Measured, area_under_curve, measured, widened

__all__ = ["Source", "source_attack"]

BLOCKS = 5
SHUFFLES = 100
SMALL = 0.6
"""Area under the curve up to which a leak is too small to be of use."""
LEAST = 3
"""Updates that a site must have sent, to be told from others."""


@dataclass(frozen=True)
class Source:
    """What the attack reached.

    Attributes:
        area: mean over sites of the area under the curve, one site against all others.
        accuracy: share of the updates whose site was named.
        shuffled: the same area, learned from labels that mean nothing, in the mean.
        updates, sites: how many there were.
        summed: whether the server sees sums only.
        alone: updates left out, being alone in a slot whose sum is seen.
    """

    area: Measured
    accuracy: Measured
    shuffled: float
    updates: int
    sites: int
    summed: bool = False
    alone: int = 0


def source_attack(sample: Sample, *, seed: int) -> Source | str:
    """Learn, name and count; or why that cannot be done.

    Arguments:
        seed: of resamples and of shuffled labels.
    """
    senders, counts = np.unique(sample.clients, return_counts=True)
    kept = np.isin(sample.clients, senders[counts >= LEAST])
    clients, slots = sample.clients[kept], sample.slots[kept]
    sites = np.unique(clients)
    if len(sites) < 2:
        return _too_few(sample)
    places = np.searchsorted(sites, clients)
    hat = crossed(sample.features[kept], time_blocks(slots, BLOCKS))
    scores = _scores(hat, places, len(sites))
    if sample.shared:  # equal features must tie, whatever the order in which they were summed up
        known, first = np.unique(slots, return_index=True)
        scores = scores[first[np.searchsorted(known, slots)]]
    random = np.random.default_rng(seed)
    mixed = [random.permutation(places) for _ in range(SHUFFLES)]
    shuffled = [_area(_scores(hat, one, len(sites)), one, slots, False) for one in mixed]
    right, chance = _named(scores, places, slots, sample.shared)

    def area(cases: NDArray[np.int64]) -> float:
        return _area(scores[cases], places[cases], slots[cases], sample.shared)

    found = measured(area, slots, chance=0.5, small=SMALL, seed=seed)
    accuracy = measured(
        lambda cases: float(right[cases].mean()), slots, chance=chance,
        small=chance + (1 - chance) / 5, seed=seed,
    )  # fmt: skip
    return Source(
        area=found if sample.shared else widened(found, shuffled),
        accuracy=accuracy,
        shuffled=float(np.mean(shuffled)),
        updates=len(places),
        sites=len(sites),
        summed=sample.shared,
        alone=sample.alone,
    )


def _too_few(sample: Sample) -> str:
    if sample.shared:
        return "fewer than two sites ever trained in one slot, so that there were no sums to attack"
    return f"fewer than two sites sent {LEAST} updates: take more slots"


def _scores(hat: NDArray[np.float64], places: NDArray[np.int64], sites: int) -> NDArray[np.float64]:
    """How much each case looks like each site."""
    marks = np.eye(sites)[places]
    return hat @ (marks - marks.mean(axis=0))


def _area(
    scores: NDArray[np.float64],
    places: NDArray[np.int64],
    slots: NDArray[np.int64],
    shared: bool,
) -> float:
    """Mean over sites of one against all others; of sums, among those who took part in one."""
    found = []
    for site in range(scores.shape[1]):
        own, column = places == site, scores[:, site]
        if not shared:
            found.append(area_under_curve(column, own))
            continue
        there = np.unique(slots[own])
        each = [area_under_curve(column[slots == slot], own[slots == slot]) for slot in there]
        found.append(_mean(each))
    return _mean(found)


def _named(
    scores: NDArray[np.float64],
    places: NDArray[np.int64],
    slots: NDArray[np.int64],
    shared: bool,
) -> tuple[NDArray[np.bool_], float]:
    """Whether each case's site is named, and how often that happens by always naming the most
    frequent one; of sums, by naming anyone who took part."""
    if not shared:
        right = scores.argmax(axis=1) == places
        return right, float(np.bincount(places).max() / len(places))
    right, chances = np.zeros(len(places), bool), np.zeros(len(places))
    for slot in np.unique(slots):
        cases = np.flatnonzero(slots == slot)
        among = np.unique(places[cases])
        right[cases] = among[scores[np.ix_(cases, among)].argmax(axis=1)] == places[cases]
        chances[cases] = 1 / len(among)
    return right, float(chances.mean())


def _mean(values: list[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")
