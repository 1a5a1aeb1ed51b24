"""An estimator: the cubature Kalman filter with its smoother.

Reference: Arasaratnam, Haykin, "Cubature Kalman Filters", IEEE Trans. Automatic Control 54 (2009).
The 2n points x̂ ± √n L_j have equal weights 1/(2n). With Y_j their images and ȳ their mean, rotating
each pair of opposite points gives the column form of `fedkoopman.estimation.gaussian`:

    A_j = (Y_j − Y_{j+n}) / (2 √n),   C_j = (Y_j + Y_{j+n} − 2 ȳ) / (2 √n),   W = [A | C].
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from fedkoopman.estimation import GaussianEstimator, Options
from fedkoopman.estimation.gaussian import evaluate, wrap
from fedkoopman.estimation.linalg import outer

__all__ = ["ESTIMATOR", "CubatureFilter"]


class Cubature(NamedTuple):
    """How a Gaussian passes through a function: the spherical-radial rule of third degree."""

    resample: bool = True

    def propagate(self, g: Callable[..., Array], mean: Array, lower: Array) -> Array:
        """Images of the 2n points of N(mean, L Lᵀ)."""
        centre, spread = mean[:, None], math.sqrt(mean.shape[0]) * lower
        return evaluate(g, jnp.concatenate([centre + spread, centre - spread], axis=1))

    def moments(self, points: Array, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and columns W; angles are taken relative to the first point."""
        n = points.shape[1] // 2
        d = wrap(points - points[:, :1], angles)
        shift = jnp.mean(d, axis=1, keepdims=True)
        plus, minus = d[:, :n] - shift, d[:, n:] - shift
        columns = jnp.concatenate([plus - minus, plus + minus], axis=1) / (2 * math.sqrt(n))
        return points[:, 0] + shift[:, 0], columns

    def gram(self, a: Array, b: Array) -> Array:
        """A Bᵀ, as all points have the same weight."""
        return outer(a, b)


class CubatureFilter(GaussianEstimator):
    """Filter step, smoother, batches and streaming follow from the transform."""

    def transform(self, options: Options) -> Cubature:
        """The one rule; of the options it needs none."""
        return Cubature()


ESTIMATOR = CubatureFilter()
