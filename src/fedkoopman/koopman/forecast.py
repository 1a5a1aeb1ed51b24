"""Forecasts with their uncertainty, through the lifted linear dynamics.

A lifted state y with covariance P is, h applications of K later,

    y_h = K^h y,   P_h = K^h P K^hᵀ + M_h,

M_h being what the model itself adds (`koopman.residuals`), and as a state φ⁻¹(y_h) with covariance
D P_h Dᵀ, D the Jacobian of φ⁻¹ at y_h.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedkoopman.errors import ComputationError, InputError
from fedkoopman.koopman.learned import Learned
from fedkoopman.koopman.residuals import spread
from fedkoopman.koopman.trajectories import Trajectories, as_trajectories

__all__ = ["Forecast", "forecast", "lower_covariance", "propagate"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """States to come; row h − 1 is h applications of K ahead.

    Attributes:
        mean: (H, d), or (B, H, d) for several trajectories.
        cov: (H, d, d) or (B, H, d, d).
        time: (H,), from the last sample on.
    """

    mean: Array
    cov: Array
    time: Array

    @property
    def std(self) -> Array:
        """Standard deviations of the components of `mean`."""
        return np.sqrt(np.diagonal(self.cov, axis1=-2, axis2=-1))

    def first(self) -> "Forecast":
        """The forecast of the first trajectory, without the leading axis."""
        return Forecast(self.mean[0], self.cov[0], self.time)


def forecast(learned: Learned, given: Trajectories, steps: int, std: Any = None) -> Forecast:
    """What follows the last window of each trajectory; see `DeepKoopman.forecast`.

    Arguments:
        given: trajectories of states, long enough for a window each.
        steps: how many applications of K.
        std: standard deviations of the states, in the form of the trajectories.
    """
    window = learned.architecture.window
    last = np.stack([part[-window:].ravel() for part in given.parts])
    lifted = learned.lift(last)
    cov = np.zeros((len(last), lifted.shape[1], lifted.shape[1]))
    if std is not None:
        slope = learned.lift_slope(last) * _last_stds(given, std, window)[:, None]
        cov = slope @ slope.swapaxes(1, 2)
    found = propagate(learned, lifted, cov, spread(learned, given.parts, steps))
    return found if given.form in ("stack", "list") else found.first()


def propagate(learned: Learned, lifted: Array, cov: Array, added: Array) -> Forecast:
    """Forecasts from lifted states.

    Arguments:
        lifted, cov: where they start, (B, O) and (B, O, O).
        added: M_1 … M_H, (H, O, O).
    """
    operator, steps = learned.operator, len(added)
    with np.errstate(over="ignore", invalid="ignore"):
        means = learned.advance(lifted, steps).swapaxes(0, 1)
        covs = np.empty((len(lifted), *added.shape))
        for h in range(steps):
            cov = operator @ cov @ operator.T
            covs[:, h] = cov + added[h]
        mean, state_cov = lower_covariance(learned, means, covs)
    bad = ~np.isfinite(mean).all(axis=(0, 2)) | ~np.isfinite(state_cov).all(axis=(0, 2, 3))
    if bad.any():
        raise ComputationError(
            f"the forecast is no longer finite after {int(bad.argmax())} of {steps} steps: the "
            "model grows without bound, ask for fewer steps"
        )
    time = np.arange(1.0, steps + 1) * (learned.architecture.depth * learned.dt)
    return Forecast(mean, state_cov, time)


def lower_covariance(learned: Learned, lifted: Array, cov: Array) -> tuple[Array, Array]:
    """φ⁻¹(y) and D P Dᵀ for lifted states (…, O) with covariances (…, O, O)."""
    before, rows = lifted.shape[:-1], lifted.reshape(-1, lifted.shape[-1])
    states, slope = learned.lower(rows), learned.lower_slope(rows)
    spread = slope @ cov.reshape(-1, *cov.shape[-2:]) @ slope.swapaxes(1, 2)
    spread = (spread + spread.swapaxes(1, 2)) / 2
    dim = states.shape[1]
    return states.reshape(*before, dim), spread.reshape(*before, dim, dim)


def _last_stds(given: Trajectories, std: Any, window: int) -> Array:
    """The standard deviations of the last windows, (B, μ d)."""
    stds = as_trajectories(std).parts
    if [part.shape for part in stds] != [part.shape for part in given.parts]:
        raise InputError("std has another shape than X: give one number for every state in X")
    if min(part.min() for part in stds) < 0:
        raise InputError("std has numbers below 0: give standard deviations")
    return np.stack([part[-window:].ravel() for part in stds])
