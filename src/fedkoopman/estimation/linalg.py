"""Algebra of many small matrices, with the batch on the last axis.

Matrices are arrays of shape `(rows, columns, batch)`. XLA:CPU loops over a batched LAPACK call one
matrix at a time, which for 3x3 matrices is nearly all overhead (jax#15803). Written out as
elementwise operations over the batch, the same algebra fuses and vectorises.

Every factorisation here is *semi-definite*: a pivot that is zero to rounding gives a zero column
instead of a NaN, so a known initial state (P = 0), a noise-free component (Q singular) or a
covariance that has collapsed in float32 are ordinary inputs.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def materialise(*arrays: Array) -> Any:
    """Keep XLA from fusing across this point.

    Loop fusion recomputes a shared producer once per consumer; between the stages of a filter step
    that costs more than storing the intermediate (measured: 15-40 % of a step).
    """
    arrays = jax.lax.optimization_barrier(arrays)
    return arrays[0] if len(arrays) == 1 else arrays


def product(a: Float[Array, "i k #b"], b: Float[Array, "k j #b"]) -> Float[Array, "i j b"]:
    """A B, summed term by term: a `dot` of this size would not fuse."""
    return sum(a[:, k, None] * b[None, k] for k in range(a.shape[1]))  # type: ignore[return-value]


def outer(a: Float[Array, "i k #b"], b: Float[Array, "j k #b"]) -> Float[Array, "i j b"]:
    """A Bᵀ."""
    return sum(a[:, None, k] * b[None, :, k] for k in range(a.shape[1]))  # type: ignore[return-value]


def apply(a: Float[Array, "i k #b"], v: Float[Array, "k #b"]) -> Float[Array, "i b"]:
    """A v."""
    return sum(a[:, k] * v[k] for k in range(a.shape[1]))  # type: ignore[return-value]


def cholesky(p: Float[Array, "n n b"]) -> Float[Array, "n n b"]:
    """Lower factor L of a positive semi-definite P = L Lᵀ, column by column.

    A pivot below n·eps times its own diagonal entry is rounding error, and its column is zero.
    """
    n = p.shape[0]
    floor = n * jnp.finfo(p.dtype).eps
    diagonal = [p[j, j] for j in range(n)]
    columns = []
    for j in range(n):
        pivot = p[0, 0]
        positive = pivot > floor * diagonal[j]
        scale = jnp.where(positive, 1 / jnp.sqrt(jnp.where(positive, pivot, 1)), 0)
        # `0 * nan` keeps a NaN covariance visible: failure is a value here, never a silent zero.
        column = p[:, 0] * jnp.where(jnp.isnan(pivot), pivot, scale)
        columns.append(jnp.concatenate([jnp.zeros_like(p[:1, 0])] * j + [column]))
        p = p[1:, 1:] - column[1:, None] * column[None, 1:]
    return jnp.stack(columns, axis=1)


def _reciprocal(d: Array) -> Array:
    return jnp.where(d > 0, 1 / jnp.where(d > 0, d, 1), jnp.where(jnp.isnan(d), d, 0))


def forward(lower: Float[Array, "n n b"], y: Float[Array, "r n b"]) -> Float[Array, "r n b"]:
    """Y L⁻ᵀ: each row of Y solved against L. Zero pivots give zeros."""
    n = lower.shape[0]
    solved = []
    for i in range(n):
        column = y[:, 0] * _reciprocal(lower[i, i])
        solved.append(column)
        y = y[:, 1:] - column[:, None] * lower[None, i + 1 :, i]
    return jnp.stack(solved, axis=1)


def backward(lower: Float[Array, "n n b"], y: Float[Array, "r n b"]) -> Float[Array, "r n b"]:
    """Y L⁻¹: each row of Y solved against Lᵀ. Zero pivots give zeros."""
    n = lower.shape[0]
    solved: list[Array] = []
    for i in reversed(range(n)):
        column = y[:, i] * _reciprocal(lower[i, i])
        solved.insert(0, column)
        y = y[:, :i] - column[:, None] * lower[None, i, :i]
    return jnp.stack(solved, axis=1)


def right_divide(y: Float[Array, "r n b"], lower: Float[Array, "n n b"]) -> Float[Array, "r n b"]:
    """Y (L Lᵀ)⁻¹."""
    return backward(lower, materialise(forward(lower, y)))
