"""Unknown parameters of a system, estimated jointly with its states.

The parameters θ join the state with θ̇ = 0 (or a slow random walk), and the ordinary filter and
smoother do the rest. Several trajectories are used one after the other: the posterior of θ after
one is the prior of the next, which is exact recursive Bayes up to the filter's own approximation.

Several sites combine what they found. Every site begins with the same prior and conditions it on
its own data. The data of different sites are independent given θ, so what they say adds up, the
prior counted once:

    Λ = Λ₀ + Σ (Λ_i − Λ₀),    η = η₀ + Σ (η_i − η₀),    with Λ = P⁻¹ and η = P⁻¹ μ.

For linear-Gaussian problems this is the estimate from all data pooled, exactly. Only μ_i and P_i
leave a site. A site's posterior must come from one pass with constant parameters (`passes=1`,
`drift=0`): otherwise its prior is no longer the common one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from fedkoopman.covariance import covariance
from fedkoopman.errors import ComputationError, InputError, short
from fedkoopman.estimation import checks
from fedkoopman.estimation.estimates import Estimates, estimate
from fedkoopman.estimation.estimator import problem_of
from fedkoopman.estimation.methods import ESTIMATORS
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System
from fedkoopman.systems.checks import check_count, finite_array, number


class _Augmented(System):
    """(x, θ) → (f(x; θ), θ)."""

    base: System
    free: tuple[str, ...] = eqx.field(static=True)
    dt: Any
    names: tuple[str, ...] = eqx.field(static=True)
    units: tuple[str, ...] = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)
    substeps: int = eqx.field(static=True)

    def __post_init__(self) -> None:
        pass

    @property
    def input_dim(self) -> int:
        return self.base.input_dim

    def _with(self, theta: Array) -> System:
        return self.base.with_parameters(**{k: theta[i] for i, k in enumerate(self.free)})

    def vector_field(self, x: Array, u: Array | None = None) -> Array:
        n = self.base.dim
        still = jnp.zeros(len(self.free), x.dtype)
        return jnp.concatenate([self._with(x[n:]).vector_field(x[:n], u), still])

    def initial_state(self, key: PRNGKeyArray) -> Array:
        guess = jnp.stack([jnp.asarray(self.base.parameters[k]) for k in self.free])
        return jnp.concatenate([self.base.initial_state(key), guess])

    def step(self, x: Array, u: Array | None = None, dt: Any = None) -> Array:
        n = self.base.dim
        return jnp.concatenate([self._with(x[n:]).step(x[:n], u, dt), x[n:]])


class _StateOnly(Sensor):
    """A sensor of x, looking at (x, θ)."""

    base: Sensor
    n: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.base(x[: self.n])


@dataclass(frozen=True)
class ParameterEstimates:
    """Parameters with their uncertainty, and the states estimated along with them."""

    names: tuple[str, ...]
    mean: np.ndarray
    cov: np.ndarray
    path: list[np.ndarray]
    """Filtered parameters over time, one (T, p) per trajectory: have they converged?"""
    states: list[Estimates]
    """States of each trajectory, with the parameters' uncertainty taken into account."""
    ok: bool
    """False if a filter diverged; the trajectories after it were not used."""

    @property
    def std(self) -> np.ndarray:
        """Standard deviations."""
        return np.sqrt(np.diagonal(self.cov))

    @property
    def values(self) -> dict[str, float]:
        """Estimates by name."""
        return dict(zip(self.names, self.mean.tolist(), strict=True))

    def __str__(self) -> str:
        rows = zip(self.names, self.mean, self.std, strict=True)
        return ", ".join(f"{name} = {mean:.4g} ± {std:.2g}" for name, mean, std in rows)


