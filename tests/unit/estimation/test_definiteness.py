"""Never a NaN, never a covariance that is not positive semi-definite: float64 and float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedkoopman as fk
from fedkoopman.estimation import (
    Linearised,
    Noise,
    State,
    Unscented,
    model_of,
    track,
)

TRANSFORMS = {
    "ukf": Unscented(),
    "ukf-resampled": Unscented(resample=True),
    "ekf": Linearised(),
}


def run(transform, system, sensor, z, q, r, mean, cov, dtype, smooth=True):
    """The pure functions, in the given precision, on a batch z (B, T, m)."""
    batch = z.shape[0]

    def cast(a):
        return jnp.asarray(a, dtype)

    initial = State(
        jnp.broadcast_to(cast(mean)[:, None], (len(mean), batch)),
        jnp.broadcast_to(cast(cov)[..., None], (*np.shape(cov), batch)),
    )
    noise = Noise.of(cast(q)[..., None]), Noise.of(cast(r)[..., None])

    @jax.jit
    def compiled(system, sensor, initial, z):
        return track(
            transform,
            lambda _: model_of(system, sensor),
            initial,
            z,
            (),
            lambda _: noise,
            None,
            smooth,
        )

    system, sensor = jax.tree.map(cast, (system, sensor))
    out = compiled(system, sensor, initial, cast(np.moveaxis(z, 0, -1)))
    return (
        np.moveaxis(np.asarray(out.states.mean), -1, 0),
        np.moveaxis(np.asarray(out.states.cov), -1, 0),
    )


def assert_covariances(cov, dtype):
    """Finite, symmetric to the last bit, and no eigenvalue below rounding of the largest."""
    assert np.isfinite(cov).all()
    np.testing.assert_array_equal(cov, np.swapaxes(cov, -1, -2))
    values = np.linalg.eigvalsh(cov.astype(np.float64))
    floor = -20 * np.finfo(dtype).eps * np.maximum(values[..., -1:], np.finfo(dtype).tiny)
    assert (values >= floor).all(), values.min()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("resample", [False, True])
@pytest.mark.parametrize(
    ("alpha", "q", "r", "p"),
    [(1e-3, 1.0, 1.0, 1.0), (0.1, 1e-6, 1e-4, 100.0), (1.0, 1.0, 1.0, 1.0), (0.1, 1.0, 1e-6, 1.0)],
    ids=["small-alpha", "little-noise-wide-prior", "alpha-1", "precise-sensor"],
)
def test_stress_cases_of_lorenz63(dtype, resample, alpha, q, r, p):
    system = fk.systems.Lorenz63()
    sensor = fk.LinearSensor.random_frame(3, seed=0)
    x = fk.simulate(system, steps=300, seed=3, batch=64)
    z = fk.observe(sensor, x[:, 1:], noise=r, seed=3)
    mean, cov = run(
        Unscented(alpha=alpha, resample=resample),
        system,
        sensor,
        z,
        q * np.eye(3),
        r * np.eye(2),
        np.zeros(3),
        p * np.eye(3),
        dtype,
    )
    assert mean.dtype == dtype
    assert np.isfinite(mean).all()
    assert_covariances(cov, dtype)


def _covariance(rng, n, condition, scale):
    basis, _ = np.linalg.qr(rng.normal(size=(n, n)))
    values = scale * np.logspace(0, -np.log10(condition), n)
    cov = basis * values @ basis.T
    return (cov + cov.T) / 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TRANSFORMS)
@given(
    n=st.integers(1, 10),
    m=st.integers(1, 4),
    exponent=st.floats(0, 1),
    scales=st.tuples(*[st.floats(-2, 2)] * 3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=12, deadline=None)
def test_random_problems(name, dtype, n, m, exponent, scales, seed):
    """x' = A x + 0.3 tanh(B x), condition numbers to 1e8 (float64) and 1e4 (float32)."""
    rng = np.random.default_rng(seed)
    condition = 10 ** (exponent * (8 if dtype is np.float64 else 4))
    a = jnp.asarray(rng.normal(size=(n, n)) / np.sqrt(n), dtype)
    b = jnp.asarray(rng.normal(size=(n, n)), dtype)
    system = fk.System.from_map(lambda x: a @ x + 0.3 * jnp.tanh(b @ x), n)
    sensor = fk.LinearSensor(rng.normal(size=(m, n)))
    q, cov0, r = (
        _covariance(rng, k, condition, 10.0**s) for k, s in zip((n, n, m), scales, strict=True)
    )
    z = rng.normal(size=(3, 25, m)) * 10
    z[rng.uniform(size=z.shape) < 0.1] = np.nan
    transform = TRANSFORMS[name]
    if name != "ekf" and n == 1:
        transform = transform._replace(kappa=0.0)
    mean, cov = run(transform, system, sensor, z, q, r, np.zeros(n), cov0, dtype)
    assert np.isfinite(mean).all()
    assert_covariances(cov, dtype)


def test_a_filter_that_diverges_says_so():
    system = fk.System.from_map(lambda x: x**3, 1)
    z = np.full((2, 30, 1), np.nan)
    z[1] = 0.0
    with pytest.warns(
        fk.estimation.DivergenceWarning, match=r"1 of 2 trajectories diverged \(rows \[0\]"
    ):
        e = fk.estimate(
            system,
            fk.LinearSensor.identity(1),
            z,
            initial_mean=[[3.0], [0.0]],
            kappa=1.0,
            process_noise=1e-6,
            initial_cov=1e-6,
        )
    assert e.ok.tolist() == [False, True]
    assert np.isfinite(e.mean[1]).all()
