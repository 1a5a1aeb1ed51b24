"""Bootstrap particle filter with a backward-simulation smoother.

Filter: particles follow x_k = f(x_{k−1}) + s_k, are weighted by p(z_k | x_k), and are resampled
systematically when the effective sample size falls below half their number (Gordon, Salmond, Smith
1993; Doucet, Johansen 2011). Smoother: paths drawn backwards through the stored particles with
weights w_k^i N(x̃_{k+1}; f(x_k^i), Q) (Godsill, Doucet, West 2004).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from fedkoopman.compilation import fused
from fedkoopman.covariance import square_root
from fedkoopman.errors import InputError
from fedkoopman.estimation.estimator import Options, SequenceEstimator, Trajectory
from fedkoopman.estimation.gaussian import Conditions, evaluate, model_of, wrap
from fedkoopman.estimation.linalg import apply, cholesky, forward, materialise
from fedkoopman.sensors import Sensor
from fedkoopman.systems import System

MOST_PARTICLES = 1_000_000
PATHS = 256
"""Paths of the backward simulation (at most the number of particles): their sample covariance has
a relative error of about √(2/256) = 9 %."""


class Cloud(NamedTuple):
    """Weighted particles; components first, so that the particles are contiguous."""

    x: Float[Array, "n particles"]
    log_weight: Float[Array, " particles"]


class Particles(SequenceEstimator):
    """Bootstrap filter and backward simulation."""

    learns_constants = False  # particles never move in a constant component

    def check(self, options: Options, dim: int) -> None:
        """At least two particles, and no more than fit into memory."""
        count = options.particles
        if not isinstance(count, int | np.integer) or not 2 <= count <= MOST_PARTICLES:
            raise InputError(
                f"particles is {count}: give a whole number of at least 2 and at most "
                f"{MOST_PARTICLES:,}"
            )

    def needs_density(self, smooth: bool) -> Mapping[str, str]:
        """The filter weighs by the density of R, the smoother by that of Q."""
        needed = {"observation_noise": "method 'particle' weighs particles by its density"}
        if smooth:
            needed["process_noise"] = (
                "the particle smoother weighs paths by its density; or pass smooth=False"
            )
        return needed

    def track(
        self, one: Trajectory, options: Options, smooth: bool, *, key: PRNGKeyArray
    ) -> tuple[dict[str, Any], bool]:
        """Filter (and smooth) one trajectory."""
        system, sensor, mean, cov, z, q, r, inputs, dt = one
        for name, why in self.needs_density(smooth).items():
            _check_definite(r if name == "observation_noise" else q, name, why)
        first, *roots = (square_root(matrix) for matrix in (cov, q, r))
        given = (system, sensor, mean, first, z, *roots, inputs, dt, key)
        static = {"particles": int(options.particles), "smooth": smooth}
        result = _track(*given, **static)
        overlap = _track.is_one_kernel(*given, **static)
        initial = {} if smooth else {"initial_mean": mean, "initial_cov": cov}
        return {**result, **initial}, overlap


ESTIMATOR = Particles()


def _check_definite(cov: np.ndarray, name: str, why: str) -> None:
    values = np.linalg.eigvalsh(cov)
    rounding = values.shape[-1] * np.finfo(float).eps * values[..., -1]
    smallest = values[..., 0].min()
    if (values[..., 0] <= rounding).any():
        raise InputError(
            f"{name} has the eigenvalue {smallest:.3g} but must be positive definite: {why}"
        )


@partial(fused, static_argnames=("particles", "smooth"))
def _track(
    system: System,
    sensor: Sensor,
    mean: Array,
    root_0: Array,
    z: Array,
    root_q: Array,
    root_r: Array,
    inputs: Array | None,
    dt: Array | None,
    key: PRNGKeyArray,
    *,
    particles: int,
    smooth: bool,
) -> dict[str, Array]:
    steps, n = z.shape[0], mean.shape[0]
    at_start, in_filter, in_smoother = jax.random.split(key, 3)
    roots = [jnp.broadcast_to(root, (steps, *root.shape[-2:])) for root in (root_q, root_r)]
    per_step = (z, *roots, inputs, dt, jax.random.split(in_filter, steps))
    start = mean[:, None] + apply(root_0[..., None], jax.random.normal(at_start, (n, particles)))
    first = Cloud(start, jnp.full(particles, -jnp.log(particles)))

    def move(x: Array, u: Array | None, interval: Array | None) -> Array:
        now = Conditions(
            None if u is None else u[None], None if interval is None else interval[None]
        )
        return evaluate(model_of(system, sensor, now).transition, x[..., None])[..., 0]

    def forward_step(cloud: Cloud, now: Any) -> tuple[Cloud, Any]:
        z_k, root_q, root_r, u, interval, k = now
        draw, choose = jax.random.split(k)
        cloud = Cloud(*materialise(*_resample(cloud, choose)))
        noise = apply(root_q[..., None], jax.random.normal(draw, cloud.x.shape))
        x = materialise(move(cloud.x, u, interval)) + noise
        cloud, info = _weigh(cloud._replace(x=materialise(x)), sensor, z_k, root_r)
        return cloud, (cloud, info)

    last, (clouds, (log_likelihood, innovations, innovation_cov)) = jax.lax.scan(
        forward_step, first, per_step
    )
    result = {
        "log_likelihood": jnp.sum(log_likelihood),
        "innovations": innovations,
        "innovation_cov": innovation_cov,
    }
    if not smooth:
        mean, cov = jax.vmap(partial(_moments, angles=system.angles))(clouds)
        return {**result, "mean": mean, "cov": cov}
    states, initial = _simulate_back(
        move, first, clouds, last, per_step, in_smoother, system.angles
    )
    smoothed = {"mean": states[0], "cov": states[1]}
    return {**result, **smoothed, "initial_mean": initial[0], "initial_cov": initial[1]}


def _resample(cloud: Cloud, key: PRNGKeyArray) -> Cloud:
    """Systematic resampling when the effective sample size is below half."""
    count = cloud.log_weight.shape[0]
    weight = jnp.exp(cloud.log_weight)
    cumulative = _cumulative(weight[None])[0]
    positions = (jnp.arange(count) + jax.random.uniform(key)) / count * cumulative[-1]
    chosen = jnp.clip(jnp.searchsorted(cumulative, positions), 0, count - 1)
    degenerate = jnp.sum(weight) ** 2 < 0.5 * count * jnp.sum(weight**2)
    x = jnp.where(degenerate, cloud.x[:, chosen], cloud.x)
    return Cloud(x, jnp.where(degenerate, -jnp.log(count), cloud.log_weight))


def _weigh(
    cloud: Cloud, sensor: Sensor, z: Array, root: Array
) -> tuple[Cloud, tuple[Array, Array, Array]]:
    """Weights after z; log p(z_k | z_<k), the innovation and its covariance."""
    seen = ~jnp.isnan(z)
    predicted = evaluate(jax.vmap(jax.vmap(sensor)), cloud.x[..., None])[..., 0]
    centre, spread = _moments(Cloud(predicted, cloud.log_weight), angles=sensor.angles)
    r = root @ root.T
    both = seen[:, None] & seen[None]
    lower = cholesky(jnp.where(both, r, jnp.eye(len(z)))[..., None])
    residual = jnp.where(seen[:, None], wrap(z[:, None] - predicted, sensor.angles), 0)
    white = forward(lower, residual[None])[0]
    log_density = -0.5 * jnp.sum(seen) * np.log(2 * np.pi)
    for i in range(len(z)):
        log_density = log_density - 0.5 * white[i] ** 2 - jnp.log(lower[i, i])
    joint = cloud.log_weight + log_density
    evidence = jax.scipy.special.logsumexp(joint)  # the weights before sum to one
    innovation = jnp.where(seen, wrap(z - centre, sensor.angles), 0)
    cov = jnp.where(both, spread + r, jnp.eye(len(z)))
    return Cloud(cloud.x, joint - evidence), (evidence, innovation, cov)


def _moments(cloud: Cloud, angles: tuple[int, ...] = ()) -> tuple[Array, Array]:
    """Weighted mean and covariance; circular components have a circular mean."""
    weight = jnp.exp(cloud.log_weight)
    weight = weight / jnp.sum(weight)
    mean = cloud.x @ weight
    if angles:
        circular = np.isin(np.arange(len(mean)), angles)
        direction = jnp.arctan2(jnp.sin(cloud.x) @ weight, jnp.cos(cloud.x) @ weight)
        mean = jnp.where(circular, direction, mean)
    d = wrap(cloud.x - mean[:, None], angles)
    return mean, (d * weight) @ d.T


def _simulate_back(
    move: Callable[..., Array],
    first: Cloud,
    clouds: Cloud,
    last: Cloud,
    per_step: tuple,
    key: PRNGKeyArray,
    angles: tuple[int, ...],
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Moments of paths drawn backwards through the stored clouds."""
    count = min(PATHS, last.log_weight.shape[0])
    equal = jnp.zeros(count)
    choose, in_steps = jax.random.split(key)
    paths = last.x[:, _draw(choose, last.log_weight[None], count)]
    _, root_q, _, inputs, dt, _ = per_step
    # A root of Q is V √Λ, so its inverse is √Λ⁻¹ Vᵀ = Λ⁻¹ (V √Λ)ᵀ.
    whiten = jnp.swapaxes(root_q, -1, -2) / jnp.sum(root_q**2, axis=-2)[..., None]
    before = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b[:-1]]), first, clouds)

    def backward_step(paths: Array, now: Any) -> tuple[Array, Any]:
        cloud, white, u, interval, k = now
        images = move(cloud.x, u, interval)
        d = wrap(paths[:, :, None] - images[:, None, :], angles)
        log_weight = jnp.broadcast_to(cloud.log_weight, d.shape[1:])
        for row in white:
            log_weight -= 0.5 * sum(c * d_i for c, d_i in zip(row, d, strict=True)) ** 2
        chosen = cloud.x[:, _draw(k, log_weight, 1)]
        return chosen, _moments(Cloud(paths, equal), angles)

    keys = jax.random.split(in_steps, len(whiten))
    start, states = jax.lax.scan(
        backward_step, paths, (before, whiten, inputs, dt, keys), reverse=True
    )
    return states, _moments(Cloud(start, equal), angles)


