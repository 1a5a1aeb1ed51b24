"""Do two sets of sums tell of the same dynamics? What sums of products say of it by themselves.

Sites share the dynamics, not the states that they see: G_k differs, while A_k ≈ G_k X with one X.
So one site's sums are compared with another's by how much worse one model explains both than two
models do, which follows from the sums alone:

    excess = min_X SSE_1(X) + … = Δᵀ (G_1⁻¹ + G_2⁻¹)⁻¹ Δ,   Δ = X_1 − X_2

(G. C. Chow, Econometrica 28, 1960). A direction that only one of the two has seen counts nothing:
there is nothing to agree on. Sites in different ranges of the same system agree.

Sums also have to be sums of something: `gram_fault` says what no data could give.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.koopman.dictionary import Dictionary, steps_of
from fedkoopman.koopman.gram import MOST_WEIGHT, whitening

__all__ = ["excess", "gram_fault", "gram_misfit", "is_moment", "same_numbers"]

Float64 = NDArray[np.float64]
Sums = Mapping[str, NDArray[Any]]

LEAST_SHARE = 1e-6
"""A direction of which one side has less than this share of the squares is hardly known to it."""
MOST_MONOMIALS = 200
"""Whose products are compared: enough to contradict each other, and a matter of milliseconds."""
ROUNDING = 1e-8
"""By which share sums differ that would be the same but for rounding."""


def excess(one: Sums, other: Sums, ridge: float) -> dict[str, Float64]:
    """How many squares a common model leaves more than two of their own do, per column.

    In a basis in which both Gram matrices are diagonal and add up to one, b and 1 − b, the common
    model is the sum of both sides' products, a + c, and Δ = a/b − c/(1 − b).

    Arguments:
        ridge: as for `gram.whitening`.

    Returns:
        Of "shift" one number per function, of "ahead" (L, d).
    """
    n, m = float(one["pairs"][0]), float(other["pairs"][0])
    basis = whitening(one["gram"] + other["gram"], n + m, ridge) / np.sqrt(n + m)
    share = basis.T @ one["gram"] @ basis
    b, turn = np.linalg.eigh((share + share.T) / 2)
    b, basis = np.clip(b, 0.0, 1.0)[:, None], basis @ turn

    def squares(mine: Float64, others: Float64) -> Float64:
        apart = (1 - b) * (basis.T @ mine) - b * (basis.T @ others)
        return (apart**2 / (b * (1 - b) + LEAST_SHARE)).sum(axis=0)

    ahead = [squares(a, c) for a, c in zip(one["ahead"], other["ahead"], strict=True)]
    return {
        "shift": squares(one["shift"], other["shift"]),
        "ahead": np.array(ahead).reshape(one["ahead"].shape[::2]),
    }


def gram_misfit(
    one: Sums,
    other: Sums,
    squares: Float64,
    *,
    newest: slice,
    ridge: float,
    discount: float = 0.0,
) -> dict[str, float]:
    """The excess as two numbers, in mean squares: of all functions, and of the states.

    Arguments:
        squares: mean square of every function, by which columns are made comparable.
        newest: where the newest state stands among the functions.
        discount: how fast steps further ahead count less, as in the solution.
    """
    found = excess(one, other, ridge)
    size = np.where(squares > 0, squares, 1.0)
    functions = found["shift"] / size
    if not len(found["ahead"]):
        states = functions[newest]
    else:
        weight = (np.arange(len(found["ahead"])) + 2.0) ** (-2 * discount)
        states = (weight / weight.sum()) @ (found["ahead"] / size[newest])
    return {"functions": float(functions.mean()), "states": float(states.mean())}


def gram_fault(
    sums: Sums, samples: int, functions: Dictionary, newest: slice, weighted: bool
) -> str:
    """What is wrong with sums of `koopman.gram`, after "sends …"; empty if nothing is.

    Arguments:
        samples: from how many states they are said to be.
        newest: where the newest state stands among the functions.
        weighted: whether windows have weights.
    """
    gram, shift, pairs = sums["gram"], sums["shift"], float(sums["pairs"][0])
    if not 0 <= pairs <= samples * (MOST_WEIGHT if weighted else 1.0):
        return f"sums of {pairs:,.6g} windows from {samples:,} samples"
    counts = sums["range"]
    if (counts < 0).any() or (counts.sum(axis=1) != samples).any():
        return f"counts of states that do not add up to its {samples:,} samples"
    # The first function is 1, so that its products count the windows.
    if not same_numbers(np.array([gram[0, 0], shift[0, 0]]), pairs, max(pairs, 1.0)):
        return f"products of {gram[0, 0]:,.6g} windows where it counts {pairs:,.6g}"
    if not is_moment(gram):
        return "products that are none: not symmetric, or with squares below zero"
    if not _monomials_agree(gram, functions):
        return "products of states that contradict each other"
    if len(sums["ahead"]):
        size = np.sqrt(np.outer(np.diagonal(gram), np.diagonal(gram)[newest]).max())
        if not same_numbers(sums["ahead"][0], shift[:, newest], size):
            return "products with the next state that contradict each other"
    return ""


def _monomials_agree(gram: Float64, functions: Dictionary) -> bool:
    """Whether products that are the same monomial, as u₁·u₁ and 1·u₁², have the same sums."""
    place, count = _products(functions.inputs, functions.degree)
    size = np.sqrt(np.maximum(np.diagonal(gram)[: len(place)], 0.0))
    values, scale = gram[: len(place), : len(place)].ravel(), np.outer(size, size).ravel()
    low, high, least = np.full(count, np.inf), np.full(count, -np.inf), np.zeros(count)
    np.minimum.at(low, place.ravel(), values)
    np.maximum.at(high, place.ravel(), values)
    np.maximum.at(least, place.ravel(), scale)
    return bool((high - low <= ROUNDING * least).all())


@lru_cache(maxsize=64)
def _products(inputs: int, degree: int) -> tuple[NDArray[np.int64], int]:
    """For each two of the first monomials, which one their product is; and how many there are."""
    level = np.eye(inputs, dtype=np.int64)
    powers = [np.zeros((1, inputs), np.int64), level]
    for before, factor in steps_of(inputs, degree):
        level = level[before] + np.eye(inputs, dtype=np.int64)[factor]
        powers.append(level)
    every = np.concatenate(powers)[:MOST_MONOMIALS]
    product = (every[:, None] + every[None]).reshape(-1, inputs)
    kinds, place = np.unique(product, axis=0, return_inverse=True)
    return place.reshape(len(every), len(every)), len(kinds)


def same_numbers(values: Float64, others: Float64 | float, size: float) -> bool:
    """Whether numbers are the same but for rounding of something of this size."""
    return bool(np.abs(values - others).max(initial=0.0) <= ROUNDING * size)


def is_moment(matrix: Float64) -> bool:
    """Whether a matrix is symmetric and positive semi-definite, up to rounding."""
    size = float(np.abs(matrix).max(initial=0.0))
    if size == 0.0:
        return True
    scaled = matrix / size
    return bool(
        np.allclose(scaled, scaled.T, rtol=0, atol=1e-9)
        and np.linalg.eigvalsh((scaled + scaled.T) / 2)[0] >= -1e-9
    )
