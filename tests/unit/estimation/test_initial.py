"""The initial state from the observations alone, against the law that made the data."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedkoopman as fk
from fedkoopman.estimation.initial import estimated_law, first_law, seen_spread
from fedkoopman.systems import Pendulum, System, VanDerPol
from fedkoopman.systems.initial_law import InitialLaw

NOISE = {"observation_noise": 0.01, "process_noise": 1e-6}
STARTS = 40


def swings(mean, std, sensor, system=None, steps=120, seed=0):
    system = system or Pendulum()
    start = np.random.default_rng(seed).normal(mean, std, (STARTS, 2))
    x = fk.simulate(system, steps, initial=start, batch=STARTS)
    return start, list(fk.observe(sensor, x[:, 1:], noise=0.01, seed=seed + 1))


def found(system, sensor, z, **options):
    law = first_law(system, sensor, z, **NOISE, **options)
    return estimated_law(system, sensor, z, law, **NOISE, **options)


def test_what_a_sensor_shows_is_pulled_back_and_the_rest_is_a_guess() -> None:
    sensor = fk.LinearSensor([[2.0, 0.0, 0.0], [0.0, 1.0, 1.0]], offset=[1.0, 0.0, 0.0])
    x = np.random.default_rng(0).normal([3.0, 1.0, 1.0], [0.5, 1.0, 1.0], (2000, 3))
    z = fk.observe(sensor, x, noise=1e-12, seed=0)
    mean, variances, hidden = seen_spread(sensor, [z[:1000], z[1000:]], np.full(3, 7.0))
    assert hidden.tolist() == [False, True, True]  # two states are seen as their sum only
    np.testing.assert_allclose(mean, [3.0, 1.0, 1.0], atol=0.1)
    np.testing.assert_allclose(variances, [0.25, 0.5, 0.5], rtol=0.15)
    alone = seen_spread(fk.LinearSensor([[1.0, 0.0, 0.0]]), [z[:, :1]], np.full(3, 7.0))
    assert alone[1][1:].tolist() == [7.0, 7.0]
    bent = fk.FunctionSensor(lambda x: x[:1] ** 2, 1)
    assert seen_spread(bent, [z[:, :1]], np.full(3, 7.0))[2].all()


@pytest.mark.parametrize("row", [[1.0, 0.0], [0.0, 1.0]], ids=["angle", "rate"])
def test_hidden_states_are_found_through_the_dynamics(row: list[float]) -> None:
    sensor = fk.LinearSensor([row])
    start, z = swings([1.0, -0.5], [0.3, 0.8], sensor)
    law = found(Pendulum(), sensor, z)
    error = start.std(axis=0) / np.sqrt(STARTS)
    assert (np.abs(law.mean - start.mean(axis=0)) < 2 * error).all()
    np.testing.assert_allclose(np.diag(law.cov), start.var(axis=0), rtol=0.35)


def test_units_do_not_matter() -> None:
    """Thousand times larger states: a prior of variance 1 would be far too narrow."""
    sensor = fk.LinearSensor([[1.0, 0.0]])

    def spring(x):
        return jnp.stack([x[1], -9.8 * x[0]])

    system = System.from_function(spring, 2, 0.02)
    start = np.random.default_rng(0).normal([1000.0, -500.0], [300.0, 800.0], (STARTS, 2))
    x = fk.simulate(system, 120, initial=start, batch=STARTS)
    z = list(fk.observe(sensor, x[:, 1:], noise=1e4, seed=1))
    law = first_law(system, sensor, z, observation_noise=1e4, doubt=1e-4)
    law = estimated_law(system, sensor, z, law, observation_noise=1e4, process_noise=1.0)
    np.testing.assert_allclose(np.diag(law.cov), start.var(axis=0), rtol=0.4)


def test_a_turn_more_is_not_preferred_to_none() -> None:
    sensor = fk.FunctionSensor(_bob, 2)
    start, z = swings([1.0, 0.0], [0.3, 0.3], sensor)
    law = found(Pendulum(), sensor, z)
    np.testing.assert_allclose(law.mean, start.mean(axis=0), atol=0.2)


def _bob(x):
    return jnp.stack([jnp.sin(x[0]), 1 - jnp.cos(x[0])])


def test_a_mean_that_is_given_stays_and_the_covariance_is_about_it() -> None:
    sensor = fk.LinearSensor(np.eye(2))
    start, z = swings([1.0, 0.0], [0.2, 0.2], sensor)
    law = found(Pendulum(), sensor, z, mean=np.zeros(2))
    np.testing.assert_array_equal(law.mean, np.zeros(2))
    np.testing.assert_allclose(np.diag(law.cov), np.mean(start**2, axis=0), rtol=0.2)


def test_a_single_trajectory_gives_a_mean_and_no_spread() -> None:
    sensor = fk.LinearSensor(np.eye(2))
    start, z = swings([1.0, 0.0], [0.2, 0.2], sensor)
    wide = InitialLaw(np.zeros(2), 9.0 * np.eye(2))
    law = estimated_law(Pendulum(), sensor, z[:1], wide, **NOISE)
    np.testing.assert_allclose(law.mean, start[0], atol=0.1)
    np.testing.assert_array_equal(law.cov, wide.cov)


def test_where_the_filter_follows_nothing_the_law_stays() -> None:
    sensor = fk.LinearSensor([[1.0, 0.0]])
    noise = list(np.random.default_rng(0).normal(0.0, 100.0, (5, 120, 1)).cumsum(axis=1))
    wide = InitialLaw(np.zeros(2), np.eye(2))
    law = estimated_law(VanDerPol(), sensor, noise, wide, **NOISE)
    np.testing.assert_array_equal(law.cov, wide.cov)


def test_the_same_observations_give_the_same_law() -> None:
    sensor = fk.LinearSensor([[1.0, 0.0]])
    _, z = swings([1.0, -0.5], [0.3, 0.8], sensor)
    one, other = (first_law(Pendulum(), sensor, z, **NOISE) for _ in range(2))
    np.testing.assert_array_equal(one.cov, other.cov)
