"""How a Gaussian passes through a nonlinear function: sigma points or a tangent.

Both transforms write the result of y = g(x), x ~ N(x̂, L Lᵀ), in one common form

    y ≈ ȳ + W ξ,   ξ ~ N(0, I),   with x = x̂ + [L 0] ξ,

so that Cov(y) = W Wᵀ and Cov(x, y) = L (first n columns of W)ᵀ. Every covariance downstream is then
a sum of Gram matrices, which cannot lose definiteness.

For sigma points this is exact algebra, not an approximation of the textbook sums. With
d_j = Y_j − Y_0, s² = α²(n+κ), w = 1/(2 s²) and m = w Σ d_j, the weighted mean is Y_0 + m and the
weighted covariance w Σ d_j d_jᵀ + (β − α²) m mᵀ; rotating each pair of opposite points,

    A_j = √(w/2) (d_j − d_{j+n})   (goes with column j of L; as s → 0 it is the tangent F L_j)
    C_j = √(w/2) (d_j + d_{j+n})   (curvature: uncorrelated with x)

keeps the sum and gives W = [A | C | √|β − α²| m]. The huge negative W₀ (−149 at the paper's values)
never appears.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedkoopman.estimation.linalg import outer

Points = Float[Array, "q j b"]
"""Column 0 is the centre; the others are sigma points (unscented) or tangents (linearised)."""


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


class Unscented(NamedTuple):
    """Scaled sigma points, eq. (8)-(9); `resample` draws new ones before correcting."""

    alpha: float = 0.1
    beta: float = 2.0
    kappa: float = -1.0
    resample: bool = False

    def _scale(self, n: int) -> float:
        return self.alpha * math.sqrt(n + self.kappa)

    def propagate(
        self, g: Callable[..., Array], mean: Float[Array, "n b"], lower: Float[Array, "n n b"]
    ) -> Points:
        """Y_j = g(X_j) for the 2n + 1 sigma points of (mean, L Lᵀ), eq. (8), (10)."""
        s = self._scale(mean.shape[0])
        centre = mean[:, None]
        return evaluate(
            g, jnp.concatenate([centre, centre + s * lower, centre - s * lower], axis=1)
        )

    def moments(self, points: Points, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and column form W of propagated points, eq. (11)."""
        n = (points.shape[1] - 1) // 2
        w = 1 / (2 * self._scale(n) ** 2)
        d = wrap(points[:, 1:] - points[:, :1], angles)
        plus, minus = d[:, :n], d[:, n:]
        shift = w * sum((d[:, j] for j in range(1, 2 * n)), d[:, 0])
        # Python floats: NumPy's would turn float32 into float64.
        root, tail = math.sqrt(w / 2), math.sqrt(abs(self.beta - self.alpha**2))
        columns = [root * (plus - minus), root * (plus + minus), tail * shift[:, None]]
        return points[:, 0] + shift, jnp.concatenate(columns, axis=1)

    def gram(self, a: Float[Array, "i k b"], b: Float[Array, "j k b"]) -> Float[Array, "i j b"]:
        """A Bᵀ over the columns of W; for β < α² the last column counts negatively."""
        if self.beta >= self.alpha**2:
            return outer(a, b)
        return outer(a, b) - 2 * outer(a[:, -1:], b[:, -1:])


class Linearised(NamedTuple):
    """First-order (extended Kalman) transform: exact Jacobians by forward differentiation."""

    resample: bool = True

    def propagate(
        self, g: Callable[..., Array], mean: Float[Array, "n b"], lower: Float[Array, "n n b"]
    ) -> Points:
        """The image of the centre, then the tangents F L_j."""

        def along(direction: Float[Array, "n b"]) -> tuple[Array, Array]:
            start, tangent = mean[:, None], direction[:, None]
            image, slope = jax.jvp(lambda x: evaluate(g, x), (start,), (tangent,))
            return image[:, 0], slope[:, 0]

        image, slopes = jax.vmap(along, in_axes=1, out_axes=(None, 1))(lower)
        return jnp.concatenate([image[:, None], slopes], axis=1)

    def moments(self, points: Points, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """The image of the mean and W = F L."""
        del angles  # tangents are differences already
        return points[:, 0], points[:, 1:]

    def gram(self, a: Float[Array, "i k b"], b: Float[Array, "j k b"]) -> Float[Array, "i j b"]:
        """A Bᵀ."""
        return outer(a, b)


Transform = Unscented | Linearised
