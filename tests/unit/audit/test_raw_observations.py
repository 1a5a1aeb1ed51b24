"""Raw observations in place of filtered states."""

import numpy as np

import fedkoopman as fk
from fedkoopman.audit.raw_observations import METHOD

SYSTEM = fk.systems.Lorenz63()


def raw(sensor, z, **options):
    return fk.estimate(SYSTEM, sensor, z, method=METHOD, **options)


def test_a_full_state_sensor_gives_its_observations():
    z = np.random.default_rng(0).standard_normal((4, 20, 3))
    found = raw(fk.LinearSensor(np.eye(3)), z)
    np.testing.assert_allclose(found.mean, z, atol=1e-12)
    assert found.ok.all()


def test_what_a_sensor_does_not_see_stays_at_the_expected_state():
    sensor, mean = fk.LinearSensor(np.eye(3)[:2] * 2), np.array([1.0, 2.0, 3.0])
    z = np.random.default_rng(0).standard_normal((20, 2))
    found = raw(sensor, z, initial_mean=mean).mean
    np.testing.assert_allclose(found[:, :2], z / 2, atol=1e-12)
    np.testing.assert_allclose(found[:, 2], 3.0)


def test_a_missing_observation_is_the_one_before():
    z = np.arange(18.0).reshape(6, 3)
    z[0, 0] = z[3] = z[4, 1] = np.nan
    found = raw(fk.LinearSensor(np.eye(3)), z, initial_mean=[7.0, 8.0, 9.0]).mean
    np.testing.assert_allclose(found[0], [7.0, 1.0, 2.0])
    np.testing.assert_allclose(found[3], found[2])
    np.testing.assert_allclose(found[4], [12.0, 7.0, 14.0])
