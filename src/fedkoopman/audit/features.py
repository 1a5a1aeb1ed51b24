"""What an attacker looks at in an update: its direction, the length of each part, its data's size.

A learner on few cases and many features: ridge regression, cross-validated in whole blocks of time
or whole sites, so that nothing of what is predicted has been learned from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.audit.watching import Update
from fedkoopman.federation.messages import Schema

__all__ = ["Sample", "crossed", "sample_of", "step_of", "time_blocks"]

WIDEST = 2048
"""Numbers of an update that are looked at one by one; of more, as many random projections."""
RIDGE = 0.1
"""Penalty, in units of the mean squared length of the features."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Updates as an attacker sees them.

    Attributes:
        features: a row for each.
        clients, slots: who sent each, and when.
        shared: whether a row is a slot's sum, which all sites that took part have in common.
        alone: sums that were left out, being of one site only.
    """

    features: NDArray[np.float64]
    clients: NDArray[np.int64]
    slots: NDArray[np.int64]
    shared: bool = False
    alone: int = 0


def step_of(schemas: Mapping[str, Schema], update: Update) -> dict[str, NDArray[np.float64]]:
    """What an update changes or, where it is a sum over samples, what it adds per sample."""
    arrays = update.reply.arrays
    if schemas[update.reply.kind].changes:
        given = update.request.arrays
        return {n: np.subtract(leaf, given[n], dtype=float) for n, leaf in arrays.items()}
    return {n: np.asarray(leaf, float) / max(1, update.samples) for n, leaf in arrays.items()}


def sample_of(
    schemas: Mapping[str, Schema], updates: Sequence[Update], *, seed: int, summed: bool = False
) -> Sample:
    """Features of the updates of that kind of reply of which most came.

    Arguments:
        seed: of random projections.
        summed: whether the server sees only the weighted mean of a slot's updates. Sums of one
            site alone are left out: they are that site's update.
    """
    kinds = [update.reply.kind for update in updates]
    most = max(dict.fromkeys(kinds), key=kinds.count)
    taken = [update for update in updates if update.reply.kind == most]
    steps = [step_of(schemas, update) for update in taken]
    sizes = np.array([update.samples for update in taken], float)
    clients, slots = (np.array([getattr(u, n) for u in taken]) for n in ("client", "slot"))
    alone = 0
    if summed:
        steps, sizes = _means(steps, sizes, slots)
        together = np.array([(slots == slot).sum() > 1 for slot in slots], bool)
        alone = int((~together).sum())
        steps = [step for step, kept in zip(steps, together, strict=True) if kept]
        sizes, clients, slots = sizes[together], clients[together], slots[together]
    return Sample(_features(steps, sizes, seed), clients, slots, summed, alone)


def _means(
    steps: Sequence[dict[str, NDArray[np.float64]]],
    sizes: NDArray[np.float64],
    slots: NDArray[np.int64],
) -> tuple[list[dict[str, NDArray[np.float64]]], NDArray[np.float64]]:
    """In place of every step, the weighted mean of its slot."""
    means, totals = list[dict[str, NDArray[np.float64]]](), np.zeros(len(sizes))
    for i, slot in enumerate(slots):
        members = np.flatnonzero(slots == slot).tolist()
        totals[i] = sizes[members].sum()
        means.append(
            {n: sum(sizes[m] * steps[m][n] for m in members) / totals[i] for n in steps[i]}
        )
    return means, totals


def _features(
    steps: Sequence[dict[str, NDArray[np.float64]]], sizes: NDArray[np.float64], seed: int
) -> NDArray[np.float64]:
    if not steps:
        return np.zeros((0, 1))
    whole = np.stack([np.concatenate([np.ravel(leaf) for leaf in one.values()]) for one in steps])
    whole /= np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-300)
    if whole.shape[1] > WIDEST:
        mix = np.random.default_rng(seed).standard_normal((whole.shape[1], WIDEST))
        whole = whole @ mix
    lengths = [[np.linalg.norm(leaf) for leaf in one.values()] for one in steps]
    logs = np.log(np.maximum(np.column_stack([np.array(lengths), sizes]), 1e-30))
    return np.concatenate([_standard(whole), _standard(logs)], axis=1)


def _standard(columns: NDArray[Any]) -> NDArray[np.float64]:
    """Columns of mean 0 and one spread, together as long as those of any other block."""
    spread = columns.std(axis=0)
    kept = spread > 1e-12 * max(float(spread.max(initial=0.0)), 1e-300)
    found = (columns[:, kept] - columns[:, kept].mean(axis=0)) / spread[kept]
    return np.asarray(found / np.sqrt(max(1, kept.sum())))


def time_blocks(slots: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Blocks of consecutive slots, about as long as each other: the block of each case."""
    known = np.unique(slots)
    return np.asarray(np.searchsorted(known, slots) * min(count, len(known)) // len(known))


def crossed(features: NDArray[np.float64], blocks: NDArray[np.int64]) -> NDArray[np.float64]:
    """The matrix H by which ridge regression, learned on all other blocks, predicts: ŷ = H y.

    It does not depend on y, so that any relabelling costs one product.
    """
    n = len(features)
    gram, found = features @ features.T, np.zeros((n, n))
    for block in np.unique(blocks):
        rest, own = np.flatnonzero(blocks != block), np.flatnonzero(blocks == block)
        if not len(rest):
            continue
        inner = gram[np.ix_(rest, rest)]
        penalty = RIDGE * max(np.trace(inner) / len(rest), 1e-300)
        found[np.ix_(own, rest)] = np.linalg.solve(
            inner + penalty * np.eye(len(rest)), gram[np.ix_(rest, own)]
        ).T
    return found
