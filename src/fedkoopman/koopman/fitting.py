"""A model kind's weights from trajectories that are all in one place.

The stages are those of a federation, with one site that holds everything.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.rollout import way_errors, way_scores
from fedkoopman.koopman.staged import Arrays, Staged
from fedkoopman.koopman.training import Training, client_update

__all__ = ["Fit", "decayed", "fitted", "fitted_weights", "longest"]

ROUNDS = 10
"""Pieces in which features are trained, each with a lower learning rate and a fresh Adam."""
HELD = 5
"""One segment in so many is held out to choose by, and counts all the same in the end."""
LOOK = 5
"""One in so many segments is looked at before features are trained."""


def decayed(rate: float, done: float) -> float:
    """The learning rate after some share of all training: half a cosine, from `rate` to 0."""
    return rate * 0.5 * (1 + np.cos(np.pi * min(max(done, 0.0), 1.0)))


class Fit(NamedTuple):
    """What was learned."""

    weights: Weights
    relift: int
    """The better way to forecast, see `koopman.rollout`."""


def fitted_weights(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray[Any]],
    *,
    seed: int,
    update: Callable[..., Weights] = client_update,
) -> Weights:
    """The weights of `fitted`."""
    return fitted(architecture, training, weights, segments, seed=seed, update=update).weights


def fitted(
    architecture: Kind,
    training: Training,
    weights: Weights,
    segments: Sequence[NDArray[Any]],
    *,
    seed: int,
    update: Callable[..., Weights] = client_update,
) -> Fit:
    """A model learned from segments (T_i, d), with inputs after the states where there are some.

    Arguments:
        weights: the first ones; kinds that are learned in stages begin anew.
        seed: of the order of samples, and of what is drawn.
        update: trains as `client_update` does, for one who watches.
    """
    dtype = np.dtype(training.precision)
    narrow = [states.astype(dtype, copy=False) for states in segments]
    if not isinstance(architecture, Staged):
        return Fit(update(architecture, training, weights, narrow, seed=seed), 0)
    fixed = architecture.fixed(architecture.scale_sums(segments))
    features = architecture.first_features(seed=seed, dtype=dtype)
    if architecture.trains and architecture.sum_shapes():
        look = architecture.sums(fixed, features, segments[::LOOK])
        if look["pairs"][0]:
            fixed = architecture.looked(fixed, look)
    if architecture.trains and longest(segments) >= architecture.window + max(architecture.leads):
        features = _trained(architecture, training, features, fixed, narrow, seed, update)
    if not architecture.sum_shapes():
        return Fit(architecture.unsolved(fixed, features), 0)
    kept, held = _split(segments)
    sums, more = (architecture.sums(fixed, features, part) for part in (kept, held))
    chosen, relift = _chosen(architecture, fixed, features, sums, held)
    every = {name: sums[name] + more[name] for name in sums}
    if len(segments) < HELD:  # segments were cut, and windows across the cuts are missing
        every = architecture.sums(fixed, features, segments)
    if not every["pairs"][0]:
        needed = max(every.get("ahead", np.zeros(0)).shape[0], 1) * architecture.depth
        raise InputError(
            f"the longest trajectory has {longest(segments)} samples, but a model of the kind "
            f"{architecture.name} needs {architecture.window + needed} here: give longer "
            "trajectories or a shorter horizon"
        )
    return Fit(chosen.solve(fixed, features, every), relift)


def _split(segments: Sequence[NDArray[Any]]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """Segments to solve from, and every fifth to choose by; of a few, the ends of all."""
    if len(segments) >= HELD:
        held = range(HELD - 1, len(segments), HELD)
        return [s for i, s in enumerate(segments) if i not in held], [segments[i] for i in held]
    cuts = [len(states) - len(states) // HELD for states in segments]
    pairs = list(zip(segments, cuts, strict=True))
    return [states[:cut] for states, cut in pairs], [states[cut:] for states, cut in pairs]


def _chosen(
    architecture: Staged, fixed: Arrays, features: Arrays, sums: Arrays, held: Sequence[Any]
) -> tuple[Staged, int]:
    """The kind with the ridge, and the way to forecast, that serve segments held out best."""
    scale, best = fixed["std"][: architecture.state_dim], (math.inf, architecture, 0)
    if not sums["pairs"][0]:
        return best[1:]
    for candidate in architecture.variants():
        weights = candidate.solve(fixed, features, sums)
        reference = np.zeros((architecture.window, architecture.state_dim))
        # The kind as it is: what is compiled for it serves all candidates.
        learned = Learned(architecture, weights, 1.0, reference)
        found = way_scores(*way_errors(learned, held, scale))
        for way, score in found.items():
            if score < best[0] - 1e-6:
                best = score, candidate, way
    return best[1:]


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
