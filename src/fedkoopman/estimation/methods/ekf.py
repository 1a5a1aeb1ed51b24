"""The extended Kalman filter: a Gaussian passes along the tangent."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedkoopman.estimation.estimator import Options
from fedkoopman.estimation.gaussian import Points, evaluate
from fedkoopman.estimation.gaussian_estimator import GaussianEstimator
from fedkoopman.estimation.linalg import outer


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


class Extended(GaussianEstimator):
    """Exact Jacobians."""

    def transform(self, options: Options) -> Linearised:
        """The tangent; there is nothing to choose."""
        return Linearised()


ESTIMATOR = Extended()
