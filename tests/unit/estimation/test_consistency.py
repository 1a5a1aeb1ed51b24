"""Statistical consistency: is the error as large as the covariance says?"""

from dataclasses import replace

import numpy as np
import pytest
from reference.problems import linear

import fedkoopman as fk
from fedkoopman.estimation import nees, nis, whiteness

TRAJECTORIES, STEPS = 200, 300


@pytest.fixture(scope="module")
def data():
    """Lorenz63 with process noise: exactly the model that the filters assume."""
    system = fk.systems.Lorenz63()
    sensor = fk.LinearSensor.random_frame(3, seed=0)
    start = np.random.default_rng(0).normal(size=(TRAJECTORIES, 3))
    x = fk.simulate(
        system, steps=STEPS, seed=0, batch=TRAJECTORIES, initial=start, process_noise=0.01
    )
    return system, sensor, x, fk.observe(sensor, x[:, 1:], noise=0.1, seed=1)


def run(data, method, smooth):
    system, sensor, x, z = data
    return fk.estimate(
        system, sensor, z, process_noise=0.01, observation_noise=0.1, method=method, smooth=smooth
    ), x[:, 1:]


@pytest.mark.parametrize("method", ["ukf-resampled", "ekf"])
def test_consistent_filters_are_inside_their_bands(data, method):
    filtered, truth = run(data, method, smooth=False)
    smoothed, _ = run(data, method, smooth=True)
    for test in (nis(filtered), nees(filtered, truth), nees(smoothed, truth)):
        assert test.consistent, str(test)
        assert test.upper - test.lower < 0.1, "the band is too wide to mean anything"
    assert whiteness(filtered).consistent, str(whiteness(filtered))


def test_the_papers_ukf_is_modest_by_construction(data):
    """Without resampling P_zz and P_xz lack Q (estimation-numerics: 0.61 filter, 0.73 smoother,
    NIS 1.02 at the paper's noise, where Q = R = I)."""
    system, sensor, *_ = data
    start = np.random.default_rng(1).normal(size=(TRAJECTORIES, 3))
    x = fk.simulate(
        system, steps=STEPS, seed=2, batch=TRAJECTORIES, initial=start, process_noise=1.0
    )
    z = fk.observe(sensor, x[:, 1:], noise=1.0, seed=3)
    filtered = fk.estimate(system, sensor, z, smooth=False)
    smoothed = fk.estimate(system, sensor, z)
    assert nees(filtered, x[:, 1:]).value == pytest.approx(0.61, abs=0.05)
    assert nees(smoothed, x[:, 1:]).value == pytest.approx(0.73, abs=0.05)
    assert nis(filtered).value == pytest.approx(1.02, abs=0.05)


def test_diagnostics_notice_wrong_noise(data):
    system, sensor, x, z = data
    for factor, word in ((4.0, "too large"), (0.25, "too small")):
        e = fk.estimate(
            system,
            sensor,
            z,
            process_noise=0.01 * factor,
            observation_noise=0.1 * factor,
            method="ukf-resampled",
            smooth=False,
        )
        assert not nis(e).consistent and word in nis(e).verdict
        assert not nees(e, x[:, 1:]).consistent


def test_whiteness_notices_a_wrong_model(data):
    _, sensor, _, z = data
    wrong = fk.systems.Lorenz63(b=20.0)
    e = fk.estimate(wrong, sensor, z, process_noise=0.01, observation_noise=0.1, smooth=False)
    assert not whiteness(e).consistent
    assert "correlated" in whiteness(e).verdict


