"""The three losses of Section IV-A and their weighted sum.

Squares, as in the paper, or Huber's function in their place (P. J. Huber, Annals of Mathematical
Statistics 35, 1964): an error-tolerant loss, as the paper's remark after Theorem 1 has it.
"""

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
    huber: float = 0.0,
    driven: Callable[[Array], Array] | None = None,
) -> Losses:
    """The losses of φ, K and φ⁻¹ for windows X and their targets X^τ.

    Arguments:
        x, target: one window per column.
        share: each sample's share in the mean, where it is not 1/n (0 for padding).
        huber: δ, as of `powers`.
        driven: what takes the place of K where there are inputs.
    """
    n = x.shape[1]
    # One pass for both halves: twice the columns in half as many products.
    y, y_target = _halves(lift(jnp.concatenate([x, target], axis=1)), n)
    y_bar = operator @ y if driven is None else driven(y)
    x_bar, target_bar = _halves(decode(jnp.concatenate([y, y_bar], axis=1)), n)

    def mean(difference: Array) -> Array:
        square = powers(difference, huber)
        each = square / n if share is None else square * share
        return jnp.sum(each) / difference.shape[0]

    return Losses(mean(y_bar - y_target), mean(x - x_bar), mean(target_bar - target))


def powers(error: Float[Array, "*shape"], huber: float = 0.0) -> Float[Array, "*shape"]:
    """What each error adds to a loss: its square or, beyond δ, the tangent of the square.

    h(e) = e² for |e| ≤ δ, and 2δ|e| − δ² beyond: a gross error pulls no harder than one of size δ.

    Arguments:
        huber: δ, in the units of the error; 0: the square everywhere.
    """
    if not huber:
        return error**2
    size = jnp.abs(error)
    return jnp.where(size <= huber, error**2, huber * (2 * size - huber))


def _halves(joined: Array, n: int) -> tuple[Array, Array]:
    return joined[:, :n], joined[:, n:]
