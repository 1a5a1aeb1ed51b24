"""Algebra of many small matrices, with the batch on the last axis.

Matrices are arrays of shape `(rows, columns, batch)`. XLA:CPU loops over a batched LAPACK call one
matrix at a time, which for 3x3 matrices is nearly all overhead (jax#15803). Written out as
elementwise operations over the batch, the same algebra fuses and vectorises.

Every factorisation here is *semi-definite*: a pivot that is zero to rounding gives a zero column
instead of a NaN, so a known initial state (P = 0), a noise-free component (Q singular) or a
covariance that has collapsed in float32 are ordinary inputs.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def materialise(*arrays: Array) -> Any:
    """Keep XLA from fusing across this point.

    Loop fusion recomputes a shared producer once per consumer; between the stages of a filter step
    that costs more than storing the intermediate.
    """
    arrays = jax.lax.optimization_barrier(arrays)
    return arrays[0] if len(arrays) == 1 else arrays


UNROLLED = 4
"""Up to this dimension everything is written out; above it products are dots and factorisations
loop over columns.

Written out, XLA sees one expression and vectorises it best; but it also recomputes shared parts, at
n = 20 a hundredfold. Dots and loops are boundaries that it cannot fuse across."""


def product(a: Float[Array, "i k #b"], b: Float[Array, "k j #b"]) -> Float[Array, "i j b"]:
    """A B."""
    if len(a) > UNROLLED:
        return jnp.einsum("ikb,kjb->ijb", *_same_batch(a, b))
    return sum(a[:, k, None] * b[None, k] for k in range(a.shape[1]))  # type: ignore[return-value]


def outer(a: Float[Array, "i k #b"], b: Float[Array, "j k #b"]) -> Float[Array, "i j b"]:
    """A Bᵀ."""
    if len(a) > UNROLLED:
        return jnp.einsum("ikb,jkb->ijb", *_same_batch(a, b))
    return sum(a[:, None, k] * b[None, :, k] for k in range(a.shape[1]))  # type: ignore[return-value]


def apply(a: Float[Array, "i k #b"], v: Float[Array, "k #b"]) -> Float[Array, "i b"]:
    """A v."""
    return sum(a[:, k] * v[k] for k in range(a.shape[1]))  # type: ignore[return-value]


def _same_batch(a: Array, b: Array) -> tuple[Array, Array]:
    batch = max(a.shape[-1], b.shape[-1])
    return jnp.broadcast_to(a, (*a.shape[:-1], batch)), jnp.broadcast_to(b, (*b.shape[:-1], batch))


def _columns_of(step: Callable, carry: Any, n: int, reverse: bool = False) -> Any:
    """Run `step(j, carry)` for every column, written out or as a loop."""
    order = range(n - 1, -1, -1) if reverse else range(n)
    if n <= UNROLLED:
        for j in order:
            carry = step(j, carry)
        return carry
    return jax.lax.fori_loop(0, n, lambda i, c: step(n - 1 - i if reverse else i, c), carry)


def _take(a: Array, j: Any, axis: int) -> Array:
    return jax.lax.dynamic_index_in_dim(a, j, axis, keepdims=False)


def _put(a: Array, column: Array, j: Any) -> Array:
    return jax.lax.dynamic_update_index_in_dim(a, column, j, 1)


def cholesky(p: Float[Array, "n n b"]) -> Float[Array, "n n b"]:
    """Lower factor L of a positive semi-definite P = L Lᵀ, column by column.

    A pivot below n·eps times its own diagonal entry is rounding error, and its column is zero.
    """
    n = p.shape[0]
    floor = n * jnp.finfo(p.dtype).eps
    diagonal = jnp.stack([p[j, j] for j in range(n)])

    def eliminate(j: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, lower = carry
        column = _take(rest, j, 1)
        pivot = _take(column, j, 0)
        positive = pivot > floor * _take(diagonal, j, 0)
        scale = jnp.where(positive, 1 / jnp.sqrt(jnp.where(positive, pivot, 1)), 0)
        # A NaN must stay visible: failure is a value here, never a silent zero.
        column = column * jnp.where(jnp.isnan(pivot), pivot, scale)
        column = jnp.where((jnp.arange(n) >= j)[:, None], column, 0)
        return rest - column[:, None] * column[None], _put(lower, column, j)

    return _columns_of(eliminate, (p, jnp.zeros_like(p)), n)[1]


def _reciprocal(d: Array) -> Array:
    return jnp.where(d > 0, 1 / jnp.where(d > 0, d, 1), jnp.where(jnp.isnan(d), d, 0))


def _substitute(
    lower: Float[Array, "n n b"], y: Float[Array, "r n b"], axis: int, reverse: bool
) -> Float[Array, "r n b"]:
    n = lower.shape[0]
    inverse = _reciprocal(jnp.stack([lower[j, j] for j in range(n)]))

    def eliminate(j: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rest, solved = carry
        column = _take(rest, j, 1) * _take(inverse, j, 0)
        return rest - column[:, None] * _take(lower, j, axis)[None], _put(solved, column, j)

    return _columns_of(eliminate, (y, jnp.zeros_like(y)), n, reverse)[1]


def forward(lower: Float[Array, "n n b"], y: Float[Array, "r n b"]) -> Float[Array, "r n b"]:
    """Y L⁻ᵀ: each row of Y solved against L. Zero pivots give zeros."""
    return _substitute(lower, y, axis=1, reverse=False)


def backward(lower: Float[Array, "n n b"], y: Float[Array, "r n b"]) -> Float[Array, "r n b"]:
    """Y L⁻¹: each row of Y solved against Lᵀ. Zero pivots give zeros."""
    return _substitute(lower, y, axis=0, reverse=True)


def right_divide(y: Float[Array, "r n b"], lower: Float[Array, "n n b"]) -> Float[Array, "r n b"]:
    """Y (L Lᵀ)⁻¹."""
    return backward(lower, materialise(forward(lower, y)))
