"""The unscented Kalman filter as in the paper: propagated sigma points serve again to correct.

Sigma points in the column form of `gaussian` are exact algebra, not an approximation of the
textbook sums. With d_j = Y_j − Y_0, s² = α²(n+κ), w = 1/(2 s²) and m = w Σ d_j, the weighted mean
is Y_0 + m and the weighted covariance w Σ d_j d_jᵀ + (β − α²) m mᵀ; rotating each pair of opposite
points,

    A_j = √(w/2) (d_j − d_{j+n})   (goes with column j of L; as s → 0 it is the tangent F L_j)
    C_j = √(w/2) (d_j + d_{j+n})   (curvature: uncorrelated with x)

keeps the sum and gives W = [A | C | √|β − α²| m]. The huge negative W₀ (−149 at the paper's values)
never appears.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedkoopman.errors import InputError, short
from fedkoopman.estimation.estimator import Options
from fedkoopman.estimation.gaussian import Points, evaluate, wrap
from fedkoopman.estimation.gaussian_estimator import GaussianEstimator
from fedkoopman.estimation.linalg import outer


class Unscented(NamedTuple):
    """Scaled sigma points, eq. (4)-(5); `resample` draws new ones before correcting."""

    alpha: float = 0.1
    beta: float = 2.0
    kappa: float = -1.0
    resample: bool = False

    def _scale(self, n: int) -> float:
        return self.alpha * math.sqrt(n + self.kappa)

    def propagate(
        self, g: Callable[..., Array], mean: Float[Array, "n b"], lower: Float[Array, "n n b"]
    ) -> Points:
        """Y_j = g(X_j) for the 2n + 1 sigma points of (mean, L Lᵀ), eq. (4), (6)."""
        s = self._scale(mean.shape[0])
        centre = mean[:, None]
        return evaluate(
            g, jnp.concatenate([centre, centre + s * lower, centre - s * lower], axis=1)
        )

    def moments(self, points: Points, angles: tuple[int, ...]) -> tuple[Array, Array]:
        """Mean and column form W of propagated points, eq. (7)."""
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


@dataclass(frozen=True)
class SigmaPoints(GaussianEstimator):
    """A filter with sigma points.

    Arguments:
        consistent: whether the correction takes new points, which know of Q. The paper's filter
            uses the propagated ones, so that its innovation covariance lacks Q.
    """

    consistent: bool

    def transform(self, options: Options) -> Unscented:
        """The points that the options spread."""
        spread = (float(options.alpha), float(options.beta), float(options.kappa))
        return Unscented(*spread, resample=self.consistent)

    def check(self, options: Options, dim: int) -> None:
        """alpha > 0, dim + kappa > 0, and a spread that leaves digits."""
        for name in ("alpha", "beta", "kappa"):
            value = getattr(options, name)
            number = isinstance(value, int | float | np.integer | np.floating)
            if not number or not np.isfinite(value):
                raise InputError(f"{name} is {short(value)}: give a finite number")
        alpha, kappa = options.alpha, options.kappa
        if alpha <= 0:
            raise InputError(f"alpha is {alpha:g}, but sigma points need alpha > 0: try alpha=0.1")
        if dim + kappa <= 0:
            raise InputError(
                f"kappa is {kappa:g}, but the state has {dim} components and sigma points need "
                f"dim + kappa > 0: give a number > {-dim}"
            )
        spread = alpha**2 * (dim + kappa)
        if not 1e-12 < spread < 1e12:
            raise InputError(
                f"alpha is {alpha:g}, which spreads the sigma points by {spread:.3g} variances: "
                "give one with 1e-12 < alpha² (dim + kappa) < 1e12"
            )

    def indefinite(self, options: Options) -> str:
        """Only β < α² can cost a covariance its definiteness."""
        if options.beta >= options.alpha**2:
            return ""
        return (
            f"beta = {options.beta:g} is below alpha² = {options.alpha**2:g}: covariances may lose "
            "positive definiteness; beta=2 is right for Gaussian states"
        )


ESTIMATOR = SigmaPoints(consistent=False)
