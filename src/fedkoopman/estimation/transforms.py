"""How a Gaussian passes through a nonlinear function.

A transform writes the result of y = g(x), x ~ N(x̂, L Lᵀ), in one common form

    y ≈ ȳ + W ξ,   ξ ~ N(0, I),   with x = x̂ + [L 0] ξ,

so that Cov(y) = W Wᵀ and Cov(x, y) = L (first n columns of W)ᵀ. Every covariance downstream is then
a sum of Gram matrices, which cannot lose definiteness.
"""

from collections.abc import Callable
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Points = Float[Array, "q j b"]
"""What a transform makes of a Gaussian, one column each: images of points, or tangents."""


class Transform(Protocol):
    """A way of passing a Gaussian through a function; a NamedTuple, so that it can be compared."""

    @property
    def resample(self) -> bool:
        """Whether new points are drawn from the prediction, Q included, before correcting."""

    def propagate(
        self, g: Callable[..., Array], mean: Float[Array, "n b"], lower: Float[Array, "n n b"]
    ) -> Points:
        """What g (see `evaluate`) makes of N(mean, L Lᵀ)."""

    def moments(self, points: Points, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean (q, b) and column form W (q, j, b) of propagated points.

        The first n columns go with those of L. Components `angles` wrap at 2π.
        """

    def gram(self, a: Float[Array, "i k b"], b: Float[Array, "j k b"]) -> Float[Array, "i j b"]:
        """A Bᵀ over the columns of W."""


def evaluate(g: Callable[..., Array], points: Points) -> Points:
    """Apply `g`, batched over the two leading axes with components last, to every point.

    Components are stacked only to enter `g` and taken apart at once: XLA removes such pairs, while
    a transposed layout would put the batch out of the innermost (vectorised) axis.
    """
    y = g(jnp.stack([points[i] for i in range(points.shape[0])], axis=-1))
    return jnp.stack([y[..., i] for i in range(y.shape[-1])])


def wrap(difference: Array, angles: tuple[int, ...]) -> Array:
    """Bring the components `angles` of a difference into (−π, π]."""
    if not angles:
        return difference
    circular = np.zeros((difference.shape[0],) + (1,) * (difference.ndim - 1), bool)
    circular[list(angles)] = True
    return jnp.where(circular, np.pi - jnp.mod(np.pi - difference, 2 * np.pi), difference)
