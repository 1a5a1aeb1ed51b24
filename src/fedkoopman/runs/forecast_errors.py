"""Errors of forecasts many steps ahead, on held-out segments, in one number per horizon."""

from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np
from numpy.typing import NDArray

from fedkoopman.data.triage import HeldOut
from fedkoopman.koopman.inputs import ahead_of
from fedkoopman.koopman.kind import Kind, Weights
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.rollout import rollout
from fedkoopman.koopman.trajectories import windows_of

__all__ = ["HORIZONS", "Rollout", "diverged", "errors_of", "holding", "rollout_of"]

HORIZONS = (1, 5, 20, 50, 100)
"""Steps ahead: applications of K."""
STARTS = 100_000
"""Held-out windows, evenly spread, from which forecasts are judged; more tell nothing new."""

Rollout = Callable[..., Iterator[NDArray[np.float64]]]
"""From windows (n, d_X) and rising horizons to the states (n, d) at each; where a system is driven,
`inputs=` has the inputs of all steps, (n, steps, m)."""


def holding(state_dim: int) -> Rollout:
    """Forecasts that the last state stays."""

    def rollout(
        windows: NDArray[np.float64],
        horizons: Sequence[int],
        inputs: NDArray[np.float64] | None = None,
    ) -> Iterator[NDArray[np.float64]]:
        for _ in horizons:
            yield windows[:, -state_dim:]

    return rollout


def rollout_of(kind: Kind, weights: Weights | None, relift: int = 0) -> Rollout | None:
    """The forecasts of a model.

    Arguments:
        relift: after how many applications of K to lift anew; 0: never.
    """
    if weights is None:
        return None
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(weights)):
        return diverged
    reference = np.zeros((kind.window, kind.state_dim))
    learned = Learned(kind, weights, 1.0, reference)

    def forecasts(
        windows: NDArray[np.float64],
        horizons: Sequence[int],
        inputs: NDArray[np.float64] | None = None,
    ) -> Iterator[NDArray[np.float64]]:
        return rollout(learned, windows[:, -kind.input_dim :], horizons, relift, inputs)

    return forecasts


def diverged(
    windows: NDArray[np.float64],
    horizons: Sequence[int],
    inputs: NDArray[np.float64] | None = None,
) -> Iterator[NDArray[np.float64]]:
    """A model whose training did not end in numbers."""
    for _ in horizons:
        yield np.full((len(windows), 1), np.inf)


def errors_of(
    rollout: Rollout | None,
    held_out: Sequence[HeldOut],
    *,
    window: int,
    depth: int,
    inputs: int = 0,
) -> NDArray[np.float64]:
    """Root mean square errors at `HORIZONS`, over all states and windows of held-out segments.

    Each state's errors are divided by its spread over the held-out segments. An error is NaN where
    no segment is long enough, and infinite where a forecast is not finite.

    Arguments:
        rollout: the model; None gives NaN.
        held_out: segments, which are read one by one.
        window, depth: μ, and the samples of one step.
        inputs: how many columns of the states, the last ones, are inputs.
    """
    total, count = np.zeros(len(HORIZONS)), np.zeros(len(HORIZONS))
    if rollout is None or not len(held_out):
        return np.full(len(HORIZONS), np.nan)
    spread, samples = _spread(held_out)
    stride, skipped = -(-samples // STARTS), 0
    for one in held_out:
        states, last = one.states, len(one.states) - window - depth + 1
        reached = [h for h in HORIZONS if h * depth <= len(states) - window]
        first, skipped = skipped, (skipped - max(last, 0)) % stride
        if first >= last:
            continue
        starts = np.arange(first, last, stride)
        windows = windows_of(states, window, inputs)[starts]
        more = {}
        if inputs:
            more = {"inputs": ahead_of(states, starts + window - 1, max(reached), inputs)}
        dim = states.shape[1] - inputs
        with np.errstate(over="ignore", invalid="ignore"):  # a model may diverge
            for i, forecast in enumerate(rollout(windows, reached, **more)):
                goal = starts + window - 1 + reached[i] * depth
                known = goal < len(states)
                error = (forecast[known] - states[goal[known], :dim]) / spread[:dim]
                total[i] += (error**2).sum()
                count[i] += error.size
    with np.errstate(invalid="ignore"):
        found = np.sqrt(total / count)
    return np.where(count == 0, np.nan, np.where(np.isfinite(found), found, np.inf))


def _spread(held_out: Sequence[HeldOut]) -> tuple[NDArray[np.float64], int]:
    """The standard deviation of each state, and how many samples there are; a state that never
    changes has its size, or 1."""
    count = sum(len(one.states) for one in held_out)
    mean = sum(one.states.sum(axis=0) for one in held_out) / count
    variance = sum(((one.states - mean) ** 2).sum(axis=0) for one in held_out) / count
    size = np.where(mean == 0, 1.0, np.abs(mean))
    return np.where(variance > 1e-24 * mean**2, np.sqrt(variance), size), count
