"""The result of a noise estimation: covariances, their standard errors, how it went."""

from dataclasses import dataclass

import numpy as np

from fedkoopman.estimation.noise_structure import Structure
from fedkoopman.estimation.scoring import Climb, standard_errors


@dataclass(frozen=True)
class NoiseEstimates:
    """Estimated covariances, how well they are known, and how the estimation went."""

    observation_noise: np.ndarray
    process_noise: np.ndarray
    log_likelihoods: tuple[float, ...]
    """At the covariances given, then after each step that raised it."""
    converged: bool
    observation_error: np.ndarray
    """Relative standard errors of the variances (m,); NaN where one is held, at its floor, or not
    visible in the data."""
    process_error: np.ndarray
    """Likewise for the process noise, (n,)."""
    observation_floored: np.ndarray
    """Variances that ended at their floor: the data show none, (m,) of bool."""
    process_floored: np.ndarray
    used: np.ndarray
    """Trajectories that entered, (B,): not those on which the filter diverged to begin with."""

    def __str__(self) -> str:
        rise = self.log_likelihoods[-1] - self.log_likelihoods[0]
        parts = []
        for name, noise, error in (
            ("observation noise", self.observation_noise, self.observation_error),
            ("process noise", self.process_noise, self.process_error),
        ):
            if noise.ndim == 2:
                listed = [
                    f"{v:.3g}" + (f" ± {v * e:.1g}" if np.isfinite(e) else "")
                    for v, e in zip(np.diag(noise), error, strict=True)
                ]
                parts.append(f"{name} {', '.join(listed)}")
        end = "" if self.converged else ", not converged"
        return f"{'; '.join(parts)} (log-likelihood +{rise:.1f}{end})"


def noise_estimates(
    climbed: Climb, lowest: np.ndarray, shape_q: Structure, shape_r: Structure, used: np.ndarray
) -> NoiseEstimates:
    """What a climb found, in the covariances' own terms.

    Arguments:
        climbed: where it ended; the parameters of the observation noise come first.
        lowest: the parameters' bounds.
        shape_q, shape_r: structures of process and observation noise.
        used: which trajectories entered.
    """
    covariance = standard_errors(climbed, lowest)
    split = shape_r.size
    parts = {}
    for name, shape, at in (
        ("observation", shape_r, slice(0, split)),
        ("process", shape_q, slice(split, None)),
    ):
        theta = climbed.theta[at]
        noise, slopes = shape.matrix(theta), shape.slopes(theta)
        variance = np.diagonal(noise, axis1=-2, axis2=-1)
        # slopes of the logarithms of the variances, the same at every step
        rise = np.diagonal(slopes, axis1=-2, axis2=-1)
        axes = tuple(range(1, rise.ndim - 1))
        rise = rise.mean(axis=axes) / np.where(
            shape.free, variance.mean(axis=tuple(range(variance.ndim - 1))), 1.0
        )
        floored = np.any((rise != 0) & (theta <= lowest[at])[:, None], axis=0)
        parts[f"{name}_noise"] = noise
        parts[f"{name}_floored"] = floored
        parts[f"{name}_error"] = _errors(rise, covariance[at, at], shape.free)
    return NoiseEstimates(
        log_likelihoods=tuple(climbed.values), converged=climbed.converged, used=used, **parts
    )


def _errors(rise: np.ndarray, covariance: np.ndarray, free: np.ndarray) -> np.ndarray:
    """√(gᵀ C g) per component; NaN where a parameter that matters is not known."""
    errors = np.full(len(free), np.nan)
    for i in np.flatnonzero(free):
        at = np.flatnonzero(rise[:, i])
        g = rise[at, i]
        errors[i] = np.sqrt(g @ covariance[np.ix_(at, at)] @ g) if len(at) else np.nan
    return errors
