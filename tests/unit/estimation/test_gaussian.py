"""The unscented and extended filters and smoothers against filterpy, textbook twins and theory."""

import contextlib

import numpy as np
import pytest
from filterpy.kalman import MerweScaledSigmaPoints, UnscentedKalmanFilter
from reference import filters
from reference.problems import linear, lorenz63, van_der_pol

import fedkoopman as fk

MEMBERS = pytest.mark.parametrize(
    "method",
    [
        "ukf-resampled",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ukf", "ekf")),
    ],
)
"""That a batch is its members is also a law of every estimator: test_estimator_laws.py."""
MAKE = {"lorenz63": lorenz63, "van-der-pol": van_der_pol, "linear": linear}


@pytest.fixture(params=MAKE, scope="module")
def case(request):
    return MAKE[request.param]()


def close(ours, theirs, tolerance=1e-9):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * max(1, np.abs(theirs).max()))


def test_ukf_is_filterpys(case):
    n, m = case.system.dim, case.sensor.dim
    points = MerweScaledSigmaPoints(n, 0.1, 2.0, -1.0)
    peer = UnscentedKalmanFilter(
        dim_x=n, dim_z=m, dt=1.0, hx=case.h, fx=lambda x, dt: case.f(x), points=points
    )
    peer.x, peer.P, peer.Q, peer.R = case.mean.copy(), case.cov.copy(), case.q, case.r
    means, covs = peer.batch_filter(list(case.z))
    filtered = case.estimate(smooth=False)
    close(filtered.mean, means)
    close(filtered.cov, covs)
    smoothed_means, smoothed_covs, _ = peer.rts_smoother(means, covs)
    smoothed = case.estimate()
    close(smoothed.mean, smoothed_means)
    close(smoothed.cov, smoothed_covs)


@pytest.mark.parametrize(
    ("points", "resample"),
    [
        ((0.1, 2.0, -1.0), False),
        pytest.param((0.1, 2.0, -1.0), True, marks=pytest.mark.slow),
        ((1.0, 0.0, 1.0), True),
        pytest.param((0.5, 2.0, 0.0), False, marks=pytest.mark.slow),
    ],
)
def test_ukf_is_the_textbooks(case, resample, points):
    given = dict(zip(("alpha", "beta", "kappa"), points, strict=True))
    modest = given["beta"] < given["alpha"] ** 2
    warns = pytest.warns(UserWarning, match="beta") if modest else contextlib.nullcontext()
    means, covs, log_likelihood = filters.ukf(
        case.f, case.h, case.z, case.q, case.r, case.mean, case.cov, **given, resample=resample
    )
    smoothed_means, smoothed_covs = filters.urts(case.f, means, covs, case.q, **given)
    method = "ukf-resampled" if resample else "ukf"

    with warns:
        filtered = case.estimate(method=method, smooth=False, **given)
        smoothed = case.estimate(method=method, **given)
    close(filtered.mean, means[1:])
    close(filtered.cov, covs[1:])
    close(filtered.log_likelihood, log_likelihood)
    close(smoothed.mean, smoothed_means[1:])
    close(smoothed.cov, smoothed_covs[1:])
    close(smoothed.initial_mean, smoothed_means[0])
    close(smoothed.initial_cov, smoothed_covs[0])


@pytest.mark.parametrize("method", ["ukf-resampled", "ekf"])
def test_on_a_linear_system_it_is_the_kalman_filter(method):
    case = linear()
    a = filters.central_jacobian(case.f, 1.0)(case.mean)
    c = filters.central_jacobian(case.h, 1.0)(case.mean)
    means, covs, smoothed_means, smoothed_covs, log_likelihood = filters.linearised(
        case.f, case.h, case.z, case.q, case.r, case.mean, case.cov, lambda x: a, lambda x: c
    )
    filtered = case.estimate(method=method, smooth=False)
    smoothed = case.estimate(method=method)
    close(filtered.mean, means[1:], 1e-11)
    close(filtered.cov, covs[1:], 1e-11)
    close(smoothed.mean, smoothed_means[1:], 1e-11)
    close(smoothed.cov, smoothed_covs[1:], 1e-11)
    close(smoothed.initial_mean, smoothed_means[0], 1e-11)
    close(filtered.log_likelihood, log_likelihood, 1e-11)


