"""Missing observations are NaN: whole rows, single components, with the exact likelihood."""

import numpy as np
import pytest
from reference import filters
from reference.problems import linear, lorenz63

import fedkoopman as fk

METHODS = [
    "ukf-resampled",
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("ukf", "ekf")),
]
"""Of all methods, `test_estimator_laws` asks what missing observations do."""


def close(ours, theirs, tolerance=1e-10):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1, np.abs(theirs).max()))


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_row_is_a_pure_prediction(method):
    case = lorenz63(steps=30)
    z = case.z.copy()
    z[-1] = np.nan
    e = fk.estimate(case.system, case.sensor, z, method=method, smooth=False)
    before = fk.estimate(case.system, case.sensor, z[:-1], method=method, smooth=False)
    f, q = case.f, np.eye(3)
    if method == "ekf":
        jacobian = filters.central_jacobian(f)(before.mean[-1])
        mean, cov = f(before.mean[-1]), jacobian @ before.cov[-1] @ jacobian.T + q
    else:
        points, wm, wc = filters.sigma_points(before.mean[-1], before.cov[-1], 0.1, 2.0, -1.0)
        points = np.array([f(p) for p in points])
        mean = wm @ points
        cov = (wc[:, None] * (points - mean)).T @ (points - mean) + q
    close(e.mean[-1], mean, 1e-8)
    close(e.cov[-1], cov, 1e-6 if method == "ekf" else 1e-10)
    assert e.log_likelihood == pytest.approx(before.log_likelihood, rel=1e-12)
    assert np.isnan(e.innovations[-1]).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_lost_row_carries_no_information_backwards(method):
    case = lorenz63(steps=30)
    z = np.concatenate([case.z, np.full((5, 2), np.nan)])
    e = fk.estimate(case.system, case.sensor, z, method=method)
    short = fk.estimate(case.system, case.sensor, case.z, method=method)
    close(e.mean[:30], short.mean)
    close(e.cov[:30], short.cov)


@pytest.mark.parametrize("method", METHODS)
def test_a_missing_component_is_a_sensor_without_it(method):
    """Column 1 missing throughout equals the sensor that never had it, with correlated noise."""
    case = linear(n=3, m=3)
    z = case.z.copy()
    z[:, 1] = np.nan
    c = np.asarray(case.sensor.matrix)[[0, 2]]
    keep = np.ix_([0, 2], [0, 2])
    full = case.estimate(method=method)
    e = fk.estimate(
        case.system,
        case.sensor,
        z,
        process_noise=case.q,
        observation_noise=case.r,
        initial_mean=case.mean,
        initial_cov=case.cov,
        method=method,
    )
    less = fk.estimate(
        case.system,
        fk.LinearSensor(c),
        z[:, [0, 2]],
        process_noise=case.q,
        observation_noise=case.r[keep],
        initial_mean=case.mean,
        initial_cov=case.cov,
        method=method,
    )
    close(e.mean, less.mean)
    close(e.cov, less.cov)
    close(e.log_likelihood, less.log_likelihood)
    assert np.abs(e.mean - full.mean).max() > 1e-2


def test_random_gaps_have_the_textbooks_likelihood():
    case = lorenz63(steps=60)
    z = case.z.copy()
    z[np.random.default_rng(0).uniform(size=z.shape) < 0.3] = np.nan
    means, covs, log_likelihood = filters.ukf(
        case.f, case.h, z, case.q, case.r, case.mean, case.cov, resample=True
    )
    smoothed, _ = filters.urts(case.f, means, covs, case.q)
    e = fk.estimate(case.system, case.sensor, z, method="ukf-resampled")
    close(e.mean, smoothed[1:], 1e-9)
    close(e.log_likelihood, log_likelihood, 1e-9)


def test_nothing_observed_at_all_is_the_prior_carried_forward():
    case = lorenz63(steps=10)
    e = fk.estimate(case.system, case.sensor, np.full((10, 2), np.nan))
    assert e.ok and e.log_likelihood == 0
    np.testing.assert_allclose(e.initial_mean, 0, atol=1e-12)
    np.testing.assert_allclose(e.initial_cov, np.eye(3), atol=1e-9)


def test_all_components_missing_one_by_one_is_a_missing_row():
    case = lorenz63(steps=20)
    row, one_by_one = case.z.copy(), case.z.copy()
    row[7] = np.nan
    one_by_one[7, 0] = np.nan
    one_by_one[7, 1] = np.nan
    a = fk.estimate(case.system, case.sensor, row)
    b = fk.estimate(case.system, case.sensor, one_by_one)
    np.testing.assert_array_equal(a.mean, b.mean)
