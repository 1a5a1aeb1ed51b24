"""Steps that are longer than usual, shortened; the mean of what is left.

    centre c, radius τ:   δ_n → c + (δ_n − c) · min(1, τ / ‖δ_n − c‖)

An update whose step is short enough is taken as it is, not rebuilt from its step, so that a single
one comes back exactly.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.federation.aggregators.history import (
    History,
    Vector,
    arrays_of,
    capped_sizes,
    flat,
    norm_of,
)
from fedkoopman.federation.messages import Arrays

__all__ = ["Clipped", "clipped_mean", "weighted_mean"]


class Clipped(NamedTuple):
    """What clipping made of a slot's updates."""

    arrays: dict[str, NDArray]
    """The next arrays."""
    shortened: list[int]
    """Clients whose steps were too long."""


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
    current: Arrays,
    updates: Mapping[int, Arrays],
    steps: Mapping[int, Vector],
    sizes: Mapping[int, int],
    history: History,
    *,
    radius: float,
    centre: Vector | None = None,
) -> Clipped:
    """The mean of updates whose steps are shortened, weighted by their capped sizes.

    Arguments:
        steps: of the updates.
        sizes: as claimed.
        history: with this slot.
        radius: τ.
        centre: c; None for 0.
    """
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
    return Clipped(weighted_mean(current, vectors, capped_sizes(sizes, history.sizes)), shortened)