def test_the_papers_ukf_is_not_the_kalman_filter():
    """Its P_zz lacks Q (documented in docs/estimation.md): the difference is visible, not small."""
    case = linear()
    paper = case.estimate(method="ukf", smooth=False)
    exact = case.estimate(method="ekf", smooth=False)
    assert np.abs(paper.mean - exact.mean).max() > 1e-3


def test_ekf_is_the_textbooks(case):
    jf, jh = filters.central_jacobian(case.f), filters.central_jacobian(case.h)
    means, covs, smoothed_means, smoothed_covs, log_likelihood = filters.linearised(
        case.f, case.h, case.z, case.q, case.r, case.mean, case.cov, jf, jh
    )
    filtered, smoothed = case.estimate(method="ekf", smooth=False), case.estimate(method="ekf")
    close(filtered.mean, means[1:], 1e-6)  # the twin's Jacobians are finite differences
    close(filtered.cov, covs[1:], 1e-6)
    close(smoothed.mean, smoothed_means[1:], 1e-6)
    close(smoothed.cov, smoothed_covs[1:], 1e-6)
    close(filtered.log_likelihood, log_likelihood, 1e-6)


def test_per_step_noise_is_the_textbooks():
    case = lorenz63(steps=60)
    scale = np.random.default_rng(0).uniform(0.5, 2, size=60)[:, None, None]
    q, r = scale * case.q, scale[::-1] * case.r
    means, covs, log_likelihood = filters.ukf(
        case.f, case.h, case.z, q, r, case.mean, case.cov, resample=True
    )
    smoothed_means, smoothed_covs = filters.urts(case.f, means, covs, q)
    ours = case.estimate(method="ukf-resampled", process_noise=q, observation_noise=r)
    close(ours.mean, smoothed_means[1:])
    close(ours.cov, smoothed_covs[1:])
    close(ours.log_likelihood, log_likelihood)
    each = fk.estimate(
        case.system,
        case.sensor,
        case.z[None],
        method="ukf-resampled",
        process_noise=q[None],
        observation_noise=r[None],
    )
    np.testing.assert_array_equal(each.mean[0], ours.mean)


@MEMBERS
def test_a_batch_is_its_members(method):
    cases = [lorenz63(steps=50, seed=s) for s in range(5)]
    sensor = cases[0].sensor
    z = np.stack([c.z for c in cases])
    batch = fk.estimate(cases[0].system, sensor, z, method=method)
    for b, member in enumerate(z):
        one = fk.estimate(cases[0].system, sensor, member, method=method)
        close(batch.mean[b], one.mean, 1e-12)
        close(batch.cov[b], one.cov, 1e-12)
        close(batch.log_likelihood[b], one.log_likelihood, 1e-12)
    assert batch.ok.shape == (5,) and batch.ok.all()


def test_a_sensor_and_a_system_per_trajectory():
    cases = [lorenz63(steps=40, seed=s) for s in range(3)]
    systems = [fk.systems.Lorenz63(b=b) for b in (26.0, 28.0, 30.0)]
    z = np.stack([c.z for c in cases])
    batch = fk.estimate(systems, [c.sensor for c in cases], z)
    for b, case in enumerate(cases):
        close(batch.mean[b], fk.estimate(systems[b], case.sensor, z[b]).mean, 1e-12)