def test_nis_of_the_kalman_filter_is_chi_square_with_gaps():
    """Over many draws of an exactly linear problem with missing values, the 99 % band holds in
    about 99 % of them, and the 50 % band in about half."""
    cases = [linear(seed=seed, steps=60) for seed in range(100)]
    z = np.stack([case.z for case in cases])
    for seed, draw in enumerate(z):
        draw[np.random.default_rng(seed).uniform(size=draw.shape) < 0.2] = np.nan
    every = fk.estimate(
        [case.system for case in cases],
        [case.sensor for case in cases],
        z,
        process_noise=np.stack([case.q for case in cases])[:, None],
        observation_noise=np.stack([case.r for case in cases])[:, None],
        initial_mean=np.stack([case.mean for case in cases]),
        initial_cov=np.stack([case.cov for case in cases]),
        method="ekf",
        smooth=False,
    )
    inside = {0.99: 0, 0.5: 0}
    for row in range(100):
        one = slice(row, row + 1)
        e = replace(
            every, innovations=every.innovations[one], innovation_cov=every.innovation_cov[one]
        )
        for level in inside:
            inside[level] += nis(e, level).consistent
    assert inside[0.99] >= 95
    assert 35 <= inside[0.5] <= 65


def test_lists_and_single_trajectories_are_diagnosed_alike(data):
    system, sensor, x, z = data
    batch = fk.estimate(system, sensor, z[:3], method="ukf-resampled", smooth=False)
    listed = fk.estimate(system, sensor, [z[0], z[1], z[2]], method="ukf-resampled", smooth=False)
    assert nis(batch).value == pytest.approx(nis(listed).value)
    assert nees(batch, x[:3, 1:]).value == pytest.approx(nees(listed, list(x[:3, 1:])).value)
    one = fk.estimate(system, sensor, z[0], method="ukf-resampled", smooth=False)
    assert np.isfinite(nees(one, x[0, 1:]).value) and "band" in str(nis(one))
    with pytest.raises(fk.InputError, match="times of the observations"):
        nees(one, x[0])


def test_angles_are_compared_on_the_circle():
    """A pendulum that turns over: the truth is unwrapped, the estimates are in (−π, π]."""
    system = fk.systems.Pendulum(angles=(0,))
    sensor = fk.LinearSensor.identity(2, angles=(0,))
    start = np.array([[0.0, 8.0]] * 40) + 0.1 * np.random.default_rng(0).normal(size=(40, 2))
    x = fk.simulate(system, steps=150, batch=40, initial=start, process_noise=1e-4, seed=0)
    assert x[..., 0].max() > 4 * np.pi
    z = fk.observe(sensor, x[:, 1:], noise=0.01, seed=1)
    e = fk.estimate(
        system,
        sensor,
        z,
        process_noise=1e-4,
        observation_noise=0.01,
        initial_mean=[0.0, 8.0],
        initial_cov=0.01,
        method="ukf-resampled",
        kappa=0.0,
    )
    assert nees(e, x[:, 1:]).value == pytest.approx(1, abs=0.2)


def test_directions_without_variance_are_left_out():
    """R = 0 and two copies of one sensor: S is singular, and P too once x is known exactly."""
    system = fk.System.from_map(lambda x: 0.9 * x, 2)
    sensor = fk.LinearSensor([[1.0, 0.0], [1.0, 0.0]])
    rng = np.random.default_rng(0)
    x = [rng.normal(size=2)]
    for _ in range(400):
        x.append(0.9 * x[-1] + rng.normal(size=2))
    x = np.array(x)
    e = fk.estimate(
        system, sensor, x[1:, [0, 0]], observation_noise=0.0, method="ekf", smooth=False
    )
    assert e.ok
    # one free direction of two columns: half the count
    assert 2 * nis(e).value == pytest.approx(1, abs=0.25)
    assert nees(e, x[1:]).value == pytest.approx(1, abs=0.35)


def test_too_little_data_is_not_judged():
    system = fk.System.from_map(lambda x: 0.9 * x, 1)
    e = fk.estimate(system, fk.LinearSensor.identity(1), np.ones((1, 1)), method="ekf")
    assert "cannot be judged" in nees(e, np.zeros((1, 1))).verdict
