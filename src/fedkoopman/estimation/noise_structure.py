"""How a noise covariance may change while it is estimated, and what was found.

A structure leads from parameters θ to a matrix, with slopes:

| structure    | what is free                                           | what stays              |
|--------------|--------------------------------------------------------|-------------------------|
| `"fixed"`    | nothing                                                | everything              |
| `"scalar"`   | one factor                                             | ratios and correlations |
| `"blocks"`   | one factor per group of components that are correlated | correlations            |
| `"diagonal"` | one variance per component                             | no correlations         |
| `"full"`     | the matrix, as L Lᵀ                                    | definiteness            |

Components that are held (a dead channel) or given as exactly 0 (noise-free by declaration) keep
their values. Parameters are logarithms of variances, so that no step can make one negative; θ = 0
is what was given.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedkoopman.errors import InputError, unknown_name
from fedkoopman.estimation.likelihood import Climb, standard_errors

Array = np.ndarray

STRUCTURES = ("fixed", "scalar", "blocks", "diagonal", "full")


def structure_of(name: str, given: Array, held: Array, argument: str) -> "Structure":
    """The structure of that name around a given covariance.

    Arguments:
        name: one of `STRUCTURES`.
        given: (d, d), or such matrices per step or per trajectory and step.
        held: components that keep their values, (d,) of bool.
        argument: the covariance's name, for messages.
    """
    if name not in STRUCTURES:
        raise unknown_name("structure", name, STRUCTURES)
    variances = variances_of(given)
    free = np.flatnonzero((variances > 0) & ~held)
    if name == "full":
        if given.ndim > 2:
            raise InputError(
                f'structure "full" needs one matrix but {argument} changes from step to step '
                f'(shape {given.shape}): use "scalar"'
            )
        # Correlations between held and other components could not stay definite.
        return Factored(np.where(held[:, None] == held, given, 0.0), free)
    groups = {
        "fixed": [],
        "scalar": [free] if len(free) else [],
        "blocks": _correlated(given, free),
        "diagonal": [np.array([i]) for i in free],
    }[name]
    base = given if name != "diagonal" else given * np.eye(given.shape[-1])
    return Scaled(base, groups)


class Scaled:
    """D C D with C given and D_ii = exp(θ_g / 2) for the components i of each group g.

    C is (d, d), or such matrices per step or per trajectory and step; so is the result.
    """

    def __init__(self, base: Array, groups: Sequence[Array]):
        self.base, self.groups, self.size = base, groups, len(groups)
        self.member = np.zeros((self.size, base.shape[-1]))
        for g, group in enumerate(groups):
            self.member[g, group] = 1.0
        self.free: Array = np.asarray(self.member.any(axis=0))

    def matrix(self, theta: Array) -> Array:
        """The covariance at θ."""
        d = np.exp(0.5 * theta @ self.member)
        scaled: Array = self.base * d[:, None] * d
        return scaled

    def slopes(self, theta: Array) -> Array:
        """Derivatives (size, …, d, d): ½ (E_g M + M E_g), E_g the group's members' diagonal."""
        half = 0.5 * (self.member[:, :, None] + self.member[:, None, :])
        middle = (1,) * (self.base.ndim - 2)
        return half.reshape(self.size, *middle, *half.shape[1:]) * self.matrix(theta)

    def lowest(self, floor: Array) -> Array:
        """Lower bounds of θ: where the last variance of a group meets its floor (d,), at most 0."""
        variances = variances_of(self.base)
        bounds = [np.log(np.min(floor[g] / variances[g])) for g in self.groups]
        return np.minimum(np.array(bounds), 0.0)

    def towards(self, variances: Array) -> Array:
        """θ that brings the variances near `variances` (d,), by the mean ratio of each group."""
        now = variances_of(self.base)
        return np.array([np.mean(np.log(variances[g] / now[g])) for g in self.groups])


class Factored:
    """L Lᵀ over the free components, with rows L_i = exp(θ_i) (L0_ii e_i + Σ_j<i u_ij e_j)."""

    def __init__(self, base: Array, free: Array):
        self.base, k = base, len(free)
        self.at = np.ix_(free, free)
        self.free = np.zeros(len(base), bool)
        self.free[free] = True
        self.below = np.tril_indices(k, -1)
        self.size = k + len(self.below[0])
        inside = base[self.at]
        # a hair's breadth inside: a singular matrix has no factor to start from
        lower = np.linalg.cholesky(inside + 1e-12 * np.diag(np.diag(inside))) if k else inside
        self.diagonal, self.start = np.diag(lower).copy(), lower[self.below]

    def _lower(self, theta: Array) -> tuple[Array, Array]:
        k = len(self.diagonal)
        rows = np.diag(self.diagonal)
        rows[self.below] = self.start + theta[k:]
        scale = np.exp(theta[:k])
        return rows * scale[:, None], scale

    def matrix(self, theta: Array) -> Array:
        """The covariance at θ."""
        lower, _ = self._lower(theta)
        whole = self.base.copy()
        whole[self.at] = lower @ lower.T
        return whole

    def slopes(self, theta: Array) -> Array:
        """Derivatives (size, d, d): dL Lᵀ + L dLᵀ."""
        lower, scale = self._lower(theta)
        k, slopes = len(self.diagonal), np.zeros((self.size, *self.base.shape))
        for p in range(self.size):
            change = np.zeros((k, k))
            if p < k:
                change[p] = lower[p]
            else:
                i, j = self.below[0][p - k], self.below[1][p - k]
                change[i, j] = scale[i]
            slopes[p][self.at] = change @ lower.T + lower @ change.T
        return slopes

    def lowest(self, floor: Array) -> Array:
        """Lower bounds of θ: conditional variances L_ii² stay above the floor (d,)."""
        bounds = np.full(self.size, -np.inf)
        k = len(self.diagonal)
        bounds[:k] = np.minimum(0.5 * np.log(floor[self.free]) - np.log(self.diagonal), 0.0)
        return bounds

    def towards(self, variances: Array) -> Array:
        """θ that makes the variances `variances` (d,), with the correlations as given."""
        theta = np.zeros(self.size)
        free = self.free
        theta[: len(self.diagonal)] = 0.5 * np.log(variances[free] / variances_of(self.base)[free])
        return theta


Structure = Scaled | Factored
"""Both have `size` parameters θ, the components that they leave `free`, and the same functions."""


def variances_of(given: Array) -> Array:
    """Variances (d,), the mean over steps and trajectories."""
    diagonal = np.diagonal(given, axis1=-2, axis2=-1)
    return np.asarray(diagonal.reshape(-1, diagonal.shape[-1]).mean(axis=0))


def _correlated(given: Array, free: Array) -> list[Array]:
    """The free components in groups, within which the given matrix correlates them."""
    flat = given.reshape(-1, *given.shape[-2:])
    linked = (flat != 0).any(axis=0)
    groups: list[set[int]] = []
    for i in free:
        near = {int(j) for j in free if linked[i, j]} | {int(i)}
        touching = [group for group in groups if group & near]
        groups = [group for group in groups if not group & near]
        groups.append(near.union(*touching))
    return [np.array(sorted(group)) for group in sorted(groups, key=min)]


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
