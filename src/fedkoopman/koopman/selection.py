"""How many components a model should have: cross-validation over whole trajectories.

Every candidate is trained without a part of the trajectories and scored on that part, for every
part in turn. Of the candidates that are not clearly worse than the best the smallest is chosen: one
whose shortfall, in the mean over parts, is at most one standard error of that shortfall. All
candidates meet the same parts, so the shortfall is compared part by part: that some parts are
harder than others for everybody does not count.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import InputError
from fedkoopman.koopman.kind import Kind

FOLDS = 5
MULTIPLES = (1, 2, 4, 6, 10, 16)
"""Of the state's dimension."""
MOST = 64
"""Components that are tried; more are for who asks for them."""

Parts: TypeAlias = list[NDArray[np.float64]]
Trial: TypeAlias = Callable[[int, Parts, Parts], float]
"""The score of so many components on the second trajectories, trained on the first."""


class Selection(NamedTuple):
    """What was chosen, and from what."""

    components: int
    results: dict[str, NDArray[Any]]
    """As scikit-learn's `cv_results_`: one entry per candidate in every array."""


def candidates(state_dim: int, window: int = 1, inputs: int = 0) -> list[int]:
    """Numbers of components to try, rising; among them one for every number in a window."""
    found = {m * state_dim for m in MULTIPLES if m * state_dim <= MOST}
    return sorted(found | {state_dim, window * state_dim + (window - 1) * inputs})


def distinct(sizes: Sequence[int], architecture: Callable[[int], Kind]) -> dict[Kind, int]:
    """Sizes by the model that they give: a kind may not have a size, or one model for several."""
    found: dict[Kind, int] = {}
    refusal: InputError | None = None
    for size in sizes:
        try:
            found.setdefault(architecture(size), size)
        except InputError as error:
            refusal = error
    if not found and refusal is not None:
        raise refusal
    return found


def folds(parts: Parts, least: int) -> list[tuple[Parts, Parts]]:
    """Pairs of trajectories to train on and trajectories held out.

    Arguments:
        parts: every so many of several trajectories are held out together; a single one is cut into
            blocks, which are held out one by one.
        least: samples that a trajectory needs.
    """
    if len(parts) > 1:
        count = min(FOLDS, len(parts))
        return [
            ([p for i, p in enumerate(parts) if i % count != k], parts[k::count])
            for k in range(count)
        ]
    [whole] = parts
    count = min(FOLDS, len(whole) // (2 * least))
    if count < 2:
        raise InputError(
            f'X has {len(whole)} samples, but n_components="auto" needs at least {4 * least} or '
            "several trajectories: give a number of components"
        )
    cuts = np.linspace(0, len(whole), count + 1).astype(int)
    found = []
    for start, end in pairwise(cuts):
        rest = [side for side in (whole[:start], whole[end:]) if len(side)]
        found.append((rest, [whole[start:end]]))
    return found


def choose(
    trial: Trial,
    sizes: Sequence[int],
    pairs: Sequence[tuple[Parts, Parts]],
    report: Callable[[str], None] | None = None,
) -> Selection:
    """Try every size on every pair of `folds`.

    Arguments:
        sizes: the candidates, rising.
        report: told of every candidate.
    """
    scores = np.empty((len(sizes), len(pairs)))
    for i, size in enumerate(sizes):
        for k, (training, held) in enumerate(pairs):
            scores[i, k] = trial(size, training, held)
        if report is not None:
            score, spread = scores[i].mean(), scores[i].std()
            report(f"n_components={size}: score {score:.4f} ± {spread:.4f}")
    means = scores.mean(axis=1)
    chosen = smallest_as_good(scores)
    results = {f"split{k}_test_score": scores[:, k] for k in range(len(pairs))}
    results |= {
        "param_n_components": np.array(sizes),
        "mean_test_score": means,
        "std_test_score": scores.std(axis=1),
        "rank_test_score": 1 + (means[None] > means[:, None]).sum(axis=1),
    }
    return Selection(sizes[chosen], results)


def smallest_as_good(scores: NDArray[np.float64]) -> int:
    """The first row whose mean shortfall to the best is at most one standard error of it."""
    shortfall = scores[scores.mean(axis=1).argmax()] - scores
    error = shortfall.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
    return int(np.argmax(shortfall.mean(axis=1) <= error))
