"""Steps that are longer than usual, shortened; the mean of what is left.

    centre c, radius τ:   δ_n → c + (δ_n − c) · min(1, τ / ‖δ_n − c‖)

τ is `aggregation.clip` usual lengths. This is `norm-clip`, and what other rules do with a slot that
has too few updates to be compared with each other: one client then moves the model no further than
a usual step or two.

An update whose step is short enough is taken as it is, not rebuilt from its step, so that a single
one comes back exactly.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.aggregator import Step
from fedkoopman.federation.aggregators.history import (
    History,
    Vector,
    arrays_of,
    capped_sizes,
    flat,
    norm_of,
    usual_length,
)
from fedkoopman.federation.messages import Arrays

if TYPE_CHECKING:
    from fedkoopman.federation.algorithm import Problem

__all__ = ["FEW", "clipped_mean", "weighted_mean"]

FEW = 2
"""Updates among which there is no middle."""


def weighted_mean(
    current: Arrays, vectors: Mapping[int, Vector], weights: Mapping[int, float]
) -> dict[str, NDArray]:
    """The mean of whole updates as vectors, as arrays like the current ones."""
    everything = sum(weights[n] for n in vectors)
    total = np.zeros(sum(leaf.size for leaf in current.values()))
    for n, vector in vectors.items():
        total = total + vector * (weights[n] / everything)
    return arrays_of(current, total)


def clipped_mean(
    problem: "Problem",
    current: Arrays,
    updates: Mapping[int, Arrays],
    steps: Mapping[int, Vector],
    sizes: Mapping[int, int],
    history: History,
    *,
    centre: Vector | None = None,
) -> Step:
    """The mean of updates whose steps are shortened, weighted by their capped sizes.

    Its memory is the history; the record tells whose steps were too long.

    Arguments:
        steps: of the updates.
        sizes: as claimed.
        history: with this slot.
        centre: c; None for 0.
    """
    radius = problem.aggregation.clip * usual_length(history.norms)
    model, vectors, shortened = flat(current), dict[int, Vector](), list[int]()
    for n, update in updates.items():
        apart = steps[n] if centre is None else steps[n] - centre
        length = norm_of(apart)
        if length <= radius:
            vectors[n] = flat(update, current)
        else:
            short = apart * (radius / length)
            vectors[n] = model + (short if centre is None else centre + short)
            shortened.append(n)
    found = weighted_mean(current, vectors, capped_sizes(sizes, history.sizes))
    return Step(found, history._asdict(), {"shortened": shortened} if shortened else {})