def estimate_parameters(
    system: System,
    sensor: Sensor,
    z: Any,
    parameters: Mapping[str, float],
    *,
    std: float | Mapping[str, float] | None = None,
    drift: float | Mapping[str, float] = 0.0,
    process_noise: Any = 1.0,
    observation_noise: Any = 1.0,
    initial_mean: Any = None,
    initial_cov: Any = None,
    method: str = "ukf-resampled",
    passes: int = 1,
    alpha: float = 0.1,
    beta: float = 2.0,
    kappa: float = -1.0,
    inputs: Any = None,
    dt: Any = None,
) -> ParameterEstimates:
    """Estimate unknown parameters of `system` from observations, by state augmentation.

    Arguments:
        parameters: initial guesses by name; the names are those of `system.parameters`.
        std: how uncertain the guesses are; half of each guess's magnitude unless given.
        drift: standard deviation by which a parameter may change per step (0: constant).
        passes: start again this many times from the estimate found, with the uncertainty of the
            first guess: helps when the guess is far off.
        method: "ukf-resampled" (consistent: its uncertainty means something), "ukf" or "ekf".

    The other arguments are those of `fk.estimate`; z may be one trajectory, a batch or a list.

    >>> found = fk.estimate_parameters(system, sensor, z, {"b": 20.0}, std=5.0)
    >>> print(found)
    b = 27.9 ± 0.12
    """
    checks.only_one(system, System, "system")
    checks.only_one(sensor, Sensor, "sensor")
    check_count(passes, "passes")
    names = _free_names(system, parameters)
    guess = np.array([float(parameters[name]) for name in names])
    if not np.isfinite(guess).all():
        raise InputError(f"parameters are not finite: {dict(parameters)}")
    default = np.where(guess == 0, 1.0, np.abs(guess) / 2)
    spread = default if std is None else _by_name(std, names, "std")
    wander = _by_name(drift, names, "drift")
    if not (spread > 0).all():
        raise InputError(f"std is {spread.tolist()}: every unknown parameter needs a value > 0")
    if not (wander >= 0).all():
        raise InputError(f"drift is {wander.tolist()}: give values >= 0")
    if not ESTIMATORS.find(method).learns_constants:
        raise InputError(
            f"method {method!r} cannot estimate constant parameters, as its particles never move "
            "in them: use 'ukf-resampled'"
        )

    n, p = system.dim, len(names)
    joint = _Augmented(
        base=system, free=names, dt=system.dt, names=(*system.names, *names),
        units=(*system.units, *("1",) * p), angles=system.angles, substeps=system.substeps,
    )  # fmt: skip
    seen = _StateOnly(base=sensor, n=n, dim=sensor.dim, angles=sensor.angles)
    problem, _ = problem_of(
        system, sensor, z, process_noise=process_noise, observation_noise=observation_noise,
        initial_mean=initial_mean, initial_cov=initial_cov, inputs=inputs, dt=dt,
    )  # fmt: skip
    batch, steps = problem.z.shape[:2]
    ends = np.full(batch, steps) if problem.lengths is None else problem.lengths
    problem = replace(problem, q=_with_block(problem.q, np.diag(wander**2)))

    mean, cov = guess, np.diag(spread**2)
    for _ in range(passes):
        cov, results = np.diag(spread**2), []
        for b in range(batch):
            one = problem.take(np.array([b])).cut(int(ends[b]))
            run = partial(
                estimate, joint, seen, one.z[0], process_noise=one.q, observation_noise=one.r,
                initial_mean=np.concatenate([one.mean[0], mean]),
                initial_cov=_with_block(one.cov[0], cov), inputs=one.inputs, dt=one.dt,
                method=method, alpha=alpha, beta=beta, kappa=kappa,
            )  # fmt: skip
            found, filtered = run(), run(smooth=False)
            mean, cov = found.mean[-1][n:], found.cov[-1][n:, n:]
            results.append((found, filtered))
            if not found.ok:  # nothing can follow from a diverged filter
                break
        if not results[-1][0].ok:
            break
    return ParameterEstimates(
        names,
        np.asarray(mean),
        np.asarray(cov),
        [np.asarray(filtered.mean)[:, n:] for _, filtered in results],
        [_states(found, n) for found, _ in results],
        all(bool(found.ok) for found, _ in results),
    )


def _free_names(system: System, parameters: Mapping[str, float]) -> tuple[str, ...]:
    if not isinstance(parameters, Mapping):
        raise InputError(
            f"parameters is a {type(parameters).__name__}: give initial guesses by name, a dict"
        )
    if not parameters:
        known = ", ".join(system.parameters) or "none"
        raise InputError(f"parameters is empty: name at least one of the system's ({known})")
    system.with_parameters(**parameters)  # refuses an unknown name and suggests the nearest
    return tuple(parameters)


def _by_name(value: Any, names: tuple[str, ...], argument: str) -> np.ndarray:
    if isinstance(value, Mapping):
        missing, unknown = set(names) - set(value), set(value) - set(names)
        if missing or unknown:
            odd = sorted(missing or unknown)
            raise InputError(
                f"{argument} {'lacks' if missing else 'has unknown'} {', '.join(odd)}: give one "
                f"value for each of {', '.join(names)}"
            )
        return np.array([number(value[name], f"{argument} of {name}") for name in names])
    return np.full(len(names), number(value, argument))


def _with_block(cov: np.ndarray, block: np.ndarray) -> np.ndarray:
    """Block-diagonal of `cov` (…, n, n) and `block` (p, p)."""
    n, p = cov.shape[-1], len(block)
    joint = np.zeros((*cov.shape[:-2], n + p, n + p))
    joint[..., :n, :n] = cov
    joint[..., n:, n:] = block
    return joint


def _states(e: Estimates, n: int) -> Estimates:
    return replace(
        e,
        mean=np.asarray(e.mean)[:, :n],
        cov=np.asarray(e.cov)[:, :n, :n],
        initial_mean=e.initial_mean[:n],
        initial_cov=e.initial_cov[:n, :n],
    )


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
