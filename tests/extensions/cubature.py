"""An estimator that fedkoopman does not have: the cubature Kalman filter, in one file.

Reference: Arasaratnam, Haykin, "Cubature Kalman Filters", IEEE Trans. Automatic Control 54 (2009).
The 2n points x̂ ± √n L_j have equal weights 1/(2n). With Y_j their images and ȳ their mean, rotating
each pair of opposite points gives the column form of `fedkoopman.estimation.gaussian`:

    A_j = (Y_j − Y_{j+n}) / (2 √n),   C_j = (Y_j + Y_{j+n} − 2 ȳ) / (2 √n),   W = [A | C].
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from fedkoopman.estimation import GaussianEstimator
from fedkoopman.estimation.gaussian import evaluate, wrap
from fedkoopman.estimation.linalg import outer


class Cubature(NamedTuple):
    """The spherical-radial rule of third degree."""

    resample: bool = True

    def propagate(self, g, mean, lower):
        """Images of the 2n points."""
        centre, spread = mean[:, None], math.sqrt(mean.shape[0]) * lower
        return evaluate(g, jnp.concatenate([centre + spread, centre - spread], axis=1))

    def moments(self, points, angles):
        """Mean and columns; angles are taken relative to the first point."""
        n = points.shape[1] // 2
        d = wrap(points - points[:, :1], angles)
        shift = jnp.mean(d, axis=1, keepdims=True)
        plus, minus = d[:, :n] - shift, d[:, n:] - shift
        columns = jnp.concatenate([plus - minus, plus + minus], axis=1) / (2 * math.sqrt(n))
        return points[:, 0] + shift[:, 0], columns

    def gram(self, a, b):
        """A Bᵀ."""
        return outer(a, b)


class CubatureFilter(GaussianEstimator):
    """Filter step, smoother, batches and streaming follow from the transform."""

    def transform(self, options):
        """There is nothing to choose."""
        return Cubature()


ESTIMATOR = CubatureFilter()
