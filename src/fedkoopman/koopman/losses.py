"""The three losses of Section IV-A and their weighted sum."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Losses(NamedTuple):
    """ℓ1, ℓ2 and ℓ3, averaged over the samples of a batch."""

    linear: Float[Array, ""]
    """ℓ1 = ‖K φ(X) − φ(X^τ)‖² / d_Y."""
    reconstruction: Float[Array, ""]
    """ℓ2 = ‖X − φ⁻¹(φ(X))‖² / d_X."""
    prediction: Float[Array, ""]
    """ℓ3 = ‖φ⁻¹(K φ(X)) − X^τ‖² / d_X."""

    def weighted(self, weights: tuple[float, float, float]) -> Float[Array, ""]:
        """ℓ = w₁ ℓ1 + w₂ ℓ2 + w₃ ℓ3."""
        w1, w2, w3 = weights
        return w1 * self.linear + w2 * self.reconstruction + w3 * self.prediction


def koopman_losses(
    lift: Callable[[Array], Array],
    operator: Float[Array, "lifted lifted"],
    decode: Callable[[Array], Array],
    x: Float[Array, "input n"],
    target: Float[Array, "input n"],
    share: Float[Array, " n"] | None = None,
) -> Losses:
    """The losses of φ, K and φ⁻¹ for windows X and their targets X^τ.

    Arguments:
        x, target: one window per column.
        share: each sample's share in the mean, where it is not 1/n (0 for padding).
    """
    n = x.shape[1]
    # One pass for both halves: twice the columns in half as many products.
    y, y_target = _halves(lift(jnp.concatenate([x, target], axis=1)), n)
    y_bar = operator @ y
    x_bar, target_bar = _halves(decode(jnp.concatenate([y, y_bar], axis=1)), n)

    def mean(difference: Array) -> Array:
        square = difference**2
        each = square / n if share is None else square * share
        return jnp.sum(each) / difference.shape[0]

    return Losses(mean(y_bar - y_target), mean(x - x_bar), mean(target_bar - target))


def _halves(joined: Array, n: int) -> tuple[Array, Array]:
    return joined[:, :n], joined[:, n:]
