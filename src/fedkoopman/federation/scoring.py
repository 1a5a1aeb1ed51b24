"""How a model is scored where test data stay apart: every holder by itself, then the mean.

A site scores on windows of its own held-out segments. What a federation records is the mean over
all windows, which needs of each site its means and their number, and never a state.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedkoopman.evaluation import Metrics, TestSet
from fedkoopman.koopman.training import Training

__all__ = ["combined", "scores_of", "site_test_set", "windows_of_site"]


def windows_of_site(
    held_out: Sequence[NDArray[np.float64]], steps: int, most: int
) -> NDArray[np.float64] | None:
    """A site's held-out states as consecutive windows of equal length, (R, ζ + 1, d).

    Arguments:
        held_out: states (T_i, d) of its segments; without any, the result is None.
        steps: ζ, or less where its shortest segment has fewer.
        most: how many windows are taken, from the first on.
    """
    if not held_out:
        return None
    steps = min(steps, *(len(states) - 1 for states in held_out))
    windows = [
        states[first : first + steps + 1]
        for states in held_out
        for first in range(0, len(states) - steps, steps)
    ]
    return np.stack(windows[:most])


def site_test_set(
    held_out: Sequence[NDArray[np.float64]],
    *,
    steps: int,
    most: int,
    horizon: int,
    valid_error: float,
) -> TestSet | None:
    """What a site scores on; None if it holds nothing out."""
    windows = windows_of_site(held_out, steps, most)
    return None if windows is None else TestSet(windows, horizon, valid_error)


def combined(scores: Sequence[tuple[Metrics, int]]) -> Metrics:
    """Means over all windows, from each site's means and their number.

    Arguments:
        scores: in the sites' order, which decides how the sums are rounded.
    """
    if len(scores) == 1:
        return scores[0][0]
    total = sum(windows for _, windows in scores)
    columns = zip(*(metrics for metrics, _ in scores), strict=True)
    counts = [windows for _, windows in scores]
    return Metrics(
        *(
            sum(value * n for value, n in zip(column, counts, strict=True)) / total
            for column in columns
        )
    )


def scores_of(found: Metrics, training: Training) -> dict[str, float]:
    """A model's scores as they stand in a record."""
    w1, w2, w3 = training.loss_weights
    return {
        "loss": w1 * found.l1 + w2 * found.l2 + w3 * found.l3,
        "l1": found.l1,
        "l2": found.l2,
        "l3": found.l3,
        "E1": found.e1,
        "E2": found.e2,
        "E": found.e,
        "horizon": found.horizon,
    }
