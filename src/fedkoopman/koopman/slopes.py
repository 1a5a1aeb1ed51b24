"""Jacobians of the encoder and of the decoder, at every column at once."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedkoopman.koopman.network import Architecture, Weights, decode, encode

__all__ = ["decode_slope", "encode_slope"]


@partial(jax.jit, static_argnums=0)
def encode_slope(
    architecture: Architecture, weights: Weights, x: Float[Array, "input n"]
) -> Float[Array, "lifted input n"]:
    """Of φ."""
    return _slope(partial(encode, architecture, weights), x)


@partial(jax.jit, static_argnums=0)
def decode_slope(
    architecture: Architecture, weights: Weights, y: Float[Array, "lifted n"]
) -> Float[Array, "input lifted n"]:
    """Of φ⁻¹."""
    return _slope(partial(decode, architecture, weights), y)


def _slope(function: Callable[[Array], Array], x: Float[Array, "from n"]) -> Array:
    """∂f_i/∂x_j at every column: one forward derivative of all columns for each j."""

    def along(direction: Float[Array, " from"]) -> Array:
        return jax.jvp(function, (x,), (jnp.broadcast_to(direction[:, None], x.shape),))[1]

    return jax.vmap(along, out_axes=1)(jnp.eye(len(x), dtype=x.dtype))
