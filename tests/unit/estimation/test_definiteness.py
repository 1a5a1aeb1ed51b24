"""Never a NaN, never a covariance that is not positive semi-definite: float64 and float32."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedkoopman as fk
from fedkoopman.compilation import fused
from fedkoopman.estimation import (
    Linearised,
    Model,
    Noise,
    State,
    Unscented,
    model_of,
    track,
)

pytestmark = pytest.mark.slow  # compiling takes minutes: `make test-slow`

TRANSFORMS = {
    "ukf": Unscented(),
    "ukf-resampled": Unscented(resample=True),
    "ekf": Linearised(),
}


@partial(fused, static_argnames=("transform",))
def smoothed(system, sensor, initial, z, q, r, *, transform):
    """The pure functions, compiled once per shape and precision."""
    noise = Noise.of(q), Noise.of(r)
    model = model_of(system, sensor)
    return track(
        transform, lambda _: model, initial, z, (), lambda _: noise, None, smooth=True
    ).states


def run(transform, system, sensor, z, q, r, mean, cov, dtype):
    """Smoothed means and covariances of a batch z (B, T, m) in the given precision."""
    batch = z.shape[0]

    def cast(a):
        return jnp.asarray(a, dtype)

    initial = State(
        jnp.broadcast_to(cast(mean)[:, None], (len(mean), batch)),
        jnp.broadcast_to(cast(cov)[..., None], (*np.shape(cov), batch)),
    )
    system, sensor = jax.tree.map(cast, (system, sensor))
    q, r = cast(q)[..., None], cast(r)[..., None]
    out = smoothed(system, sensor, initial, cast(np.moveaxis(z, 0, -1)), q, r, transform=transform)
    return tuple(np.moveaxis(np.asarray(a), -1, 0) for a in out)


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


@partial(fused, static_argnames=("transform",))
def bent(a, b, c, initial, z, q, r, *, transform):
    """Smoothed states of x' = A x + 0.3 tanh(B x), z = C x; matrices are arguments, so that one
    compilation serves all examples of a dimension."""
    noise = Noise.of(q), Noise.of(r)
    model = Model(lambda x: x @ a.T + 0.3 * jnp.tanh(x @ b.T), lambda x: x @ c.T)
    return track(
        transform, lambda _: model, initial, z, (), lambda _: noise, None, smooth=True
    ).states


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", TRANSFORMS)
@given(
    n=st.sampled_from([1, 2, 3, 5, 10]),
    exponent=st.floats(0, 1),
    scales=st.tuples(*[st.floats(-2, 2)] * 3),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=25, derandomize=True)
def test_random_problems(name, dtype, n, exponent, scales, seed):
    """Condition numbers to 1e8 (float64) and 1e4 (float32), gaps, correlated noise."""
    rng = np.random.default_rng(seed)
    condition = 10 ** (exponent * (8 if dtype is np.float64 else 4))
    m, batch = 1 + n // 3, 3
    a, b, c = rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=(n, n)), rng.normal(size=(m, n))
    q, cov, r = (
        _covariance(rng, k, condition, 10.0**s) for k, s in zip((n, n, m), scales, strict=True)
    )
    z = rng.normal(size=(20, m, batch)) * 10
    z[rng.uniform(size=z.shape) < 0.1] = np.nan
    transform = TRANSFORMS[name]
    if name != "ekf" and n == 1:
        transform = transform._replace(kappa=0.0)
    initial = State(np.zeros((n, batch)), np.repeat(cov[..., None], batch, axis=-1))
    given = jax.tree.map(
        lambda v: np.asarray(v, dtype), (a, b, c, initial, z, q[..., None], r[..., None])
    )
    mean, cov = bent(*given, transform=transform)
    assert mean.dtype == cov.dtype == dtype
    assert np.isfinite(mean).all()
    assert_covariances(np.moveaxis(np.asarray(cov), -1, 0), dtype)


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


def test_a_covariance_that_lost_definiteness_says_so():
    """β far below α² makes the weighted sum indefinite: finite numbers, and still not usable.

    f(x) = x² from N(0, 1) with s² = 3: d± = 3 and m = 1, so the predicted variance is
    3 + (β − 1) + Q = −7.
    """
    system = fk.System.from_map(lambda x: x**2, 1)
    with (
        pytest.warns(UserWarning, match="beta = -10"),
        pytest.warns(fk.estimation.DivergenceWarning),
    ):
        e = fk.estimate(
            system,
            fk.LinearSensor.identity(1),
            [[np.nan]],
            alpha=1.0,
            kappa=2.0,
            beta=-10.0,
            smooth=False,
        )
    assert e.cov.item() == pytest.approx(-7)
    assert not e.ok
