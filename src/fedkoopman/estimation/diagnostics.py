"""Is a filter as good as it says? Innovations and errors against their own covariances.

Each test returns a number, the band it falls into with the given probability when model and noise
are right, and a verdict. References: Bar-Shalom, Li, Kirubarajan, "Estimation with Applications to
Tracking and Navigation", 5.4 (NIS, NEES); Ljung, Box 1978 (whiteness).

The paper's `ukf` (no resampling) is inconsistent by construction: its innovation covariance lacks
Q. Judge a model with `ukf-resampled` or `ekf`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedkoopman.errors import InputError
from fedkoopman.estimation.estimates import Estimates


@dataclass(frozen=True)
class Diagnosis:
    """A statistic, its acceptance band, and what it means to be outside."""

    name: str
    value: float
    lower: float
    upper: float
    level: float
    below: str
    above: str

    @property
    def consistent(self) -> bool:
        """Whether the value lies in the band."""
        return self.lower <= self.value <= self.upper

    @property
    def verdict(self) -> str:
        """One phrase for a person."""
        if not np.isfinite([self.value, self.lower, self.upper]).all():
            return "cannot be judged: too few values"
        if self.consistent:
            return "consistent"
        return self.below if self.value < self.lower else self.above

    def __str__(self) -> str:
        return (
            f"{self.name} = {self.value:.3g} ({self.level:.0%} band {self.lower:.3g} to "
            f"{self.upper:.3g}): {self.verdict}"
        )


def nis(estimates: Estimates, level: float = 0.99) -> Diagnosis:
    """Normalised innovation squared, νᵀ S⁻¹ ν per observed component; 1 when consistent.

    Innovations are white, so the sum over all steps is χ² with as many degrees of freedom as there
    are observed numbers.
    """
    total, count = 0.0, 0
    for white in _white_innovations(estimates):
        total += np.nansum(white**2)
        count += int(np.sum(~np.isnan(white)))
    lower, upper = _chi_square_band(count, level)
    return Diagnosis(
        "NIS per component",
        total / count if count else np.nan,
        lower,
        upper,
        level,
        "innovations are smaller than their covariance says: the noise is set too large",
        "innovations are larger than their covariance says: the noise is set too small or the "
        "model is wrong",
    )


def nees(estimates: Estimates, truth: Any, level: float = 0.99) -> Diagnosis:
    """Normalised estimation error squared, eᵀ P⁻¹ e / n against the true states; 1 when consistent.

    Errors are correlated in time, so the band comes from the spread of the means of blocks of √T
    steps rather than from a χ² count; on short data it is wide. Declared angles are compared on the
    circle.
    """
    means, covs = _trajectories(estimates, estimates.mean), _trajectories(estimates, estimates.cov)
    truths = [np.asarray(t, float) for t in _like(estimates, truth)]
    blocks, values = [], []
    for mean, cov, true in zip(means, covs, truths, strict=True):
        if true.shape != mean.shape:
            raise InputError(
                f"truth has shape {true.shape} but the estimates {mean.shape}: pass the states at "
                "the times of the observations (x[1:])"
            )
        error = true - mean
        for i in estimates.angles:
            error[:, i] = np.pi - np.mod(np.pi - error[:, i], 2 * np.pi)
        white, rank = _whiten(error, cov)
        squared = np.sum(white**2, axis=1)[rank > 0] / rank[rank > 0]
        values.append(squared)
        size = max(1, int(np.sqrt(len(squared))))
        blocks += [b.mean() for b in np.array_split(squared, max(1, len(squared) // size))]
    value = float(np.concatenate(values).mean())
    from scipy import stats

    half = np.nan
    if len(blocks) > 1:
        error = np.std(blocks, ddof=1) / np.sqrt(len(blocks))
        half = float(stats.t.ppf(0.5 + level / 2, len(blocks) - 1)) * error
    return Diagnosis(
        "NEES per component",
        value,
        max(0.0, 1 - half),
        1 + half,
        level,
        "errors are smaller than the covariance says: the filter is too modest",
        "errors are larger than the covariance says: the filter is overconfident",
    )


def whiteness(estimates: Estimates, lags: int = 10, level: float = 0.99) -> Diagnosis:
    """Ljung-Box statistic of the normalised innovations over `lags` lags, per degree of freedom."""
    statistic, freedom = 0.0, 0
    for white in _white_innovations(estimates):
        for component in white.T:
            seen = ~np.isnan(component)
            count = int(seen.sum())
            if count <= lags + 1:
                continue
            e = np.where(seen, component, 0.0)
            energy = np.sum(e**2)
            for lag in range(1, lags + 1):
                pairs = int(np.sum(seen[lag:] & seen[:-lag]))
                if pairs and energy > 0:
                    rho = np.sum(e[lag:] * e[:-lag]) / energy
                    statistic += count * (count + 2) * rho**2 / pairs
                    freedom += 1
    _, upper = _chi_square_band(freedom, 2 * level - 1)
    return Diagnosis(
        "innovation whiteness",
        statistic / freedom if freedom else np.nan,
        0.0,
        upper,
        level,
        "",
        "innovations are correlated in time: the model misses dynamics or Q is wrong",
    )


def _chi_square_band(freedom: int, level: float) -> tuple[float, float]:
    if not freedom:
        return np.nan, np.nan
    from scipy import stats  # slow to import, and only diagnostics need it

    tail = (1 - level) / 2
    lower, upper = stats.chi2.ppf([tail, 1 - tail], freedom) / freedom
    return float(lower), float(upper)


def _white_innovations(estimates: Estimates) -> list[np.ndarray]:
    """`whitened`, of the trajectories that have any."""
    return [white for white in whitened(estimates) if white is not None]


def whitened(estimates: Estimates) -> list[np.ndarray | None]:
    """S^(−1/2) ν per trajectory: unit variance, independent when consistent; NaN where missing.

    None for a trajectory whose innovations are not finite.
    """
    innovations = _trajectories(estimates, estimates.innovations)
    covs = _trajectories(estimates, estimates.innovation_cov)
    result: list[np.ndarray | None] = []
    for v, s in zip(innovations, covs, strict=True):
        if not (np.isfinite(s).all() and np.isfinite(v[~np.isnan(v)]).all()):
            result.append(None)
            continue
        # A missing component has a unit row in S, so filling in 0 leaves the others untouched.
        white, _ = _whiten(np.nan_to_num(v), s)
        result.append(np.where(np.isnan(v), np.nan, white))
    return result


def _whiten(v: np.ndarray, cov: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """C^(−1/2) v per step, and the rank of each C.

    Directions without variance are left out (zero): nothing random happens in them.
    """
    values, vectors = np.linalg.eigh(cov)
    floor = cov.shape[-1] * np.finfo(float).eps * values[..., -1:]
    scale = np.where(values > floor, 1 / np.sqrt(np.where(values > floor, values, 1)), 0)
    along = np.einsum("tij,ti->tj", vectors, v) * scale
    return np.einsum("tij,tj->ti", vectors, along), np.sum(values > floor, axis=-1)


def _trajectories(estimates: Estimates, value: Any) -> list[np.ndarray]:
    return [value] if np.ndim(estimates.ok) == 0 else list(value)


def _like(estimates: Estimates, truth: Any) -> list[Any]:
    trajectories, expected = _trajectories(estimates, truth), np.size(estimates.ok)
    if len(trajectories) != expected:
        raise InputError(f"truth has {len(trajectories)} trajectories, the estimates {expected}")
    return trajectories