def _draw(
    key: PRNGKeyArray, log_weight: Float[Array, "rows particles"], each: int
) -> Int[Array, " drawn"]:
    """Indices drawn from every row's weights by inversion, `each` per row, flattened."""
    cumulative = _cumulative(jnp.exp(log_weight - jnp.max(log_weight, axis=-1, keepdims=True)))
    u = jax.random.uniform(key, (log_weight.shape[0], each)) * cumulative[:, -1:]
    chosen = jnp.sum(cumulative[:, None, :] <= u[..., None], axis=-1)
    return jnp.clip(chosen, 0, log_weight.shape[-1] - 1).reshape(-1)


def _cumulative(weight: Float[Array, "rows particles"]) -> Float[Array, "rows particles"]:
    """Cumulative sums along rows as products with triangles, block by block.

    XLA:CPU computes `cumsum` as a windowed reduction, which took most of the smoother's time.
    """
    rows, count = weight.shape
    size = 32
    blocks = jnp.pad(weight, ((0, 0), (0, -count % size))).reshape(rows, -1, size)
    inside = blocks @ jnp.triu(jnp.ones((size, size), weight.dtype))
    number = inside.shape[1]
    before = inside[..., -1] @ jnp.triu(jnp.ones((number, number), weight.dtype), 1)
    return (inside + before[..., None]).reshape(rows, -1)[:, :count]
