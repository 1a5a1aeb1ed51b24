"""Small estimation problems shared by the tests, each with a NumPy twin of f and h."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import fedkoopman as fk


@dataclass(frozen=True)
class Case:
    """A system and sensor, twins of their functions, observations and noise."""

    system: Any
    sensor: Any
    f: Any
    h: Any
    z: np.ndarray
    x: np.ndarray
    q: np.ndarray
    r: np.ndarray
    mean: np.ndarray
    cov: np.ndarray

    def estimate(self, **options):
        """`fk.estimate` with the case's own noise and initial state."""
        given = {
            "process_noise": self.q,
            "observation_noise": self.r,
            "initial_mean": self.mean,
            "initial_cov": self.cov,
        }
        return fk.estimate(self.system, self.sensor, self.z, **{**given, **options})


def _numpy_rk4(rhs, dt):
    def f(x):
        k1 = rhs(x)
        k2 = rhs(x + dt / 2 * k1)
        k3 = rhs(x + dt / 2 * k2)
        k4 = rhs(x + dt * k3)
        return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return f


def lorenz63(steps=120, seed=0, noise=1.0) -> Case:
    """The paper's default problem for one client."""
    system = fk.systems.Lorenz63()
    sensor = fk.LinearSensor.random_frame(3, seed=seed)
    b, o = np.asarray(sensor.matrix), np.asarray(sensor.offset)

    def rhs(x):
        return np.array([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    x = fk.simulate(system, steps=steps, seed=seed)
    z = fk.observe(sensor, x[1:], noise=noise, seed=seed)
    return Case(
        system,
        sensor,
        _numpy_rk4(rhs, 0.02),
        lambda y: b @ (y - o),
        z,
        x,
        noise * np.eye(3),
        noise * np.eye(2),
        np.zeros(3),
        np.eye(3),
    )


def van_der_pol(steps=120, seed=1) -> Case:
    """Position only, through a nonlinear sensor."""
    system = fk.systems.VanDerPol()
    sensor = fk.FunctionSensor(lambda x: jax.numpy.stack([x[0] + 0.1 * x[0] ** 3]), 1)
    x = fk.simulate(system, steps=steps, seed=seed)
    z = fk.observe(sensor, x[1:], noise=0.01, seed=seed)
    return Case(
        system,
        sensor,
        _numpy_rk4(lambda x: np.array([x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0]]), 0.02),
        lambda y: np.array([y[0] + 0.1 * y[0] ** 3]),
        z,
        x,
        np.diag([1e-4, 1e-3]),
        np.array([[0.01]]),
        np.array([0.5, -0.5]),
        np.diag([0.5, 2.0]),
    )


def linear(steps=80, seed=2, n=4, m=2) -> Case:
    """A random stable linear map with correlated noise."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, n))
    a *= 0.97 / np.abs(np.linalg.eigvals(a)).max()
    c = rng.normal(size=(m, n))
    q = _random_covariance(rng, n)
    r = _random_covariance(rng, m)
    cov = _random_covariance(rng, n)
    entries = {f"a{i}{j}": float(a[i, j]) for i in range(n) for j in range(n)}
    system = fk.System.from_map(_matrix_times, n, parameters=entries)
    sensor = fk.LinearSensor(c)
    x = [rng.multivariate_normal(np.ones(n), cov)]
    for _ in range(steps):
        x.append(a @ x[-1] + rng.multivariate_normal(np.zeros(n), q))
    x = np.array(x)
    z = x[1:] @ c.T + rng.multivariate_normal(np.zeros(m), r, size=steps)
    return Case(system, sensor, lambda y: a @ y, lambda y: c @ y, z, x, q, r, np.ones(n), cov)


def _matrix_times(x, **entries):
    """A x; A's entries are parameters and this is one function, so one compilation serves all A."""
    return jax.numpy.stack(list(entries.values())).reshape(len(x), len(x)) @ x


def _random_covariance(rng, n):
    a = rng.normal(size=(n, n))
    return a @ a.T / n + 0.1 * np.eye(n)
