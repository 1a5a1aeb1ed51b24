"""The result of an estimation."""

from dataclasses import dataclass

import numpy as np

Arrays = np.ndarray | list[np.ndarray]
"""An array, or one array per trajectory when the trajectories have different lengths."""


class DivergenceWarning(RuntimeWarning):
    """Some trajectories could not be estimated; `Estimates.ok` says which."""


@dataclass(frozen=True)
class Estimates:
    """States estimated from observations z_1 … z_T; rows are time.

    A batch (B, T, m) of observations gives every field a leading B; a list of trajectories gives
    lists. `mean` and `cov` are smoothed (or filtered, with `smooth=False`) at times 1 … T,
    `initial_mean` and `initial_cov` at time 0, before the first observation.
    """

    mean: Arrays
    cov: Arrays
    initial_mean: np.ndarray
    initial_cov: np.ndarray
    log_likelihood: np.ndarray | float
    """log p(z_1 … z_T), the missing components integrated out."""
    innovations: Arrays
    """z_k − E[z_k | z_1 … z_{k−1}]; NaN where z is missing."""
    innovation_cov: Arrays
    ok: np.ndarray | bool
    """False for a trajectory whose filter diverged: its numbers must not be used."""
    method: str
    smoothed: bool
    angles: tuple[int, ...] = ()
    """Components of the state that wrap at 2π; their means are in (−π, π]."""

    @property
    def std(self) -> Arrays:
        """Standard deviations of the components of `mean`."""
        if isinstance(self.cov, list):
            return [_std(c) for c in self.cov]
        return _std(self.cov)


def _std(cov: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))
