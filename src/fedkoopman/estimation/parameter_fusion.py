"""One estimate of shared parameters from the posteriors of several sites.

Every site begins with the same prior and conditions it on its own data. The data of different
sites are independent given the parameters θ, so what they say adds up, the prior counted once:

    Λ = Λ₀ + Σ (Λ_i − Λ₀),    η = η₀ + Σ (η_i − η₀),    with Λ = P⁻¹ and η = P⁻¹ μ.

For linear-Gaussian problems this is the estimate from all data pooled, exactly. Only μ_i and P_i
leave a site. A site's posterior is to come from one pass with constant parameters (`passes=1`,
`drift=0` of `estimate_parameters`): otherwise its prior is no longer the common one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedkoopman.covariance import covariance
from fedkoopman.errors import ComputationError, InputError, short
from fedkoopman.estimation.parameters import ParameterEstimates
from fedkoopman.systems.checks import finite_array

__all__ = ["Belief", "combine_parameters"]


class Belief(NamedTuple):
    """A Gaussian over parameters: what is believed of them, and how firmly."""

    mean: np.ndarray
    cov: np.ndarray

    @property
    def std(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(np.diagonal(self.cov))


def combine_parameters(
    prior: tuple[Any, Any], posteriors: Sequence[ParameterEstimates | tuple[Any, Any]]
) -> Belief:
    """Combine what sites found, each from the same prior, into what they know together.

    Arguments:
        prior: mean (p,) and covariance of the parameters with which every site began; the
            covariance as a variance, a diagonal (p,) or a matrix.
        posteriors: of each site, as `estimate_parameters` returns them, or mean and covariance;
            all of the same parameters in the same order.

    Returns mean and covariance, `Belief(mean, cov)`.

    >>> found = [fk.estimate_parameters(system, sensor, z, {"length": 1.0}, std=0.5)
    ...          for sensor, z in sites]
    >>> combine_parameters(([1.0], 0.25), found).mean
    """
    mean = np.atleast_1d(finite_array(prior[0], "prior"))
    if mean.ndim != 1:
        raise InputError(f"prior has a mean of shape {mean.shape}: give one number per parameter")
    if not len(posteriors):
        raise InputError("posteriors is empty: give what at least one site found")
    names = {site.names for site in posteriors if isinstance(site, ParameterEstimates)}
    if len(names) > 1:
        raise InputError(
            f"posteriors speak of different parameters, {short(sorted(names))}: let every site "
            "estimate the same ones in the same order"
        )
    information, weighted = _natural(mean, prior[1], "prior")
    total, total_weighted = information.copy(), weighted.copy()
    for i, site in enumerate(posteriors):
        found, cov = _moments(site, f"posteriors[{i}]", len(mean))
        one, one_weighted = _natural(found, cov, f"posteriors[{i}]")
        total += one - information
        total_weighted += one_weighted - weighted
    lowest = float(np.linalg.eigvalsh(total)[0])
    if lowest <= 0:
        raise ComputationError(
            f"the sites together know less than the prior (an information of {lowest:.3g}): a "
            "posterior is wider than the prior it began with; check that all began with this one"
        )
    cov = np.linalg.inv(total)
    return Belief(cov @ total_weighted, (cov + cov.T) / 2)


def _moments(site: Any, name: str, size: int) -> tuple[np.ndarray, Any]:
    if isinstance(site, ParameterEstimates):
        if not site.ok:
            raise InputError(f"{name} comes from a filter that diverged: leave it out")
        site = (site.mean, site.cov)
    mean = np.atleast_1d(finite_array(site[0], name))
    if mean.shape != (size,):
        raise InputError(
            f"{name} has a mean of shape {mean.shape} but the prior has {size} parameters: give "
            "the same ones in the same order"
        )
    return mean, site[1]


def _natural(mean: np.ndarray, cov: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
    """P⁻¹ and P⁻¹ μ."""
    matrix = covariance(cov, len(mean), f"the covariance of {name}")
    if matrix.ndim != 2 or np.linalg.eigvalsh(matrix)[0] <= 0:
        raise InputError(
            f"the covariance of {name} is {short(matrix.tolist())}: it must be one positive "
            "definite matrix"
        )
    information = np.linalg.inv(matrix)
    return information, information @ mean
