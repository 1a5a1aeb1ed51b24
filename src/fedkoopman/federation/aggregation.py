"""The server's part of FedAvg-M: ω_m = Σ_n |D_n| / l_m · ω_m^n (eq. (30))."""

from collections.abc import Sequence

import jax
import numpy as np

from fedkoopman.koopman.kind import Weights

__all__ = ["aggregate", "is_finite"]


def aggregate(models: Sequence[Weights], sizes: Sequence[int]) -> Weights:
    """The mean of models, weighted by the sizes of the data they were trained on.

    Summed in float64, one client after the other, so that memory does not grow with their number
    and a single client gets its own model back exactly.
    """
    shares = np.asarray(sizes, np.float64) / np.sum(sizes)
    total = jax.tree.map(lambda leaf: np.float64(leaf) * shares[0], models[0])
    for model, share in zip(models[1:], shares[1:], strict=True):
        total = jax.tree.map(lambda sum_, leaf, s=share: sum_ + np.float64(leaf) * s, total, model)
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), total, models[0])


def is_finite(model: Weights) -> bool:
    """Whether every number in a model is finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model))
