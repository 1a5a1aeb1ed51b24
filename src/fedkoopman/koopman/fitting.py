"""A model kind's weights from trajectories that are all in one place.

The stages are those of a federation, with one site that holds everything.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.staged import Staged
from fedkoopman.koopman.training import Training, client_update

__all__ = ["ROUNDS", "decayed", "fitted_weights"]

ROUNDS = 10
"""Pieces in which features are trained, each with a lower learning rate and a fresh Adam."""
LOOK = 5
"""The first of so many parts of the data is looked at before features are trained."""


def decayed(rate: float, done: float) -> float:
    """The learning rate after some share of all training: half a cosine, from `rate` to 0."""
    return rate * 0.5 * (1 + np.cos(np.pi * min(max(done, 0.0), 1.0)))


def fitted_weights(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray[Any]],
    *,
    seed: int,
    update: Callable[..., Weights] = client_update,
) -> Weights:
    """Weights learned from segments (T_i, d).

    Arguments:
        weights: the first ones; kinds that are learned in stages begin anew.
        seed: of the order of samples, and of what is drawn.
        update: trains as `client_update` does, for one who watches.
    """
    dtype = np.dtype(training.precision)
    narrow = [states.astype(dtype, copy=False) for states in segments]
    if not isinstance(architecture, Staged):
        return update(architecture, training, weights, narrow, seed=seed)
    fixed = architecture.fixed(architecture.scale_sums(segments))
    features = architecture.first_features(seed=seed, dtype=dtype)
    if architecture.trains and architecture.sum_shapes():
        look = architecture.sums(fixed, features, segments[: -(-len(segments) // LOOK)])
        if look["pairs"][0]:
            fixed = architecture.looked(fixed, look)
    if architecture.trains and longest(segments) >= architecture.window + max(architecture.leads):
        features = _trained(architecture, training, features, fixed, narrow, seed, update)
    if not architecture.sum_shapes():
        return architecture.unsolved(fixed, features)
    sums = architecture.sums(fixed, features, segments)
    return architecture.solve(fixed, features, sums)


def longest(segments: Sequence[NDArray[Any]]) -> int:
    """Samples in the longest segment."""
    return max((len(states) for states in segments), default=0)


def _trained(
    architecture: Staged,
    training: Training,
    features: dict[str, NDArray[Any]],
    fixed: dict[str, NDArray[np.float64]],
    segments: Sequence[NDArray[Any]],
    seed: int,
    update: Callable[..., Weights],
) -> dict[str, NDArray[Any]]:
    """Features after all epochs, the learning rate falling along half a cosine."""
    pieces = min(ROUNDS, training.epochs)
    bounds = np.linspace(0, training.epochs, pieces + 1).astype(int)
    for i, epochs in enumerate(np.diff(bounds)):
        features = update(
            architecture,
            replace(training, epochs=int(epochs)),
            features,
            segments,
            seed=int(np.random.SeedSequence([seed, i]).generate_state(1, np.uint64)[0] >> 1),
            learning_rate=decayed(training.learning_rate, (i + 0.5) / pieces),
            fixed=fixed,
        )
    return features