def test_more_trajectories_than_one_piece_holds():
    case = lorenz63(steps=20)
    z = case.z + np.random.default_rng(0).normal(size=(300, 20, 2))
    seen = []
    batch = fk.estimate(case.system, case.sensor, z, progress=lambda a, b: seen.append((a, b)))
    for b in (0, 127, 128, 299):
        close(batch.mean[b], fk.estimate(case.system, case.sensor, z[b]).mean, 1e-12)
    assert seen[-1] == (300, 300) and [a for a, _ in seen] == sorted(a for a, _ in seen)


@MEMBERS
def test_ragged_trajectories_are_their_members(method):
    case = lorenz63(steps=90)
    lengths = [90, 33, 1]
    z = [case.z[:length] for length in lengths]
    ragged = fk.estimate(case.system, case.sensor, z, method=method)
    for b, member in enumerate(z):
        one = fk.estimate(case.system, case.sensor, member, method=method)
        assert len(ragged.mean[b]) == lengths[b]
        close(ragged.mean[b], one.mean, 1e-12)
        close(ragged.cov[b], one.cov, 1e-12)
        close(ragged.initial_mean[b], one.initial_mean, 1e-12)
        close(ragged.log_likelihood[b], one.log_likelihood, 1e-12)
        close(ragged.innovation_cov[b], one.innovation_cov, 1e-12)


def test_known_inputs_and_intervals():
    """A driven linear oscillator with irregular sampling, against its exact discretisation."""
    from scipy.linalg import expm

    a, b = np.array([[0.0, 1.0], [-2.0, -0.3]]), np.array([0.0, 1.0])
    system = fk.System.from_function(
        lambda x, u: a @ x + b * u[0], 2, 0.05, input_dim=1, substeps=8
    )
    sensor = fk.LinearSensor(np.array([[1.0, 0.0]]))
    rng = np.random.default_rng(0)
    steps = 40
    dt, u = rng.uniform(0.02, 0.1, steps), rng.normal(size=(steps, 1))
    z = rng.normal(size=(steps, 1))
    q, r = 0.01 * np.eye(2), np.array([[0.1]])
    ours = fk.estimate(
        system,
        sensor,
        z,
        process_noise=q,
        observation_noise=r,
        inputs=u,
        dt=dt,
        method="ekf",
        smooth=False,
    )
    x, p = np.zeros(2), np.eye(2)
    for k in range(steps):
        block = expm(dt[k] * np.block([[a, b[:, None]], [np.zeros((1, 3))]]))
        f, g = block[:2, :2], block[:2, 2]
        x, p = f @ x + g * u[k, 0], f @ p @ f.T + q
        s = p[0, 0] + r[0, 0]
        x, p = x + p[:, 0] / s * (z[k, 0] - x[0]), p - np.outer(p[:, 0], p[:, 0]) / s
        close(ours.mean[k], x, 1e-8)
    batch = fk.estimate(
        system,
        sensor,
        np.stack([z, z]),
        process_noise=q,
        observation_noise=r,
        inputs=np.stack([u, 2 * u]),
        dt=np.stack([dt, dt]),
        method="ekf",
        smooth=False,
    )
    close(batch.mean[0], ours.mean, 1e-12)
    assert np.abs(batch.mean[1] - batch.mean[0]).max() > 1e-3


def test_a_known_initial_state_and_noise_free_dynamics():
    """P₀ = 0 and Q = 0 are ordinary inputs: the estimate is the simulation itself."""
    system = fk.systems.VanDerPol()
    sensor = fk.LinearSensor.identity(2)
    start = np.array([1.0, 0.5])
    z = np.random.default_rng(0).normal(size=(30, 2))
    x = fk.simulate(system, steps=30, initial=start)
    for method in ("ukf", "ukf-resampled", "ekf"):
        e = fk.estimate(
            system, sensor, z, process_noise=0.0, initial_mean=start, initial_cov=0.0, method=method
        )
        assert e.ok
        np.testing.assert_array_equal(e.cov, 0)
        close(e.mean, x[1:], 1e-5)
        np.testing.assert_array_equal(e.initial_mean, start)
