"""The same filter and smoother in other libraries, as a good user of each would write it.

Every function takes a `Problem` and returns a callable that runs filter + smoother once, waits for
the result and returns (mean, cov), so that speed is only compared where the numbers agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Run = Callable[[], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Problem:
    """Observations z (B, T, m) of a system, with the noise and the initial state of the paper."""

    system: Any
    sensor: Any
    z: np.ndarray
    noise: float
    mean: np.ndarray
    cov: np.ndarray


def fedkoopman(problem: Problem, method: str) -> Run:
    """The public edge: NumPy in, NumPy out, checks included."""
    import fedkoopman as fk

    def run():
        e = fk.estimate(
            problem.system,
            problem.sensor,
            problem.z,
            process_noise=problem.noise,
            observation_noise=problem.noise,
            initial_mean=problem.mean,
            initial_cov=problem.cov,
            method=method,
        )
        assert e.ok.all()
        return e.mean, e.cov

    return run


def _wait(function, z) -> Run:
    import jax

    compiled = jax.jit(function)
    z = jax.device_put(z)

    def run():
        return jax.block_until_ready(compiled(z))

    return run


def dynamax(problem: Problem) -> Run:
    """Unscented filter and smoother, with resampling. Observes before it predicts, so it is given
    the prediction of our initial state."""
    import jax
    import jax.numpy as jnp
    from dynamax.nonlinear_gaussian_ssm import (
        ParamsNLGSSM,
        UKFHyperParams,
        unscented_kalman_smoother,
    )

    import fedkoopman as fk

    n, m = problem.system.dim, problem.sensor.dim
    first = fk.estimate(
        problem.system,
        problem.sensor,
        np.full((1, m), np.nan),
        process_noise=problem.noise,
        initial_mean=problem.mean,
        initial_cov=problem.cov,
        smooth=False,
        method="ukf-resampled",
    )
    params = ParamsNLGSSM(
        initial_mean=jnp.asarray(first.mean[0]),
        initial_covariance=jnp.asarray(first.cov[0]),
        dynamics_function=lambda x: problem.system.step(x),
        dynamics_covariance=problem.noise * jnp.eye(n),
        emission_function=lambda x: problem.sensor(x),
        emission_covariance=problem.noise * jnp.eye(m),
    )
    hyper = UKFHyperParams(alpha=0.1, beta=2.0, kappa=-1.0)

    def smooth(z):
        posterior = unscented_kalman_smoother(params, z, hyper)
        return posterior.smoothed_means, posterior.smoothed_covariances

    return _wait(jax.vmap(smooth), problem.z)


def cuthbert(problem: Problem) -> Run:
    """Extended filter and smoother in square-root form: it has no unscented one (its sigma-point
    quadrature is a building block). Compare with our `ekf`."""
    import cuthbert
    import jax
    import jax.numpy as jnp
    from cuthbert.gaussian import moments

    n, m = problem.system.dim, problem.sensor.dim
    root_q = np.sqrt(problem.noise) * jnp.eye(n)
    root_r = np.sqrt(problem.noise) * jnp.eye(m)

    def dynamics(state, _):
        return (lambda x: (problem.system.step(x), root_q)), state.mean

    def observation(state, z):
        return (lambda x: (problem.sensor(x), root_r)), state.mean, z

    def smooth(z):
        filter_ = moments.build_filter(
            jnp.asarray(problem.mean), jnp.linalg.cholesky(problem.cov), dynamics, observation
        )
        smoother = moments.build_smoother(dynamics)
        states = cuthbert.filter(filter_, z, filter_.init_prepare())
        result = cuthbert.smoother(smoother, states)
        root = result.chol_cov[1:]
        return result.mean[1:], root @ jnp.swapaxes(root, -1, -2)

    return _wait(jax.vmap(smooth), problem.z)


def filterpy(problem: Problem) -> Run:
    """Unscented filter and smoother without resampling, NumPy, one trajectory after the other."""
    from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter

    n, m = problem.system.dim, problem.sensor.dim
    a, b, c, dt = 10.0, 28.0, 8 / 3, 0.02
    matrix, offset = np.asarray(problem.sensor.matrix), np.asarray(problem.sensor.offset)

    def field(x):
        return np.array([a * (x[1] - x[0]), x[0] * (b - x[2]) - x[1], x[0] * x[1] - c * x[2]])

    def step(x, _):
        k1 = field(x)
        k2 = field(x + dt / 2 * k1)
        k3 = field(x + dt / 2 * k2)
        k4 = field(x + dt * k3)
        return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def run():
        means, covs = [], []
        for z in problem.z:
            points = MerweScaledSigmaPoints(n, 0.1, 2.0, -1.0)
            kf = UnscentedKalmanFilter(n, m, dt, lambda x: matrix @ (x - offset), step, points)
            kf.x, kf.P = problem.mean.copy(), problem.cov.copy()
            kf.Q, kf.R = problem.noise * np.eye(n), problem.noise * np.eye(m)
            mean, cov = kf.batch_filter(list(z))
            mean, cov, _ = kf.rts_smoother(mean, cov)
            means.append(mean)
            covs.append(cov)
        return np.array(means), np.array(covs)

    return run
