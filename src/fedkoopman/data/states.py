"""What a site's estimation gives, ready to be written and drawn."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SiteStates:
    """Estimated trajectories of one site. Lists have one entry per trajectory.

    Attributes:
        names, units: of the states; a unit is "1" or "" where there is none.
        labels: the trajectories' names; None for one trajectory without a name.
        times: (T_i,), in the system's unit of time.
        means: (T_i, d), NaN for a trajectory on which the filter diverged.
        covs: (T_i, d, d), likewise.
        observed: (T_i, d), as observed where the sensor shows a state by itself; NaN elsewhere.
        ok: whether the filter stayed finite on each trajectory.
        log_likelihood: of all samples of the trajectories that are ok.
        consistency: whether the innovations are as large as the filter says, in words; None for the
            paper's `ukf`, which cannot be judged so (its innovation covariance lacks Q).
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    labels: tuple[str, ...] | None
    times: list[np.ndarray]
    means: list[np.ndarray]
    covs: list[np.ndarray]
    observed: list[np.ndarray]
    ok: np.ndarray
    log_likelihood: float
    consistency: str | None = None

    @property
    def stds(self) -> list[np.ndarray]:
        """Standard deviations (T_i, d)."""
        return [np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1)) for cov in self.covs]

    @property
    def samples(self) -> int:
        """Number of samples in the trajectories that are ok."""
        return sum(len(t) for t, ok in zip(self.times, self.ok, strict=True) if ok)

    @property
    def diverged(self) -> list[str]:
        """Names of the trajectories on which the filter diverged."""
        names = self.labels or ("1",)
        return [name for name, ok in zip(names, self.ok, strict=True) if not ok]

    @property
    def summary(self) -> str:
        """How well the model explains the observations, in one phrase."""
        likelihood = f"log-likelihood per sample {self.log_likelihood / self.samples:.3f}"
        return likelihood if self.consistency is None else f"{likelihood}, {self.consistency}"
